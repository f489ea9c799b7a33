"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Write JSON on standard output, and nothing else.")]
Level = Annotated[float, typer.Option(help="Probability of the central intervals.", show_default=True)]
SaveTo = Annotated[
    Path | None, typer.Option("--out", "-o", help="File for the result (.nc); nothing is saved without it.")
]
Seed = Annotated[int, typer.Option(min=0, help="First seed of what is drawn at random.")]


#: Families of rows, of the variables of a forest, and how much of the correlation q has.
RowFamily = StrEnum("RowFamily", ["gaussian", "bernoulli", "binomial", "poisson"])
ForestFamily = StrEnum("ForestFamily", ["gaussian", "bernoulli", "poisson"])
Covariance = StrEnum("Covariance", ["factorised", "full"])
