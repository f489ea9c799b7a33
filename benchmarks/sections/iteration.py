"""One plain forest mixture iteration, as sections that time it need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import forestmix as fmx
from benchmarks.harness.rounds import clock
from forestmix.inference.rules import forest_mixture, step_all
from forestmix.model import observations
from forestmix.posterior import GaussianFactors

FAMILIES = {"Gaussian": fmx.Gaussian(1.0), "Bernoulli": fmx.Bernoulli(), "Poisson": fmx.Poisson()}


def full_iteration(W: Any, family: str = "Gaussian", objective: str = "elbo") -> Callable[[], float]:
    """Return a call that times one full iteration: value, gradient, information, curvature, and the step.

    Every call gets factors of its own, so that nothing computed for the last one is taken over.
    """
    model = fmx.DEF(fmx.Layer(FAMILIES[family], W))
    rng = np.random.default_rng(0)
    n, m = model.n_observed, model.n_latent
    x = rng.standard_normal(n) if family == "Gaussian" else rng.integers(0, 2, n)
    problem = fmx.ForestMixture(accelerate=False, objective=objective).problem(model, observations(model, x))
    scale = model.dtype.type(1e-2 / max(1.0, float(np.sqrt(m))))
    mean = scale * rng.standard_normal((1, m)).astype(model.dtype)
    sd = np.full((1, m), scale, model.dtype)

    def iterate() -> None:
        point = problem.evaluate(GaussianFactors(mean.copy(), sd.copy()))
        step_all(problem, point, forest_mixture)

    return lambda: clock(iterate)


def mean_only_iteration(W: Any, iterations: int = 12) -> Callable[[], float]:
    """Return a call that gives the median seconds of a conjugate gradient iteration on the means alone."""
    model = fmx.DEF(fmx.Layer(FAMILIES["Gaussian"], W))
    x = np.random.default_rng(0).standard_normal(model.n_observed)

    def run() -> float:
        trace = fmx.infer(model, x, tol=1e-15, max_iter=iterations, accelerate="cg").trace
        return float(np.median(np.diff(trace.seconds)[3:]))

    return run


@numba.njit(parallel=True, fastmath=True, cache=True)
def _sum(flat: Any, pieces: int) -> float:
    length = flat.size // pieces
    total = 0.0
    for piece in numba.prange(pieces):
        part = flat.dtype.type(0)
        for entry in flat[piece * length : (piece + 1) * length]:
            part += entry
        total += part
    return total


def reading(W: np.ndarray) -> Callable[[], float]:
    """Return a call that times reading W once, by adding up its entries on all threads."""
    flat = W.ravel(order="K")
    return lambda: clock(lambda: _sum(flat, numba.get_num_threads()))
