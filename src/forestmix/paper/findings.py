"""What the comparison beyond the paper shows, in sentences made from its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from forestmix.paper.beyond import ACCELERATED, BLOCKS, CAVI, ELBO, FM, GROUPS, REGIONS, SHUFFLED, Race
from forestmix.paper.curves import Curve

#: The relative gaps whose cost is tabulated; the sentences are about the first.
GAPS = (1e-1, 1e-2, 1e-3)
#: Times were taken once, maybe on a busy machine: less than a factor of two apart they count as a tie.
TIMING_NOISE = 0.5
COSTS = {"step": "parallel steps", "sweeps": "sweeps", "seconds": "seconds"}
_PAPER = (FM, BLOCKS, CAVI, SHUFFLED)
_PAIRS = ((ACCELERATED, SHUFFLED), (SHUFFLED, CAVI), (ELBO, FM), (REGIONS, ELBO), (GROUPS, ELBO), (GROUPS, CAVI))


@dataclass(frozen=True)
class Cost:
    """What an algorithm spent until the median image was within ``gap``; ``reached`` is False if it never was.

    Where it was not reached, the costs are those of the whole run, so at least that much is needed.
    """

    race: str
    label: str
    gap: float
    reached: bool
    step: int
    sweeps: float
    seconds: float

    def amount(self, cost: str, above: str = "more than ") -> str:
        """Return one cost in words; ``above`` goes before what was spent in vain."""
        value = getattr(self, cost)
        text = f"{value:.3g}" if cost == "seconds" else f"{value:,.0f}"
        return text if self.reached else f"{above}{text}"

    def short(self, cost: str) -> str:
        """Return one cost for a table."""
        return self.amount(cost, "> ")


def cost_to_reach(race: Race, curve: Curve, gap: float) -> Cost:
    """Return the cost of bringing the median gap over the images down to ``gap``."""
    within = np.flatnonzero(np.median(curve.gap, axis=1) <= gap)
    row = int(within[0]) if len(within) else len(curve.gap) - 1
    spent = int(curve.step[row]), float(curve.sweeps[row]), float(curve.seconds[row])
    return Cost(race.name, curve.label, gap, len(within) > 0, *spent)


def all_costs(races: Iterable[Race]) -> list[Cost]:
    """Return the cost of every gap for every algorithm on every problem."""
    return [cost_to_reach(race, curve, gap) for race in races for curve in race.curves for gap in GAPS]


def findings(race: Race, gap: float = GAPS[0]) -> list[str]:
    """Return who wins on one problem: of the paper's methods, then of all, then some pairs."""
    costs = {curve.label: cost_to_reach(race, curve, gap) for curve in race.curves}
    paper = [costs[label] for label in _PAPER if label in costs]
    sentences = [f"Of the paper's methods, {_ranking(paper, cost)}" for cost in COSTS]
    sentences += [f"Of all, {_ranking(list(costs.values()), cost)}" for cost in COSTS]
    pairs = [(costs[first], costs[second]) for first, second in _PAIRS if first in costs and second in costs]
    sentences += [_compare(first, second) for first, second in pairs]
    sentences += _changes(race)
    if BLOCKS not in costs:
        sentences.append("There are no blocks here: the windows overlap all over the image, so none are independent.")
    return sentences


def _ranking(costs: Sequence[Cost], cost: str) -> str:
    """Say who wins, and by what numbers; methods that did not get there come last."""
    ranked = sorted(costs, key=lambda entry: (not entry.reached, getattr(entry, cost)))
    leaders = [entry for entry in ranked if entry is ranked[0] or _ahead(ranked[0], entry, cost) is None]
    numbers = ", ".join(f"{entry.label} {entry.amount(cost)}" for entry in ranked[: max(3, len(leaders) + 1)])
    if len(leaders) == len(ranked) or not all(leader.reached for leader in leaders):
        return f"there is no clear winner in {COSTS[cost]}: {numbers}."
    names = " and ".join(leader.label for leader in leaders)
    return f"{names} {'wins' if len(leaders) == 1 else 'win'} in {COSTS[cost]}: {numbers}."


def _changes(race: Race) -> list[str]:
    """Say which pairs change places between the gaps that are tabulated: a verdict at one gap is not one at all."""
    sentences = []
    for first, second in (*_PAIRS, (FM, BLOCKS), (FM, CAVI)):
        curves = race.curve(first), race.curve(second)
        if curves[0] is None or curves[1] is None:
            continue
        for cost, words in COSTS.items():
            ahead = {}
            for gap in GAPS:
                leader = _ahead(cost_to_reach(race, curves[0], gap), cost_to_reach(race, curves[1], gap), cost)
                if leader is not None:
                    ahead[gap] = leader.label
            if len(set(ahead.values())) > 1:
                order = ", ".join(f"{label} to {gap:g}" for gap, label in ahead.items())
                sentences.append(
                    f"{first} and {second} change places in {words} with the gap asked for; ahead: {order}."
                )
    return sentences


def _compare(first: Cost, second: Cost) -> str:
    """Say which of two wins, for each cost."""
    if not first.reached and not second.reached:
        return f"{first.label} against {second.label}: neither got there."
    wins: dict[str, list[str]] = {}
    for cost, words in COSTS.items():
        ahead = _ahead(first, second, cost)
        verdict = f"{ahead.label} ahead" if ahead else "no clear winner"
        wins.setdefault(verdict, []).append(f"{words} ({first.amount(cost)} to {second.amount(cost)})")
    parts = [f"{verdict} in {', '.join(won)}" for verdict, won in wins.items()]
    return f"{first.label} against {second.label}: {'; '.join(parts)}."


def _ahead(first: Cost, second: Cost, cost: str) -> Cost | None:
    """Return the cheaper of two; None for a tie, or when the one that did not get there had spent less so far."""
    if not first.reached and not second.reached:
        return None
    a, b = getattr(first, cost), getattr(second, cost)
    if first.reached and second.reached:
        margin = TIMING_NOISE * max(a, b) if cost == "seconds" else 0.0
        return None if abs(a - b) <= margin else first if a < b else second
    got, other = (first, second) if first.reached else (second, first)
    return got if getattr(got, cost) <= getattr(other, cost) else None
