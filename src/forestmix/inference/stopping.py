"""When a run ends, decided for each observation of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.inference.base import Memory
from forestmix.inference.status import Status

#: A run has stalled when neither objective nor gradient has improved for this many iterations and sweeps. Conjugate
#: gradients on ill-conditioned weights go for tens of iterations without a new least gradient, and then get there.
PATIENCE = 100
#: A run has diverged when its objective lies this many times its own size, plus as many nats, below the start.
DIVERGENCE = 10.0
#: Posterior standard deviations that a mean may be from the optimum in a result called converged, in either precision.
FARTHEST = {np.dtype(np.float64): 0.002, np.dtype(np.float32): 0.1}
#: ``tol`` is raised to this many units in the last place.
LEAST_UNITS = 32
#: A relative gradient norm above this is not small, whatever rounding is: such a run goes on.
SMALL = 1e-3


class Stopping(Memory):
    """The stopping rules, and the little that they remember.

    Converged, when all of these hold:

    - the relative gradient norm is at most ``tol``, or what rounding leaves of it at the point itself: the larger of
      the gradient in the means, in posterior standard deviations, ``rms_j (gradient_j / sqrt(P_j))`` with ``P`` the
      precision of q at its optimum, and of the variances' ``rms_j (P_j sigma_j^2 - 1)``;
    - no mean can be further than ``FARTHEST`` posterior standard deviations from the optimum. The prior gives a bound
      on that for nothing, ``Problem.distance``; where it is too weak, a factor of the matrix says it exactly
      (``problem.newton_system``), if that is affordable, and else the run goes on;
    - the objective changed by at most ``tol max(1, |objective|)`` or by no more than rounding, or by the same bound
      cannot rise by more.

    The norms stay the same when columns of W are rescaled. With ``tol=0`` a run ends at ``max_iter``.
    """

    def __init__(self, problem: Any, start: Any, tol: float, monotone: bool) -> None:
        dtype = problem.model.dtype
        self._endless, self._tol = tol == 0, max(tol, LEAST_UNITS * float(np.finfo(dtype).eps))
        self._farthest = max(FARTHEST[dtype], self._tol)
        self._monotone = monotone
        self.first = start.objective
        self.best = start.objective
        self.best_norm = problem.gradient_norm(start)
        self.idle = np.zeros(len(start.objective))
        self.idle_iterations = np.zeros(len(start.objective), int)
        self.near_iterations = np.zeros(len(start.objective), int)

    def check(self, problem: Any, old: Any, new: Any, norm: Array, sweeps: float) -> Array:
        """Return how each observation ended, the gravest status that applies, or ``None`` where it goes on."""
        finite = np.isfinite(new.objective)
        fell = new.objective < old.objective - (old.rounding + new.rounding)
        diverged = new.objective < self.first - DIVERGENCE * (1 + np.abs(self.first))
        idle = self._idle(new, norm, sweeps)
        below_best = new.objective < self.best - 10 * new.rounding
        ending = np.zeros_like(finite) if self._endless else finite
        converged = self._converged(problem, old, new, norm, ending)
        stalled = idle & ending & ~converged
        if stalled.any() and self._monotone:
            stalled &= norm <= np.maximum(SMALL, 10 * problem.gradient_rounding(new)) if not new.carried else False
        ends = np.full(len(norm), None, dtype=object)
        ends[stalled], ends[converged] = Status.STALLED, Status.CONVERGED
        ends[fell if self._monotone else diverged | (idle & below_best)] = (
            Status.DECREASED if self._monotone else Status.DIVERGED
        )
        ends[~finite] = Status.NON_FINITE if self._monotone else Status.DIVERGED
        return ends

    def _converged(self, problem: Any, old: Any, new: Any, norm: Array, ending: Array) -> Array:
        near = ending & (norm <= self._tol)
        self.near_iterations = np.where(near, self.near_iterations + 1, 0)
        bound = np.full(len(norm), np.inf)
        if near.any():
            bound = np.where(near, problem.distance(new, exactly=False), np.inf)
        scale = np.maximum(1.0, np.abs(new.objective))
        change = np.abs(new.objective - old.objective)
        quiet = change <= np.maximum(self._tol * scale, new.rounding)
        converged = near & (bound <= self._farthest) & (quiet | (0.5 * bound**2 <= self._tol * scale))
        # What follows costs passes over W, so it is asked at the first, second, fourth, eighth ... chance.
        waited = np.maximum(self.idle_iterations, self.near_iterations)
        due = ending & ~converged & (waited > 0) & (waited & (waited - 1) == 0)
        if new.carried or not due.any():
            return converged
        due &= near | (norm <= problem.gradient_rounding(new))
        if not due.any():
            return converged
        return converged | (due & (problem.distance(new, exactly=True) <= self._farthest))

    def _idle(self, new: Any, norm: Array, sweeps: float) -> Array:
        """Return whether neither objective nor gradient has improved for long."""
        improved = (new.objective > self.best + new.rounding) | (norm < self.best_norm)
        self.best = np.fmax(self.best, new.objective)
        self.best_norm = np.fmin(self.best_norm, norm)
        self.idle = np.where(improved, 0.0, self.idle + sweeps)
        self.idle_iterations = np.where(improved, 0, self.idle_iterations + 1)
        return (self.idle >= PATIENCE) & (self.idle_iterations >= PATIENCE)
