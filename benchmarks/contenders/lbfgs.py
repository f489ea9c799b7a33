"""SciPy's L-BFGS on the exact ELBO over means and log standard deviations, W and W∘W both stored."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from benchmarks.contenders.ours import FAMILIES
from benchmarks.problems.store import load

#: Correction pairs, and evaluations at most.
MEMORY, EVALUATIONS = 20, 20_000


class ExactElbo:
    """The strongest rival: no Monte Carlo, both products by BLAS, and forestmix's own compiled row expectations."""

    def __init__(self, folder: Path) -> None:
        problem = load(folder)
        self.problem, self.W, self.x = problem, problem.matrix, problem.x
        self.family = FAMILIES[problem.family]()
        self.squared = self.W.multiply(self.W).tocsr() if problem.is_sparse else self.W**2
        self.path: list[np.ndarray] = []

    def loss(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the negative ELBO and its gradient."""
        mean, log_sd = np.split(parameters, 2)
        variance = np.exp(2 * log_sd)
        centre = self.problem.bias + self.W @ mean
        with np.errstate(over="ignore", invalid="ignore"):
            rows = self.family.expectations(self.x, centre, np.sqrt(self.squared @ variance))
            prior = self.problem.prior_sd**-2
            ratio = variance * prior
            divergence = 0.5 * np.sum(prior * mean**2 + ratio - 1 - np.log(ratio))
            by_mean = prior * mean - self.W.T @ rows.error
            by_log_sd = ratio - 1 + variance * (self.squared.T @ rows.curvature)
            value = divergence - np.sum(rows.log_likelihood)
        return float(value), np.concatenate([by_mean, by_log_sd])

    def start(self) -> np.ndarray:
        """Return where forestmix starts, too: prior means, and a spread of at most 1 in every row."""
        m = self.W.shape[1]
        widest = float(np.max(abs(self.W).sum(axis=1))) * self.problem.prior_sd
        return np.concatenate([np.zeros(m), np.full(m, np.log(self.problem.prior_sd / max(widest, 1.0)))])

    def run(self, iterations: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd after so many iterations."""
        return self._pair(self._minimise(iterations, None))

    def explore(self, seconds: float) -> int:
        """Run to the end or so many seconds, keeping every iterate, and return how many there are."""
        self.path = [self.start()]
        began = time.perf_counter()

        def keep(parameters: np.ndarray) -> None:
            self.path.append(parameters.copy())
            if time.perf_counter() - began > seconds:
                raise StopIteration

        self._minimise(EVALUATIONS, keep)
        return len(self.path)

    def iterate(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd after so many iterations of the last exploration."""
        return self._pair(self.path[number])

    def _minimise(self, iterations: int, callback: object) -> np.ndarray:
        options = {"maxiter": iterations, "maxfun": EVALUATIONS, "maxcor": MEMORY, "ftol": 1e-14, "gtol": 1e-12}
        return minimize(self.loss, self.start(), jac=True, method="L-BFGS-B", callback=callback, options=options).x

    def _pair(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, log_sd = np.split(parameters, 2)
        return mean, np.exp(log_sd)
