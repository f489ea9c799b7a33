"""The least effort that is enough: the accuracy gate that every contender passes before its time counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.harness.worker import OutOfTimeError

Setting = TypeVar("Setting")
#: Guesses that are made at most: where they do not find the place, the gaps are not what they were taken for.
GUESSES = 5


@dataclass(frozen=True)
class Attempt(Generic[Setting]):
    """One run of a contender: its setting, the relative gap it came to, and the seconds it took."""

    setting: Setting
    gap: float
    seconds: float


@dataclass(frozen=True)
class Outcome(Generic[Setting]):
    """What a search found: the loosest attempt that reached the target, or else the closest one.

    ``first_seconds`` is the time of the first run; ``stopped`` says why there was no other, where none ended.
    """

    reached: bool
    best: Attempt[Setting] | None
    first_seconds: float | None
    stopped: str

    def verdict(self, target: float) -> str:
        """Return the accuracy in words for a table."""
        if self.reached and self.best is not None:
            return f"{max(self.best.gap, 0):.0e}"
        if self.best is None:
            return f"not reached: {self.stopped}"
        return f"not reached: {self.best.gap:.0e} in {self.best.seconds:.1f} s (target {target:.0e})"


def loosest(
    ladder: Sequence[Setting], attempt: Callable[[Setting], tuple[float, float]], target: float, budget: float,
    start: Setting | None = None, rungs_per_decade: float | None = None,
) -> Outcome[Setting]:  # fmt: skip
    """Search a ladder of settings, loosest first, for the first that comes within ``target``.

    Args:
        ladder: settings, each at least as accurate and as slow as those before it.
        attempt: runs a setting and returns its gap and seconds; may raise ``OutOfTimeError``.
        target: the relative gap to reach.
        budget: seconds after which no further run is begun.
        start: the setting to try first; the middle one when left out.
        rungs_per_decade: by how many rungs a gap is cut to a tenth, where that is known roughly: the next rung to try
            is then guessed from the gaps seen, at first. A bisection otherwise.

    """
    low, high = 0, len(ladder)
    tried: list[Attempt[Setting]] = []
    known: dict[int, float] = {}
    first, used, stopped = None, 0.0, "no time to try"
    middle = len(ladder) // 2 if start is None else ladder.index(start)
    while low < high and used < budget:
        try:
            gap, seconds = attempt(ladder[middle])
        except OutOfTimeError as error:
            stopped, used, high = str(error), budget, middle
            continue
        if first is None:
            first = seconds  # it may be mostly compilation, so it does not count against the budget
        else:
            used += seconds
        tried.append(Attempt(ladder[middle], gap, seconds))
        known[middle] = math.log10(max(gap, 1e-300) / target)
        if gap <= target:
            high = middle
        else:
            low = middle + 1
        guess = (low + high) // 2
        if rungs_per_decade is not None and len(tried) <= GUESSES:
            guess = _guess(known, middle, low, high, rungs_per_decade)
        middle = min(max(guess, low), high - 1)
    enough = [trial for trial in tried if trial.gap <= target]
    if enough:
        # Later attempts that were enough are looser, by the way the search goes.
        return Outcome(True, enough[-1], first, stopped)
    return Outcome(False, min(tried, key=lambda trial: trial.gap, default=None), first, stopped)


def _guess(known: dict[int, float], last: int, low: int, high: int, rungs_per_decade: float) -> int:
    """Return the rung where the gap should reach the target, by the line through the closest ones on both sides."""
    if low - 1 in known and high in known:
        above, below = known[low - 1], known[high]
        return low - 1 + math.ceil((high - low + 1) * above / (above - below))
    return last + math.ceil(rungs_per_decade * known[last])
