"""The paper's claims about Figure 2, checked from the numbers of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from forestmix.paper.curves import Panel, labels, pooled
from forestmix.paper.draws import Floats
from forestmix.paper.figure2 import ORDERS, SIDES, WIDTHS

#: A gap that is rounding in the objective, so that the optimum has been reached.
AT_OPTIMUM = 1e-12


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what the numbers say.

    ``numbers``: the median relative gap of each curve; ``held``: whether the medians bear the sentence out;
    ``images_held`` of ``images``: for how many images, each by itself, it is true.
    """

    name: str
    sentence: str
    numbers: Mapping[str, float]
    held: bool
    images_held: int
    images: int

    @property
    def evidence(self) -> str:
        """The numbers in words."""
        gaps = ", ".join(f"{label}: {value:.3g}" for label, value in self.numbers.items())
        return f"median relative gap {gaps}; true of {self.images_held} of {self.images} images"


def check_claims(panels: Iterable[Panel]) -> list[Claim]:
    """Check every claim about the panels of a run."""
    checks = {"fig2a": _windows, "fig2b": _kernels, "fig2c": _regions}
    return [claim for panel in panels for claim in checks[panel.name](panel)]


def _windows(panel: Panel) -> list[Claim]:
    gaps = _gaps(panel)
    first = gaps["s = 1"][1]
    forest = Claim(
        "fig2a, forest", "Windows of side 1 make a forest: FM is at the optimum after one step.",
        {"s = 1": float(np.median(first))},
        bool(np.median(first) <= AT_OPTIMUM), int(np.sum(first <= AT_OPTIMUM)), len(first),
    )  # fmt: skip
    sentence = f"FM converges faster on smaller windows (after {_steps(gaps)} steps)."
    return [forest, _ordered("fig2a, sizes", sentence, gaps, [f"s = {side}" for side in SIDES])]


def _kernels(panel: Panel) -> list[Claim]:
    gaps = _gaps(panel)
    sentence = f"FM converges faster on narrower kernels (after {_steps(gaps)} steps)."
    return [_ordered("fig2b, widths", sentence, gaps, [f"k = {width}" for width in WIDTHS])]


def _regions(panel: Panel) -> list[Claim]:
    gaps = _gaps(panel)
    return [
        _ordered(
            f"fig2c, {order} order",
            f"After {_steps(gaps)} parallel steps FM is below blocks, and blocks below CAVI ({order} order).",
            gaps,
            ["FM", f"blocks, {order}", f"CAVI, {order}"],
        )
        for order in ORDERS
    ]


def _gaps(panel: Panel) -> dict[str, Floats]:
    return {label: pooled(panel.curves, label) for label in labels(panel.curves)}


def _steps(gaps: Mapping[str, Floats]) -> int:
    return len(next(iter(gaps.values()))) - 1


def _ordered(name: str, sentence: str, gaps: Mapping[str, Floats], order: Sequence[str]) -> Claim:
    """Check that the last gaps grow along ``order``; a gap that is rounding counts as 0, and NaN as a failure."""
    last = np.array([gaps[label][-1] for label in order])
    last = np.where(last <= AT_OPTIMUM, 0.0, last)
    medians = np.median(last, axis=1)
    each = np.all(np.diff(last, axis=0) > 0, axis=0)
    return Claim(
        name, sentence, dict(zip(order, medians.tolist(), strict=True)),
        all(before < after for before, after in pairwise(medians)), int(np.sum(each)), len(each),
    )  # fmt: skip
