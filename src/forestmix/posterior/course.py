"""The course of a fit with full covariance: its trace, and the callback, which may stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from forestmix.arrays import Array
from forestmix.clock import WorkClock
from forestmix.inference.loop import Callback, Iteration
from forestmix.inference.progress import NoProgress

Step = TypeVar("Step")


class Stopped(Exception):  # noqa: N818 - a wish, not an error
    """The callback asked to stop."""


class Course:
    """What a fit tells on its way.

    Args:
        callback: called with an ``Iteration`` after each step, or ``None``.
        single: whether x is one observation without a leading axis.
        keeps: whether Ctrl-C ends the fit with what there is.

    Attributes:
        meter: shows how far the fit has come.

    """

    def __init__(self, callback: Callback | None = None, single: bool = True, keeps: bool = False) -> None:
        self.callback, self.single, self.keeps, self.clock = callback, single, keeps, WorkClock()
        self.meter = NoProgress()
        self.objectives: list[float] = []
        self.seconds: list[float] = []
        self.stopped = False

    def tell(self, objective: float, share: float, moments: Callable[[], tuple[Array, Array]]) -> bool:
        """Write down a step; return whether the callback asked to stop. ``moments``: means and variances, (N, m)."""
        self.objectives.append(objective)
        self.seconds.append(self.clock.seconds())
        count = len(self.objectives) - 1
        self.meter.share(f"{count}: objective {objective:.6g}", share)
        if self.callback is None or self.stopped:
            return self.stopped
        mean, variance = (np.atleast_2d(part) for part in moments())
        mean, sd = (part[0] if self.single else part for part in (mean, np.sqrt(variance)))
        info = Iteration(count, count, float(count), objective, np.nan, self.seconds[-1], mean, sd, share)
        self.stopped = self.callback(info) is True
        return self.stopped

    def attempt(self, step: Callable[[], Step]) -> Step | None:
        """Return what a step returns; ``None`` if Ctrl-C ended it and what there is is to be kept."""
        try:
            return step()
        except KeyboardInterrupt:
            if not self.keeps:
                raise
            self.stopped = True
            return None


def fallen(value: float, first: float, goal: float) -> float:
    """Return how much of the way from the first value to the goal is done, on the line of logarithms."""
    if not value > goal:
        return 1.0
    return float(np.clip(np.log(first / value) / max(np.log(first / goal), 1e-9), 0.0, 1.0))
