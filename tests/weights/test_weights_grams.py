"""What weights give besides products: grams, dense rows, entries and stored arrays, each held to the dense twin."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from forestmix.errors import ArgumentError
from forestmix.weights import ChunkedWeights, DenseWeights, SparseColumnWeights, SparseWeights, as_weights, blocks
from forestmix.weights.arrays import ArrayWeights
from forestmix.weights.storage import DenseStorage, SparseStorage, StencilStorage
from support.array_libraries import LIBRARIES, namespace
from support.weights_registry import WEIGHTS


@pytest.fixture(params=WEIGHTS)
def case(request):
    return WEIGHTS[request.param]()


@pytest.fixture(params=[2**26, 100], ids=["one block", "many blocks"])
def budget(request, monkeypatch):
    monkeypatch.setattr(blocks, "MEMORY_BUDGET", request.param)


def positive(size, seed=0):
    """Return positive numbers, one of them zero: a row that takes no part."""
    values = np.random.default_rng(seed).gamma(2.0, size=size)
    values[size // 2] = 0
    return values


def assert_lower(actual, expected):
    assert actual.dtype == np.float64
    assert actual.flags.f_contiguous
    assert actual.shape == expected.shape
    np.testing.assert_allclose(np.tril(actual), np.tril(expected), rtol=1e-13, atol=1e-13 * np.abs(expected).max())


def test_gram(case, budget):
    weights, matrix = case
    W, kappa = matrix.astype(np.float64), positive(len(matrix))
    assert_lower(weights.gram(kappa), W.T @ np.diag(kappa) @ W)


def test_row_gram(case, budget):
    weights, matrix = case
    W, scale = matrix.astype(np.float64), positive(matrix.shape[1])
    assert_lower(weights.row_gram(scale), W @ np.diag(scale) @ W.T)


@pytest.mark.parametrize("convert", [sparse.csr_array, sparse.csc_array, np.asarray])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(200, 60), (60, 200)])
def test_grams_of_few_entries(convert, dtype, shape, budget):
    """At a density of 0.02 sparse weights take the product of sparse matrices."""
    dense = sparse.random_array(shape, density=0.02, rng=np.random.default_rng(1)).toarray().astype(dtype)
    weights, W = as_weights(convert(dense)), dense.astype(np.float64)
    kappa, scale = positive(shape[0]), positive(shape[1])
    assert_lower(weights.gram(kappa), W.T @ np.diag(kappa) @ W)
    assert_lower(weights.row_gram(scale), W @ np.diag(scale) @ W.T)


def test_weighted_rows(case, budget):
    weights, matrix = case
    kappa = positive(len(matrix))
    parts = list(weights.weighted_rows(kappa))
    assert all(part.dtype == np.float64 for part in parts)
    np.testing.assert_array_equal(np.concatenate(parts), np.sqrt(kappa)[:, None] * matrix)


def test_chosen_rows(case):
    weights, matrix = case
    for chosen in ([len(matrix) - 1, 0, 0], np.arange(len(matrix))):
        dense, taken = weights.dense_rows(chosen), weights.take_rows(chosen)
        assert dense.dtype == np.float64
        np.testing.assert_array_equal(dense, matrix[chosen])
        assert taken.dtype == weights.dtype
        np.testing.assert_array_equal(taken.toarray(), matrix[chosen])
        if isinstance(weights, DenseWeights | SparseWeights | SparseColumnWeights):
            assert type(taken) is type(weights)
    for choose in (weights.dense_rows, weights.take_rows):
        with pytest.raises(ArgumentError, match="indices of rows must lie in"):
            choose([len(matrix)])


def test_entries_are_sorted(case):
    weights, matrix = case
    row, column, value = weights.entries()
    np.testing.assert_array_equal([row, column], np.nonzero(matrix))
    np.testing.assert_array_equal(value, matrix[row, column])
    assert value.dtype == weights.dtype


def test_like_has_the_form_of_the_weights(case):
    weights, matrix = case
    row, column, value = weights.entries()
    made = weights.like(row, column, value + 1)
    assert isinstance(made, np.ndarray if isinstance(weights, DenseWeights) else sparse.csr_array)
    expected = np.where(matrix != 0, matrix + 1, 0)
    np.testing.assert_array_equal(made if isinstance(made, np.ndarray) else made.toarray(), expected)


def test_stored_counts_what_a_product_reads(case):
    weights, matrix = case
    if isinstance(weights, ChunkedWeights):
        assert np.count_nonzero(matrix) <= weights.stored <= matrix.size
    else:
        assert weights.stored == (matrix.size if isinstance(weights, DenseWeights) else np.count_nonzero(matrix))


def matrix_of(storage):
    """Return the matrix that stored arrays stand for, from their definition."""
    if isinstance(storage, DenseStorage):
        assert storage.array.flags.c_contiguous
        return storage.array.T if storage.transposed else storage.array
    if isinstance(storage, SparseStorage):
        shape = (len(storage.indptr) - 1, int(storage.indices.max(initial=0)) + 1)
        matrix = sparse.csr_array((storage.data, storage.indices, storage.indptr), shape).toarray()
        return matrix.T if storage.transposed else matrix
    raise TypeError(storage)


def test_storage_of_arrays(case):
    weights, matrix = case
    storage = weights.storage()
    if not isinstance(storage, DenseStorage | SparseStorage):
        return
    found = matrix_of(storage)
    full = np.zeros_like(matrix)
    full[: found.shape[0], : found.shape[1]] = found
    np.testing.assert_array_equal(full, matrix)


@pytest.mark.parametrize(
    ("name", "kind", "transposed"),
    [
        ("dense, C order", DenseStorage, False),
        ("dense, F order", DenseStorage, True),
        ("csr", SparseStorage, False),
        ("csc", SparseStorage, False),
        ("by columns", SparseStorage, True),
    ],
)
def test_storage_shares_memory(name, kind, transposed):
    weights, _ = WEIGHTS[name]()
    storage = weights.storage()
    assert isinstance(storage, kind)
    assert storage.transposed is transposed
    again = weights.storage()
    assert all(np.shares_memory(a, b) for a, b in zip(storage[:-1], again[:-1], strict=True))


@pytest.mark.parametrize("name", ["dense, cut from a larger array", "layered, dense"])
def test_no_storage_where_an_engine_has_to_ask(name):
    assert WEIGHTS[name]()[0].storage() is None


def correlate(kernels, source, target, shifts):
    """Return ``sum_{i, a, b} kernels[o, i, a, b] source[i, p + down + a, q + across + b]`` by plain loops."""
    result = np.zeros((len(kernels), *target))
    for o, p, q in np.ndindex(result.shape):
        for i, a, b in np.ndindex(kernels.shape[1:]):
            row, column = p + shifts[0] + a, q + shifts[1] + b
            if 0 <= row < source.shape[1] and 0 <= column < source.shape[2]:
                result[o, p, q] += kernels[o, i, a, b] * source[i, row, column]
    return result.ravel()


@pytest.mark.parametrize("name", [name for name in WEIGHTS if name.startswith("convolution")])
def test_stencils_give_both_products(name):
    weights, matrix = WEIGHTS[name]()
    s = weights.storage()
    assert isinstance(s, StencilStorage)
    generator = np.random.default_rng(0)
    image, latents = generator.normal(size=s.source), generator.normal(size=s.target)
    back = correlate(s.kernels, image, s.target[1:], s.shifts)
    there = correlate(s.turned().kernels, latents, s.source[1:], s.turned().shifts)
    digits = {"rtol": 1e-5, "atol": 1e-6} if matrix.dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-13}
    np.testing.assert_allclose(back, image.ravel() @ matrix, **digits)
    np.testing.assert_allclose(there, matrix @ latents.ravel(), **digits)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_of_other_libraries(name, dtype):
    xp = namespace(name)
    matrix = np.random.default_rng(0).normal(size=(7, 4)).astype(dtype)
    weights, W = ArrayWeights(xp.asarray(matrix)), matrix.astype(np.float64)
    kappa, scale = positive(7), positive(4)
    assert_lower(weights.gram(kappa), W.T @ np.diag(kappa) @ W)
    assert_lower(weights.row_gram(scale), W @ np.diag(scale) @ W.T)
    taken = weights.take_rows([6, 0, 0])
    assert type(taken.array) is type(weights.array)
    np.testing.assert_array_equal(taken.toarray(), matrix[[6, 0, 0]])
    np.testing.assert_array_equal(weights.dense_rows([2]), W[[2]])
    np.testing.assert_array_equal(weights.like(*weights.entries()), matrix)
    assert weights.stored == matrix.size
    assert weights.storage() is None
