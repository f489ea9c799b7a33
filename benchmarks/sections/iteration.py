"""One plain forest mixture iteration, as sections that time it need it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numba
import numpy as np

import forestmix as fmx
from benchmarks.harness.rounds import clock
from forestmix.inference.rules import forest_mixture, step_all
from forestmix.kernels import threaded
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


@numba.njit(nogil=True, fastmath=True, cache=True)
def _sum(rows: Any, begin: int, end: int) -> float:
    """Return the sum of some rows, four at a time: one stream of loads would not use all of the memory's speed."""
    total = rows.dtype.type(0)
    for i in range(begin, end, 4):
        a, b, c, d = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for j in range(rows.shape[1]):
            total += (a[j] + b[j]) + (c[j] + d[j])
    return total


def reading(W: np.ndarray) -> Callable[[], float]:
    """Return a call that times reading W once, by adding up its entries on as many threads as an iteration has."""
    rows = W if W.flags.c_contiguous else W.T
    rows = rows[: len(rows) // 4 * 4]

    def read() -> None:
        cuts = 4 * threaded.even_cuts(len(rows) // 4, threaded.threads(rows.size))
        threaded.run_all([partial(_sum, rows, *bounds) for bounds in pairwise(cuts)])

    return lambda: clock(read)
