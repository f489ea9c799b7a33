"""Convolutions: three products at once, by sums over taps or by matrix products, in bands and on threads."""

from __future__ import annotations

import numpy as np
import pytest

from forestmix.engines.compiled import convolution as kernel
from forestmix.engines.compiled import threaded
from forestmix.weights import Convolution, convolution
from weights_registry import WEIGHTS, random_kernels
from weights_registry import convolution as placed

CASES = {name: factory for name, factory in WEIGHTS.items() if name.startswith("convolution")} | {
    "several bands": lambda: placed(2, 5, 3, image=(30, 4)),
    "several bands, float32": lambda: placed(3, 2, 3, 3, image=(2, 11, 9), dtype=np.float32),
    "several groups of channels": lambda: placed(9, 5, 3, 3, image=(5, 4, 6)),
    "several groups, overlapping": lambda: placed(6, 5, 4, 2, image=(5, 6, 3), placement="overlapping"),
    "many channels and kernels": lambda: placed(34, 33, 3, 1, image=(33, 4, 3)),
}
#: For how many channels and kernels sums over taps are used, and on how many threads.
WAYS = {"taps": (10**9, 1), "taps on threads": (10**9, 3), "matrices": (0, 1)}


@pytest.fixture(params=CASES)
def case(request, monkeypatch):
    monkeypatch.setattr(kernel, "BAND", 40)
    return CASES[request.param]()


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    few, count = WAYS[request.param]
    monkeypatch.setattr(convolution, "FEW", few)
    monkeypatch.setattr(threaded, "threads", lambda entries: count)


def batch(weights, count, axis, seed):
    return np.random.default_rng(seed).normal(size=(count, weights.shape[axis])).astype(weights.dtype)


def assert_products(results, factors, matrix):
    for result, factor, entries in zip(results, factors, (matrix, np.abs(matrix), np.square(matrix)), strict=True):
        if factor is None:
            assert result is None
            continue
        assert result.dtype == matrix.dtype
        expected = factor.astype(np.float64) @ entries.astype(np.float64)
        size = np.abs(factor.astype(np.float64)) @ np.abs(entries.astype(np.float64))
        assert result.shape == expected.shape
        assert np.all(np.abs(result - expected) <= 4 * len(matrix) ** 0.5 * np.finfo(matrix.dtype).eps * size)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("absolute", "squared"), [(False, False), (False, True), (True, True)])
def test_project(case, way, absolute, squared, shared):
    weights, matrix = case
    mean, sd = batch(weights, 3, 1, 0), np.abs(batch(weights, 1 if shared else 3, 1, 1))
    results = weights.project(mean, sd, absolute=absolute, squared=squared)
    assert_products(results, (mean, sd if absolute else None, sd**2 if squared else None), matrix.T)
    assert_products(weights.project(None, sd, absolute=True), (None, sd, None), matrix.T)
    assert_products(weights.project(mean[:1]), (mean[:1], None, None), matrix.T)


@pytest.mark.parametrize("given", [(3, 3, 3), (2, 1, None), (None, 1, 4), (0, None, 0)])
def test_collect(case, way, given):
    weights, matrix = case
    factors = [None if count is None else batch(weights, count, 0, seed) for seed, count in enumerate(given)]
    assert_products(weights.collect(*factors), factors, matrix)


def test_numbers_do_not_depend_on_threads(monkeypatch):
    weights = Convolution(random_kernels(5, 3, 5, 7), (3, 90, 70))
    values, results = batch(weights, 2, 1, 0), []
    for count in (1, 2, 3):
        monkeypatch.setattr(threaded, "threads", lambda entries, count=count: count)
        results.append(weights.project(values, np.abs(values[:1]), absolute=True, squared=True))
    for other in results[1:]:
        for first, second in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(first, second)


def test_arguments_may_be_read_only_strided_and_of_another_type():
    weights, matrix = placed(2, 3, 3)
    mean = np.broadcast_to(np.float32(0.5), (2, 2 * weights.shape[1]))[:, ::2]
    np.testing.assert_allclose(weights.project(mean).linear, np.full((2, matrix.shape[1]), 0.5) @ matrix.T, atol=1e-14)


def test_a_bad_value_reaches_only_the_results_it_enters():
    weights, matrix = placed(2, 3, 3, image=(9, 8))
    values = np.ones((2, weights.shape[1]))
    values[1, 20] = np.nan
    touched = np.isnan(weights.forward(values))
    np.testing.assert_array_equal(touched, [np.zeros(len(matrix), bool), matrix[:, 20] != 0])
