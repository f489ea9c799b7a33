"""Runs that take turns, and what is made of their times: medians, and ratios within a round."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

Rounds = dict[str, list[float | None]]
#: Seconds for which a short run is made again and again within a round.
SHORT = 0.3
#: Seconds between two contenders, in which threads that still wait for work in a loop, as those of BLAS do, give up.
PAUSE = 0.1


@dataclass(frozen=True)
class Spread:
    """The median of some numbers, with the least and the largest."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of at least one value."""
        numbers = list(values)
        return cls(median(numbers), min(numbers), max(numbers))

    def text(self, unit: str = "") -> str:
        """Return e.g. ``1.25x (1.2 to 1.3)``."""
        if math.isclose(self.low, self.high):
            return f"{short(self.middle)}{unit}"
        return f"{short(self.middle)}{unit} ({short(self.low)} to {short(self.high)})"


def short(value: float) -> str:
    """Return a number with three digits that matter, without an exponent where it can be read without."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1e7 or abs(value) < 1e-4:
        return f"{value:.1e}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def seconds_text(seconds: float | None) -> str:
    """Return a time in the unit that suits it, or a dash."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{short(seconds / scale)} {unit}"
    return f"{short(seconds / 1e-6)} us"


def clock(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes in this process."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def typical(run: Callable[[], float], seconds: float) -> Callable[[], float]:
    """Return a run that gives the median of several if one takes few seconds: a short one may be hit by anything."""
    count = min(9, max(1, int(SHORT / seconds)))
    return lambda: median(run() for _ in range(count))


def take_turns(
    contenders: dict[str, Callable[[], float]], repeats: int, allowance: float = math.inf, spare: float = 0.0,
    pause: float = 0.0,
) -> Rounds:  # fmt: skip
    """Run every contender once in each round; a contender that has used up its allowance sits out.

    Args:
        contenders: each runs once and returns the seconds it took.
        repeats: the number of rounds.
        allowance: seconds a contender may use in all; the run that exceeds it still counts.
        spare: seconds within which there are more rounds, up to three times as many.
        pause: seconds between two contenders.

    """
    rounds: Rounds = {name: [] for name in contenders}
    end = time.perf_counter() + spare
    for number in range(3 * repeats):
        if number >= repeats and time.perf_counter() > end:
            break
        for name, run in contenders.items():
            time.sleep(pause)
            used = sum(seconds for seconds in rounds[name] if seconds is not None)
            rounds[name].append(run() if used < allowance else None)
    return rounds


def times(rounds: Rounds, name: str) -> Spread:
    """Return the spread of a contender's seconds."""
    return Spread.of(seconds for seconds in rounds[name] if seconds is not None)


def ratios(rounds: Rounds, name: str, reference: str) -> Spread:
    """Return the spread of a contender's seconds over the reference's in the same round."""
    pairs = zip(rounds[name], rounds[reference], strict=True)
    return Spread.of(mine / theirs for mine, theirs in pairs if mine is not None and theirs is not None)
