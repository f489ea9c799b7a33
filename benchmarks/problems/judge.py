"""Independent judges: the ridge objective and the exact ELBO, in NumPy and SciPy with nothing of forestmix.

The expectation ``E log(1 + exp(m + s z))`` is summed by the trapezoidal rule, whose error falls like
``exp(-2 pi^2 / (s h))`` with the step ``h``, since the nearest poles of the logistic function are ``pi / s`` away.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import gammaln

from benchmarks.problems.store import Problem

#: Rows whose expectations are summed at once.
CHUNK = 4096
#: What may be missing from the least value of a ridge objective, relative to it, and how often to look.
SLACK, LOOK_EVERY = 5e-10, 25
#: Beyond this many standard deviations nothing is left of a normal density.
REACH = 9.0


class RidgeJudge:
    """``f(y) = |x - b - W y|^2 / (2 noise_sd^2) + |y|^2 / (2 prior_sd^2)``, and how far above its least value y is."""

    def __init__(self, problem: Problem) -> None:
        self.W, self.prior = problem.matrix, problem.prior_sd**-2
        self.noise = problem.noise_sd**-2
        self.target = problem.x - problem.bias
        self.least = self._least()

    def value(self, y: np.ndarray) -> float:
        """Return ``f(y)``."""
        residual = self.target - self.W @ y
        return float(0.5 * self.noise * residual @ residual + 0.5 * self.prior * y @ y)

    def gap(self, y: np.ndarray) -> float:
        """Return ``(f(y) - f*) / f*``, infinite for an answer that is not finite."""
        value = self.value(np.asarray(y, np.float64))
        return (value - self.least) / self.least if np.isfinite(value) else np.inf

    def _gradient(self, y: np.ndarray) -> np.ndarray:
        return self.prior * y - self.noise * (self.W.T @ (self.target - self.W @ y))

    def _least(self) -> float:
        """Return f* from below: ``f(y) - |gradient|^2 / (2 prior precision)`` cannot be above it, and is close."""
        m = self.W.shape[1]
        product = LinearOperator((m, m), lambda y: self.prior * y + self.noise * (self.W.T @ (self.W @ y)))
        bound, count = -np.inf, 0

        def look(y: np.ndarray) -> None:
            nonlocal bound, count
            count += 1
            if count % LOOK_EVERY == 0:
                bound, slack = self._lower_bound(y)
                if slack <= SLACK * abs(bound):
                    raise _CloseEnoughError

        with suppress(_CloseEnoughError):
            y, _ = cg(product, self.noise * (self.W.T @ self.target), rtol=1e-14, maxiter=100_000, callback=look)
            bound, _ = self._lower_bound(y)
        return bound

    def _lower_bound(self, y: np.ndarray) -> tuple[float, float]:
        gradient = self._gradient(y)
        slack = float(gradient @ gradient) / (2 * self.prior)
        return self.value(y) - slack, slack


class _CloseEnoughError(Exception):
    """The optimum is known well enough."""


class ElboJudge:
    """The ELBO of independent ``N(mean_j, sd_j^2)``."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.squared = problem.matrix.multiply(problem.matrix) if problem.is_sparse else problem.matrix**2

    def elbo(self, mean: np.ndarray, sd: np.ndarray) -> float:
        """Return the ELBO, minus infinity for an answer that is not finite."""
        problem = self.problem
        mean, sd = np.asarray(mean, np.float64), np.asarray(sd, np.float64)
        if not (np.isfinite(mean).all() and np.isfinite(sd).all() and (sd > 0).all()):
            return -np.inf
        centre = problem.bias + problem.matrix @ mean
        spread = np.sqrt(self.squared @ sd**2)
        with np.errstate(over="ignore"):
            rows = problem.x * centre - self._expected_partition(centre, spread)
        if problem.family == "poisson":
            rows = rows - gammaln(problem.x + 1)
        ratio = (sd / problem.prior_sd) ** 2
        divergence = 0.5 * np.sum((mean / problem.prior_sd) ** 2 + ratio - 1 - np.log(ratio))
        return float(np.sum(rows) - divergence)

    def gap(self, mean: np.ndarray, sd: np.ndarray, optimum: float) -> float:
        """Return the distance from the optimum relative to it."""
        return (optimum - self.elbo(mean, sd)) / abs(optimum)

    def _expected_partition(self, centre: np.ndarray, spread: np.ndarray) -> np.ndarray:
        if self.problem.family == "poisson":
            return np.exp(centre + 0.5 * spread**2)
        step = min(0.5, 0.6 / max(float(spread.max()), 1e-3))
        nodes = np.arange(-REACH, REACH + step, step)
        weights = np.exp(-0.5 * nodes**2)
        weights /= weights.sum()
        out = np.empty_like(centre)
        for start in range(0, len(centre), CHUNK):
            part = slice(start, start + CHUNK)
            out[part] = np.logaddexp(0.0, centre[part, None] + spread[part, None] * nodes) @ weights
        return out
