"""When a run ends, decided for each observation of a batch."""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.inference.problem import Point, Problem
from forestmix.result import Status

#: A run has stalled when neither objective nor gradient has improved for this many iterations and sweeps. Conjugate
#: gradients on ill-conditioned weights go for tens of iterations without a new least gradient, and then get there.
PATIENCE = 100
#: A run has diverged when its objective lies this many times its own size, plus as many nats, below the start.
DIVERGENCE = 10.0


class Stopping:
    """The stopping rules, and the little that they remember.

    Converged, when both hold, or the gradient norm is no more than what rounding leaves of it:

    - the objective changed by at most ``tol max(1, |objective|)``, or by no more than rounding;
    - the relative gradient norm is at most ``tol``: the larger of the gradient in the means, in posterior standard
      deviations, ``rms_j (gradient_j / sqrt(P_j))`` with ``P`` the precision of q at its optimum, and of the variances'
      ``rms_j (P_j sigma_j^2 - 1)``. The first says how many standard deviations each mean would still move by itself.

    Both norms stay the same when columns of W are rescaled. ``tol`` is raised to what rounding leaves of the gradient:
    32 units in the last place of its norm at the prior mean, and of 1.
    """

    def __init__(self, problem: Problem, start: Point, tol: float, monotone: bool, from_prior: bool) -> None:
        unit = 32 * float(np.finfo(problem.model.dtype).eps)
        # A start whose gradient overflows says nothing about rounding later on.
        largest = np.nan_to_num(problem.gradient_at_prior(start, from_prior), nan=1.0, posinf=1.0)
        self.floor = unit * np.maximum(1.0, largest)
        self.tol = np.maximum(tol, self.floor)
        self.monotone = monotone
        self.first = start.objective
        self.best = start.objective
        self.best_norm = problem.gradient_norm(start)
        self.idle = np.zeros(len(start.objective))
        self.idle_iterations = np.zeros(len(start.objective), int)

    def take(self, keep: Array) -> None:
        """Forget the observations that have finished."""
        for name in ("tol", "floor", "first", "best", "best_norm", "idle", "idle_iterations"):
            setattr(self, name, getattr(self, name)[keep])

    def check(self, old: Point, new: Point, norm: Array, sweeps: float) -> list[Status | None]:
        """Return how each observation ended, or ``None`` where it goes on."""
        change = np.abs(new.objective - old.objective)
        small = change <= np.maximum(self.tol * np.maximum(1.0, np.abs(new.objective)), new.rounding)
        converged = (small & (norm <= self.tol)) | (norm <= self.floor)
        finite = np.isfinite(new.objective)
        fell = new.objective < old.objective - old.rounding
        diverged = new.objective < self.first - DIVERGENCE * (1 + np.abs(self.first))
        stalled = self._stalled(new, norm, sweeps)
        below_best = new.objective < self.best - 10 * new.rounding
        ends: list[Status | None] = []
        for k in range(len(change)):
            if not finite[k]:
                ends.append(Status.NON_FINITE if self.monotone else Status.DIVERGED)
            elif self.monotone and fell[k]:
                ends.append(Status.DECREASED)
            elif not self.monotone and (diverged[k] or (stalled[k] and below_best[k])):
                ends.append(Status.DIVERGED)
            elif converged[k]:
                ends.append(Status.CONVERGED)
            else:
                ends.append(Status.STALLED if stalled[k] else None)
        return ends

    def _stalled(self, new: Point, norm: Array, sweeps: float) -> Array:
        improved = (new.objective > self.best + new.rounding) | (norm < self.best_norm)
        self.best = np.fmax(self.best, new.objective)
        self.best_norm = np.fmin(self.best_norm, norm)
        self.idle = np.where(improved, 0.0, self.idle + sweeps)
        self.idle_iterations = np.where(improved, 0, self.idle_iterations + 1)
        return (self.idle >= PATIENCE) & (self.idle_iterations >= PATIENCE)
