"""The paper's claims about Figure 2, checked from the numbers of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    return [claim for panel in panels for claim in _claims(panel)]


def _claims(panel: Panel) -> Iterator[Claim]:
    gaps = {label: pooled(panel.curves, label) for label in labels(panel.curves)}
    steps = len(next(iter(gaps.values()))) - 1
    match panel.name:
        case "fig2a":
            yield _at_optimum(gaps["s = 1"][1])
            sentence = f"FM converges faster on smaller windows (after {steps} steps)."
            yield _ordered("fig2a, sizes", sentence, gaps, [f"s = {side}" for side in SIDES])
        case "fig2b":
            sentence = f"FM converges faster on narrower kernels (after {steps} steps)."
            yield _ordered("fig2b, widths", sentence, gaps, [f"k = {width}" for width in WIDTHS])
        case "fig2c":
            for order in ORDERS:
                sentence = f"After {steps} parallel steps FM is below blocks, and blocks below CAVI ({order} order)."
                yield _ordered(f"fig2c, {order} order", sentence, gaps, ["FM", f"blocks, {order}", f"CAVI, {order}"])


def _at_optimum(first: Floats) -> Claim:
    """Check that the gaps of a forest after one step are rounding."""
    sentence = "Windows of side 1 make a forest: FM is at the optimum after one step."
    median, each = float(np.median(first)), first <= AT_OPTIMUM
    return Claim("fig2a, forest", sentence, {"s = 1": median}, median <= AT_OPTIMUM, int(np.sum(each)), len(each))


def _ordered(name: str, sentence: str, gaps: Mapping[str, Floats], order: Sequence[str]) -> Claim:
    """Check that the last gaps grow along ``order``; a gap that is rounding counts as 0, and NaN as a failure."""
    last = np.array([gaps[label][-1] for label in order])
    last = np.where(last <= AT_OPTIMUM, 0.0, last)
    medians = np.median(last, axis=1)
    each = np.all(np.diff(last, axis=0) > 0, axis=0)
    held = bool(np.all(np.diff(medians) > 0))
    return Claim(name, sentence, dict(zip(order, medians.tolist(), strict=True)), held, int(np.sum(each)), len(each))
