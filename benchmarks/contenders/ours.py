"""forestmix as a user calls it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import forestmix as fmx
from benchmarks.problems.store import Problem, load

FAMILIES = {"gaussian": fmx.Gaussian, "bernoulli": fmx.Bernoulli, "poisson": fmx.Poisson}


def model_of(problem: Problem) -> fmx.DEF:
    """Return the forestmix model of a problem; a blur is given as the convolution that it is."""
    family = fmx.Gaussian(problem.noise_sd) if problem.family == "gaussian" else FAMILIES[problem.family]()
    if problem.kernel is not None and problem.image_shape is not None:
        weights: Any = fmx.Convolution(problem.kernel, problem.image_shape, "centred")
    else:
        weights = problem.matrix
    layer = fmx.Layer(family, weights, np.full(problem.shape[0], problem.bias))
    return fmx.DEF(layer, prior=fmx.Prior(fmx.Gaussian(problem.prior_sd)))


class Forestmix:
    """``fmx.infer`` with a named algorithm; checking the arguments and building the model is part of its time."""

    def __init__(self, folder: Path, algorithm: str = "fm") -> None:
        self.problem, self.algorithm = load(folder), algorithm
        self.path: list[tuple[np.ndarray, np.ndarray]] = []

    def run(self, tolerance: float = 1e-6, iterations: int | None = 100_000) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd."""
        result = fmx.infer(
            model_of(self.problem), self.problem.x, self.algorithm, tol=tolerance, max_iter=iterations
        )  # fmt: skip
        return result.mean, result.sd

    def explore(self, seconds: float) -> int:
        """Run to the end or so many seconds, keeping every iterate, and return how many there are."""
        self.path = []
        began = time.perf_counter()

        def keep(info: Any) -> bool:
            self.path.append((info.mean, info.sd))
            return time.perf_counter() - began > seconds

        fmx.infer(model_of(self.problem), self.problem.x, self.algorithm, tol=1e-12, callback=keep)
        return len(self.path)

    def iterate(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd after so many iterations of the last exploration."""
        return self.path[number]
