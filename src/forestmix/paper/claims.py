"""What the curves of a run say: the paper's claims about Figure 2, and what each algorithm beyond them spends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forestmix.paper.curves import Curve, Panel, labels, pooled
from forestmix.paper.figure2 import ORDERS, SIDES, WIDTHS
from forestmix.paper.problems import Floats

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


#: The relative gaps whose cost is tabulated.
GAPS = (1e-1, 1e-2, 1e-3)
#: Times were taken once, maybe on a busy machine: one that is not half of another counts as equal to it.
TIMING_NOISE = 0.5
COSTS = {"step": "parallel steps", "sweeps": "sweeps", "seconds": "seconds"}


@dataclass(frozen=True)
class Cost:
    """What an algorithm spent until the median image was within a gap.

    Where ``reached`` is False, the costs are those of the whole run: at least that much is needed.
    """

    label: str
    reached: bool
    step: int
    sweeps: float
    seconds: float

    def short(self, cost: str) -> str:
        """Return one cost for a table."""
        value = getattr(self, cost)
        text = f"{value:.3g}" if cost == "seconds" else f"{value:,.0f}"
        return text if self.reached else f"> {text}"


def cost_to_reach(curve: Curve, gap: float) -> Cost:
    """Return the cost of bringing the median gap over the images down to ``gap``."""
    within = np.flatnonzero(np.median(curve.gap, axis=1) <= gap)
    row = int(within[0]) if len(within) else -1
    return Cost(curve.label, len(within) > 0, int(curve.step[row]), float(curve.sweeps[row]), float(curve.seconds[row]))


def cheapest(costs: Sequence[Cost], cost: str) -> list[str]:
    """Return the labels of those that spent least; none where the numbers name no winner.

    They name none where all spent the same, or where one that was stopped early had spent less so far.
    """
    reached = [entry for entry in costs if entry.reached]
    if not reached:
        return []
    least = min(getattr(entry, cost) for entry in reached)
    limit = least / TIMING_NOISE if cost == "seconds" else least
    leaders = [entry.label for entry in reached if getattr(entry, cost) <= limit]
    undecided = any(getattr(entry, cost) < least for entry in costs if not entry.reached)
    return [] if undecided or len(leaders) == len(costs) else leaders


def verdict(panel: Panel, gap: float = GAPS[0]) -> str:
    """Say in one sentence which algorithms spent least until the median gap was ``gap``."""
    costs = [cost_to_reach(curve, gap) for curve in panel.curves]
    parts = [f"{words}: {' and '.join(cheapest(costs, cost)) or 'no clear winner'}" for cost, words in COSTS.items()]
    return f"Least to a gap of {gap:.4g}, in {'; in '.join(parts)}."


def cost_table(panel: Panel, gaps: Sequence[float]) -> tuple[list[str], list[list[str]], set[tuple[int, int]]]:
    """Return header and rows of a table with three costs for each gap, and row and column of the least of each."""
    header, rows, least = ["algorithm"], [[curve.label] for curve in panel.curves], set()
    for gap in gaps:
        header += [f"steps to {gap:.4g}", "sweeps", "seconds"]
        costs = [cost_to_reach(curve, gap) for curve in panel.curves]
        for cost in COSTS:
            winners = cheapest(costs, cost)
            least |= {(row, len(rows[0])) for row, entry in enumerate(costs) if entry.label in winners}
            rows = [[*cells, entry.short(cost)] for cells, entry in zip(rows, costs, strict=True)]
    return header, rows, least
