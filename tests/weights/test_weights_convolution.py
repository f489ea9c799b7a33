"""Convolutions as matrix products: in chunks of the batch, with and without zero kernels, and their entry maps."""

from __future__ import annotations

import numpy as np
import pytest

from forestmix.weights import convolution
from support.weights_registry import WEIGHTS
from support.weights_registry import convolution as placed

CASES = {name: factory for name, factory in WEIGHTS.items() if name.startswith("convolution")} | {
    "a tall image": lambda: placed(2, 5, 3, image=(30, 4)),
    "several channels, float32": lambda: placed(3, 2, 3, 3, image=(2, 11, 9), dtype=np.float32),
    "more kernels than channels": lambda: placed(9, 5, 3, 3, image=(5, 4, 6)),
    "overlapping, several channels": lambda: placed(6, 5, 4, 2, image=(5, 6, 3), placement="overlapping"),
    "many channels and kernels": lambda: placed(34, 33, 3, 1, image=(33, 4, 3)),
}
MAPS = {
    "W": (lambda w: w, lambda a: a),
    "abs": (abs, np.abs),
    "square": (lambda w: w.square(), np.square),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]()


@pytest.fixture(params=[2**23, 500], ids=["one chunk", "many chunks"])
def chunks(request, monkeypatch):
    monkeypatch.setattr(convolution, "CHUNK_BYTES", request.param)


def batch(weights, count, axis, seed):
    return np.random.default_rng(seed).normal(size=(count, weights.shape[axis])).astype(weights.dtype)


def assert_product(result, factor, matrix):
    """Compare with the product in float64, to the rounding that a sum of its terms has."""
    assert result.dtype == matrix.dtype
    factor, entries = factor.astype(np.float64), matrix.astype(np.float64)
    expected, size = factor @ entries, np.abs(factor) @ np.abs(entries)
    assert result.shape == expected.shape
    assert np.all(np.abs(result - expected) <= 4 * len(matrix) ** 0.5 * np.finfo(matrix.dtype).eps * size)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_products(case, chunks, name, count):
    weights, matrix = case[0], MAPS[name][1](case[1])
    mapped = MAPS[name][0](weights)
    y, r = batch(weights, count, 1, 0), batch(weights, count, 0, 1)
    assert_product(mapped.forward(y), y, matrix.T)
    assert_product(mapped.adjoint(r), r, matrix)


def test_arguments_may_be_read_only_strided_and_of_another_type():
    weights, matrix = placed(2, 3, 3)
    mean = np.broadcast_to(np.float32(0.5), (2, 2 * weights.shape[1]))[:, ::2]
    np.testing.assert_allclose(weights.forward(mean), np.full((2, matrix.shape[1]), 0.5) @ matrix.T, atol=1e-14)


def test_a_bad_observation_leaves_the_others_alone():
    weights, _ = placed(2, 3, 3, image=(9, 8))
    values = np.ones((3, weights.shape[1]))
    values[1, 20] = np.nan
    touched = np.isnan(weights.forward(values)).any(axis=1)
    np.testing.assert_array_equal(touched, [False, True, False])
