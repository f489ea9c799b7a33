"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


def _check(option: str, **limits: bool) -> Callable[[float], float]:
    """Return the check of an option, for before the work, which would be lost."""

    def check(given: float) -> float:
        from forestmix.checks import between_zero_and_one  # imports NumPy, which --help does without

        return between_zero_and_one(option, given, **limits)

    return check


Level = Annotated[float, typer.Option(help="Probability of the central intervals.", callback=_check("--level"))]
Tolerance = Annotated[
    float,
    typer.Option(help="Relative gradient norm at which a run has converged.", callback=_check("--tol", or_zero=True)),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON on standard output, and nothing else.")]
SaveTo = Annotated[
    Path | None, typer.Option("--out", "-o", help="File for the result (.nc); nothing is saved without it.")
]
Seed = Annotated[int, typer.Option(min=0, help="First seed of what is drawn at random.")]


#: Families of rows, of the variables of a forest, and how much of the correlation q has.
RowFamily = StrEnum("RowFamily", ["gaussian", "bernoulli", "binomial", "poisson"])
ForestFamily = StrEnum("ForestFamily", ["gaussian", "bernoulli", "poisson"])
Covariance = StrEnum("Covariance", ["factorised", "full"])
