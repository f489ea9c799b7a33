"""The course of a fit: what it tells after each sweep, and whether somebody asked it to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from forestmix.arrays import Array
from forestmix.clock import WorkClock
from forestmix.forest.parameters import log_jacobian
from forestmix.inference.loop import Callback, Iteration
from forestmix.model import Observations

if TYPE_CHECKING:
    from forestmix.forest.engines import State


def silent(line: str) -> None:
    """Say nothing."""


class Course:
    """What a fit tells on its way.

    The work is a number of parts, such as a start, a larger move, or learning the leaves of a family. How many there
    will be is a guess, so the share of the work that is done is one too; it never falls.

    Args:
        callback: called with an ``Iteration`` after each sweep, or ``None``; True asks the fit to stop.
        report: called with a line for each start, move or epoch.

    ``scale``: of each variable, which the data are divided by; the ELBO is told for the data as they were given.
    ``stopped``: whether the callback asked to stop.

    """

    def __init__(self, callback: Callback | None = None, report: Callable[[str], None] = silent) -> None:
        self.callback, self.report, self.clock = callback, report, WorkClock()
        self.scale: Array = np.ones(1)
        self.stopped = False
        self.sweeps, self.share = 0, 0.0
        self._planned, self._done, self._part = 0.0, 0.0, 0.0

    def plan(self, parts: float) -> None:
        """Add parts to the work that is expected."""
        self._planned += parts

    def begin(self, part: float = 1.0) -> None:
        """Begin a part of the work, which counts as so many; the one before it is done."""
        self._done, self._part = self._done + self._part, part

    def tell(self, state: State, data: Observations, within: float = 0.0) -> bool:
        """Tell of a sweep, after which so much of its part is done; return whether the fit is to stop."""
        self.sweeps += 1
        if self.callback is None or self.stopped:
            return self.stopped
        done = (self._done + within * self._part) / max(self._planned, 1.0)
        self.share = max(self.share, min(done, 1.0))
        mean = state.latents.mean
        info = Iteration(
            iteration=self.sweeps,
            step=self.sweeps,
            sweeps=float(self.sweeps),
            objective=state.value - log_jacobian(data, self.scale),
            gradient_norm=np.nan,
            seconds=self.clock.seconds(),
            mean=mean,
            sd=np.broadcast_to(state.latents.sd, mean.shape),
            share=self.share,
        )
        self.stopped = self.callback(info) is True
        return self.stopped
