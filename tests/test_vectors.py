"""Loops that are written in LLVM's own vectors, against NumPy: every length, both precisions, any alignment."""

import numpy as np
import pytest
from numba import njit

from forestmix.kernels.gathers import gather_three, gather_two, scatter_three, scatter_two
from forestmix.kernels.lines import absolute_value, adder, dotter, itself, square

TERMS = [(itself, lambda w: w), (absolute_value, abs), (square, np.square)]
#: Around the width of a vector and of a line in either precision, and several of them with a rest.
LENGTHS = [0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 67]
PRECISIONS = pytest.mark.parametrize("dtype", [np.float64, np.float32])

_add, _dot = adder(*(term for term, _ in TERMS)), dotter(*(term for term, _ in TERMS))
_dot_one = dotter(itself)


@njit
def add(a, b, ahead, factors, first, second, third):
    f = factors
    _add((a, b), ahead, (f[0, 0], f[0, 1], f[1, 0], f[1, 1], f[2, 0], f[2, 1]), (first, second, third))


@njit
def dot(a, b, ahead, vectors):
    return _dot((a, b), ahead, (vectors[0], vectors[1], vectors[2]))


@njit
def dot_one(a, vector):
    return _dot_one((a,), (), (vector,))


def unaligned(rng, length, dtype):
    """Return numbers that begin in the middle of a vector."""
    return rng.standard_normal(length + 3).astype(dtype)[3:]


@PRECISIONS
@pytest.mark.parametrize("length", LENGTHS)
def test_rows_are_added_to_sums(length, dtype):
    rng = np.random.default_rng(length)
    a, b = (unaligned(rng, length, dtype) for _ in range(2))
    factors = rng.standard_normal((3, 2)).astype(dtype)
    held = rng.standard_normal((3, length + 2)).astype(dtype)
    sums = held.copy()
    add(a, b, (a, b), factors, *(row[1:-1] for row in sums))
    for k, (_, term) in enumerate(TERMS):
        expected = held[k, 1:-1] + factors[k, 0] * term(a.astype(float)) + factors[k, 1] * term(b.astype(float))
        np.testing.assert_allclose(sums[k, 1:-1], expected, rtol=50 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)
    np.testing.assert_array_equal(sums[:, [0, -1]], held[:, [0, -1]], "what lies beside the sums was written to")


@PRECISIONS
@pytest.mark.parametrize("length", LENGTHS)
def test_rows_are_multiplied_with_vectors(length, dtype):
    rng = np.random.default_rng(length)
    a, b = (unaligned(rng, length, dtype) for _ in range(2))
    vectors = rng.standard_normal((3, length)).astype(dtype)
    expected = [
        np.dot(term(row.astype(float)), v) for v, (_, term) in zip(vectors, TERMS, strict=True) for row in (a, b)
    ]
    tolerance = {"rtol": 1e2 * np.finfo(dtype).eps, "atol": (10 + length) * np.finfo(dtype).eps}
    for ahead in ((), (b,)):
        np.testing.assert_allclose(dot(a, b, ahead, vectors), expected, **tolerance)
    np.testing.assert_allclose(dot_one(a, vectors[0]), expected[:1], **tolerance)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_seen(bad):
    a, b, ones = np.ones(9), np.ones(9), np.ones((3, 9))
    a[4] = bad
    sums = np.zeros((3, 9))
    add(a, b, (), np.ones((3, 2)), *sums)
    assert not np.isfinite(sums[:, 4]).any()
    assert np.isfinite(np.delete(sums, 4, axis=1)).all()
    assert np.isfinite(dot(a, b, (), ones)).tolist() == [False, True] * 3


def test_rows_with_gaps_are_refused():
    with pytest.raises(TypeError, match="contiguous"):
        dot(np.ones(8)[::2], np.ones(8)[::2], (), np.ones((3, 4)))


@njit
def gather(columns, values, first, last, pairs):
    two = gather_two(columns, values, first, last, pairs)
    return two, gather_three(columns, values, first, last, pairs)


@njit
def scatter(columns, values, first, last, factors, two, three):
    scatter_two(columns, values, first, last, factors[0], factors[1], two)
    scatter_three(columns, values, first, last, factors[0], factors[1], factors[2], three)


@PRECISIONS
@pytest.mark.parametrize("index", [np.uint32, np.uint64])
@pytest.mark.parametrize("count", range(10))
def test_entries_of_a_sparse_row(count, index, dtype):
    rng = np.random.default_rng(count)
    latents, first = 20, 3
    columns = np.sort(rng.choice(latents, count + 5, replace=False)).astype(index)
    values = rng.standard_normal(count + 5).astype(dtype)
    row = np.zeros(latents)
    row[columns[first : first + count]] = values[first : first + count]
    mean, sd = rng.standard_normal(latents).astype(dtype), rng.random(latents).astype(dtype)
    pairs = np.stack([mean, sd], axis=1).ravel()
    tolerance = {"rtol": 100 * np.finfo(dtype).eps, "atol": 10 * np.finfo(dtype).eps}
    two, three = gather(columns, values, first, first + count, pairs)
    expected = [row @ mean, abs(row) @ sd, row**2 @ sd.astype(float) ** 2]
    np.testing.assert_allclose(two, expected[:2], **tolerance)
    np.testing.assert_allclose(three, expected, **tolerance)

    factors = rng.standard_normal(3).astype(dtype)
    of_two, of_three = (rng.standard_normal((latents, width)).astype(dtype) for width in (2, 4))
    added = np.stack([row * factors[0], abs(row) * factors[1], row**2 * factors[2], 0 * row], axis=1)
    held = of_two.copy(), of_three.copy()
    scatter(columns, values, first, first + count, factors, of_two.reshape(-1), of_three.reshape(-1))
    np.testing.assert_allclose(of_two, held[0] + added[:, :2], **tolerance)
    np.testing.assert_allclose(of_three, held[1] + added, **tolerance)
    untouched = np.setdiff1d(np.arange(latents), columns[first : first + count])
    np.testing.assert_array_equal(of_three[untouched], held[1][untouched])
