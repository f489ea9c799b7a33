"""One plain forest mixture iteration, as sections that time it need it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numba
import numpy as np

import forestmix as fmx
from benchmarks.harness.rounds import clock
from forestmix.engines.choice import choose_engine
from forestmix.engines.compiled import threaded
from forestmix.engines.compiled.tiles import ROWS, add_three, dot_three
from forestmix.model import observations

FAMILIES = {"Gaussian": fmx.Gaussian(1.0), "Bernoulli": fmx.Bernoulli(), "Poisson": fmx.Poisson()}


def full_iteration(W: Any, family: str = "Gaussian", objective: str = "elbo") -> Callable[[], float]:
    """Return a call that times one full iteration of a run: the step, then value, gradient, information and curvature.

    Calls go on from each other as the iterations of a run do, but take no curvature over from the last one, which for
    Gaussian rows need not be computed again.
    """
    model = fmx.DEF(fmx.Layer(FAMILIES[family], W))
    rng = np.random.default_rng(0)
    n, m = model.n_observed, model.n_latent
    x = rng.standard_normal(n) if family == "Gaussian" else rng.integers(0, 2, n)
    algorithm = fmx.ForestMixture(accelerate=False, objective=objective)
    problem = algorithm.problem(model, observations(model, x), choose_engine("compiled", model, 1))
    scale = model.dtype.type(1e-2 / max(1.0, float(np.sqrt(m))))
    mean = scale * rng.standard_normal((1, m)).astype(model.dtype)
    point = problem.evaluate(problem.start((mean, np.full((1, m), scale, model.dtype))))

    steps = algorithm.start(problem, point)

    def iterate() -> float:
        nonlocal point
        begin = time.perf_counter()
        point = problem.evaluate(steps.propose(problem, point).q)
        return time.perf_counter() - begin

    return iterate


def mean_only_iteration(W: Any, iterations: int = 8) -> Callable[[], float]:
    """Return a call that gives the median seconds of a conjugate gradient iteration on the means alone."""
    model = fmx.DEF(fmx.Layer(FAMILIES["Gaussian"], W))
    x = np.random.default_rng(0).standard_normal(model.n_observed)

    def run() -> float:
        trace = fmx.infer(model, x, tol=1e-15, max_iter=iterations, accelerate="cg").trace
        return float(np.median(np.diff(trace.seconds)[3:]))

    return run


@numba.njit(nogil=True, fastmath=True, cache=True)
def _sum(rows: Any, begin: int, end: int) -> float:
    total = rows.dtype.type(0)
    for i in range(begin, end):
        row = rows[i]
        for j in range(row.shape[0]):
            total += row[j]
    return total


@numba.njit(nogil=True, cache=True)
def _products(rows: Any, begin: int, end: int) -> float:
    m, factors = rows.shape[1], np.ones((3, ROWS), rows.dtype)
    vectors, sums = np.ones((3, m), rows.dtype), np.ones((3, m), rows.dtype)
    for _ in range(begin, end, ROWS):
        dot_three(rows, (begin, end, 0, m), 0, vectors, factors, 0)
        add_three(rows, (begin, end, 0, m), 0, factors, 0, sums)
    return float(sums[0, 0])


@numba.njit(nogil=True, fastmath=True, cache=True)
def _multiply(numbers: Any, begin: int, end: int) -> None:
    for _ in range(begin, end):
        for j in range(numbers.shape[0]):
            numbers[j] = numbers[j] * 0.999 + 0.001


def _on_threads(kernel: Callable[..., object], arrays: Sequence[np.ndarray], length: int) -> Callable[[], float]:
    """Return a call that times a kernel on as many threads as an iteration has, each with an array and a range."""

    def run() -> None:
        cuts = threaded.even_cuts(length, threaded.threads(2**30))
        ranges = zip(arrays, pairwise(cuts), strict=False)
        threaded.run_all([partial(kernel, array, *bounds) for array, bounds in ranges])

    return lambda: clock(run)


def reading(W: np.ndarray) -> Callable[[], float]:
    """Return a call that times reading W once, by adding up its entries in a plain loop."""
    rows = W if W.flags.c_contiguous else W.T
    return _on_threads(_sum, [rows] * numba.config.NUMBA_NUM_THREADS, len(rows))


def products_in_cache(W: np.ndarray, objective: str) -> Callable[[], float]:
    """Return a call that times the products of an iteration with Bernoulli rows, were W in the second-level cache.

    Each thread takes its first tile again and again, as many times as it has tiles.
    """
    rows = W if W.flags.c_contiguous else W.T
    return _on_threads(_products, [rows] * numba.config.NUMBA_NUM_THREADS, len(rows))


def arithmetic() -> Callable[[], float]:
    """Return a call that times multiplications and additions of numbers in the first-level cache."""
    return _on_threads(_multiply, [np.ones(1024) for _ in range(numba.config.NUMBA_NUM_THREADS)], 200_000)
