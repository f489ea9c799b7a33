"""What dense and sparse weights keep, share and never touch."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.weights import Convolution, DenseWeights, SparseWeights, as_weights


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_array_is_not_copied(order, dtype):
    array = np.ones((6, 4), dtype=dtype, order=order)
    assert DenseWeights(array).array is array
    assert np.shares_memory(DenseWeights(array[1:4, 1:3]).array, array)


@pytest.mark.parametrize("given", [[[1, 2], [3, 4]], np.ones((2, 2), bool), np.ones((2, 2), np.float16)])
def test_other_numbers_become_float64(given):
    weights = as_weights(given)
    assert isinstance(weights, DenseWeights)
    assert weights.dtype == np.float64
    np.testing.assert_array_equal(weights.toarray(), np.asarray(given, dtype=float))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", ["__abs__", "square", "support"])
def test_dense_maps_allocate_no_copy(name, order):
    array = np.asarray(np.random.default_rng(0).normal(size=(2000, 2000)), order=order)
    weights = DenseWeights(array)
    vectors = np.ones((3, 2000))
    tracemalloc.start()
    try:
        mapped = getattr(weights, name)()
        mapped.forward(vectors), mapped.adjoint(vectors), mapped.nnz
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < array.nbytes / 8


def test_building_dense_weights_allocates_no_copy():
    array = np.ones((2000, 2000))
    tracemalloc.start()
    try:
        DenseWeights(array)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < array.nbytes / 8


@pytest.mark.parametrize("shape", [(3, 140_000), (140_000, 3), (700, 701)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("size", [1, 70])
def test_dense_maps_over_several_blocks(shape, order, size):
    generator = np.random.default_rng(1)
    array = np.asarray(generator.normal(size=shape), order=order)
    y, r = generator.normal(size=(size, shape[1])), generator.normal(size=(size, shape[0]))
    weights = abs(DenseWeights(array))
    np.testing.assert_allclose(weights.forward(y), y @ np.abs(array).T, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(weights.adjoint(r), r @ np.abs(array), rtol=1e-9, atol=1e-9)


def test_squares_that_vanish_leave_the_support():
    tiny = np.array([[1e-200, 1.0], [0.0, 2.0]])
    for weights in (as_weights(tiny), as_weights(sparse.csr_array(tiny))):
        assert weights.nnz == 3
        assert weights.square().nnz == 2
        assert weights.square().columns().nnz == 2
        assert weights.support().nnz == 3


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_sparse_matrix_of_the_user_is_never_changed(kind):
    triplets = ([3.0, 0.0, 1.0, -1.0, 2.0], ([0, 1, 2, 2, 0], [2, 0, 1, 1, 0]))
    given = kind(sparse.coo_array(triplets, shape=(3, 4)))
    if kind is sparse.csr_array:
        given = unsorted_with_duplicate()
    kept = {name: (value, value.copy()) for name, value in vars(given).items() if isinstance(value, np.ndarray)}
    weights = SparseWeights(given)
    weights.forward(np.ones((2, 4))), weights.adjoint(np.ones((2, 3)))
    abs(weights), weights.square(), weights.support(), weights.columns(), weights.rows([0])
    for name, (value, copy) in kept.items():
        assert getattr(given, name) is value
        np.testing.assert_array_equal(value, copy)


def unsorted_with_duplicate():
    return sparse.csr_array((np.array([1.0, 2.0, 3.0, 0.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 4, 4])), (3, 4))


def test_canonical_csr_is_shared():
    given = sparse.csr_array(np.array([[0.0, 1.0], [2.0, 3.0]]))
    matrix = SparseWeights(given).matrix
    assert np.shares_memory(matrix.data, given.data)
    assert np.shares_memory(matrix.indices, given.indices)


@pytest.mark.parametrize("family", [fmx.Gaussian(0.5), fmx.Bernoulli()], ids=str)
@pytest.mark.parametrize("algorithm", ["fm", "cavi"])
def test_canonical_csc_is_shared_and_never_stored_by_rows(family, algorithm):
    given = sparse.csc_array(np.random.default_rng(0).standard_normal((30, 20)) / 5)
    model = fmx.DEF(fmx.Layer(family, given))
    weights = model.layers[0].weights
    accelerated = "cg" if isinstance(family, fmx.Gaussian) else True  # a factor would be made from rows
    for accelerate in (accelerated, False):
        chosen = fmx.ForestMixture(accelerate=accelerate) if algorithm == "fm" else algorithm
        fmx.infer(model, np.arange(30) % 2, chosen, max_iter=5)
    assert np.shares_memory(weights.columns().data, given.data)
    assert np.shares_memory(weights.columns().indices, given.indices)
    assert "_turned" not in vars(weights), "no copy by rows"


def test_sparse_maps_share_the_index_arrays():
    weights = SparseWeights(sparse.random_array((50, 40), density=0.1, rng=np.random.default_rng(0)))
    for mapped in (abs(weights), weights.square(), weights.support()):
        assert np.shares_memory(mapped.matrix.indices, weights.matrix.indices)
        assert np.shares_memory(mapped.matrix.indptr, weights.matrix.indptr)


@pytest.mark.parametrize("build", [sparse.csr_array, sparse.csc_array, lambda w: Convolution(w, (4, 5))])
def test_maps_are_made_once(build):
    """Every evaluation asks for them, so they are kept; each is that of its own entries."""
    matrix = np.random.default_rng(0).normal(size=(3, 5))
    weights = as_weights(build(matrix))
    square, absolute = weights.square(), abs(weights)
    again = abs(weights).square(), abs(weights.square()), weights.square(), abs(weights)
    np.testing.assert_array_equal([w.toarray() for w in again[:3]], np.square([weights.toarray()] * 3))
    np.testing.assert_array_equal(again[3].toarray(), np.abs(weights.toarray()))
    for kept, asked in ((square, again[2]), (absolute, again[3])):
        arrays = zip(kept.storage(), asked.storage(), strict=True)
        assert all(first is second for first, second in arrays if isinstance(first, np.ndarray) and first.base is None)


def test_abs_of_positive_entries_is_shared():
    weights = SparseWeights(sparse.eye_array(4, format="csr"))
    assert np.shares_memory(abs(weights).matrix.data, weights.matrix.data)


def test_overlapping_strides_are_copied():
    row = np.arange(6.0)
    sliding = np.lib.stride_tricks.sliding_window_view(row, 3)
    weights = DenseWeights(sliding)
    assert not np.shares_memory(weights.array, row)
    np.testing.assert_array_equal(abs(weights).forward(np.ones(3)), sliding.sum(axis=1))


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.bool_, np.float64])
def test_sparse_numbers_become_float64(dtype):
    weights = as_weights(sparse.csr_array(np.eye(3, dtype=dtype)))
    assert isinstance(weights, SparseWeights)
    assert weights.dtype == np.float64


def test_sparse_float32_is_kept():
    assert as_weights(sparse.csc_matrix(np.eye(3, dtype=np.float32))).dtype == np.float32


@pytest.mark.parametrize("build", [lambda w: w, sparse.csr_array, lambda w: Convolution(w, (4, 4))])
def test_squares_that_overflow_are_infinite_not_an_error(build):
    """An algorithm reports such weights as its status; see Status.NON_FINITE."""
    with np.errstate(over="ignore"):
        squared = as_weights(build(np.full((3, 3), 1e200))).square().toarray()
    assert np.isinf(squared).any()
