"""What each algorithm of the comparison spends until it is near the optimum, and which of them spends least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forestmix.paper.curves import Curve, Panel

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
