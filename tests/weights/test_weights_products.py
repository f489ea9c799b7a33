"""One contract that every kind of weights is held to: it is the same matrix as its dense twin."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse

from forestmix.errors import ArgumentError
from forestmix.weights import ChunkedWeights, as_weights
from support.weights_registry import WEIGHTS

MAPS = {
    "W": (lambda w: w, lambda a: a),
    "abs": (abs, np.abs),
    "square": (lambda w: w.square(), np.square),
    "support": (lambda w: w.support(), lambda a: (a != 0).astype(a.dtype)),
}
COMPOSITIONS = {
    "abs of abs": (lambda w: abs(abs(w)), np.abs),
    "square of abs": (lambda w: abs(w).square(), np.square),
    "abs of square": (lambda w: abs(w.square()), np.square),
    "square of square": (lambda w: w.square().square(), lambda a: np.square(np.square(a))),
    "support of abs": (lambda w: abs(w).support(), lambda a: (a != 0).astype(a.dtype)),
    "abs of support": (lambda w: abs(w.support()), lambda a: (a != 0).astype(a.dtype)),
}
LEADS = [(), (1,), (5,), (0,), (2, 3), (2, 0, 3)]


@pytest.fixture(params=WEIGHTS)
def plain(request):
    return WEIGHTS[request.param]()


@pytest.fixture(params=MAPS)
def case(request, plain):
    weights, matrix = plain
    on_weights, on_matrix = MAPS[request.param]
    return on_weights(weights), on_matrix(matrix)


def batch(weights, lead, axis, seed=0):
    values = np.random.default_rng(seed).normal(size=(*lead, weights.shape[axis]))
    return values.astype(weights.dtype)


def assert_close(actual, expected, dtype):
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    # Relative to the largest: sums in another order differ by that much where terms cancel.
    tolerance = 20 * np.finfo(dtype).eps * np.max(np.abs(expected), initial=1)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def assert_canonical(given, expected, dtype, kind):
    assert isinstance(given, kind)
    assert given.dtype == dtype
    # A new object computes the flags afresh instead of trusting those that are set.
    fresh = kind((given.data, given.indices, given.indptr), shape=given.shape)
    assert fresh.has_canonical_format
    assert np.all(given.data != 0)
    np.testing.assert_array_equal(given.toarray(), expected)


def test_shape_and_dtype(case):
    weights, matrix = case
    assert weights.shape == matrix.shape
    assert weights.dtype == matrix.dtype
    assert weights.dtype in (np.float32, np.float64)


def test_entries(case):
    weights, matrix = case
    dense = weights.toarray()
    np.testing.assert_array_equal(dense, matrix)
    assert dense.dtype == matrix.dtype
    dense += 1
    np.testing.assert_array_equal(weights.toarray(), matrix)


def test_nnz(case):
    weights, matrix = case
    assert type(weights.nnz) is int
    assert weights.nnz == np.count_nonzero(matrix)


def test_forward(case):
    weights, matrix = case
    for lead in LEADS:
        y = batch(weights, lead, 1)
        assert_close(weights.forward(y), y @ matrix.T, weights.dtype)


def test_adjoint(case):
    weights, matrix = case
    for lead in LEADS:
        r = batch(weights, lead, 0)
        assert_close(weights.adjoint(r), r @ matrix, weights.dtype)


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_maps_of_maps(plain, name):
    weights, matrix = plain
    on_weights, on_matrix = COMPOSITIONS[name]
    weights, matrix = on_weights(weights), on_matrix(matrix)
    y, r = batch(weights, (3,), 1), batch(weights, (3,), 0)
    np.testing.assert_array_equal(weights.toarray(), matrix)
    assert_canonical(weights.columns(), matrix, matrix.dtype, sparse.csc_array)
    assert_close(weights.forward(y), y @ matrix.T, weights.dtype)
    assert_close(weights.adjoint(r), r @ matrix, weights.dtype)


def test_adjointness(case):
    weights, _ = case
    y, r = batch(weights, (4,), 1, seed=1), batch(weights, (4,), 0, seed=2)
    left = np.sum(weights.forward(y) * r, axis=1)
    right = np.sum(y * weights.adjoint(r), axis=1)
    assert_close(left, right, weights.dtype)


def test_input_that_is_not_contiguous(case):
    weights, matrix = case
    for change in (np.asfortranarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2], np.flipud):
        y, r = change(batch(weights, (4,), 1)), change(batch(weights, (4,), 0))
        assert_close(weights.forward(y), y @ matrix.T, weights.dtype)
        assert_close(weights.adjoint(r), r @ matrix, weights.dtype)


def test_input_is_not_changed(case):
    weights, _ = case
    y, r = batch(weights, (3,), 1), batch(weights, (3,), 0)
    before = y.copy(), r.copy()
    weights.forward(y), weights.adjoint(r)
    assert (y == before[0]).all()
    assert (r == before[1]).all()


def test_result_has_the_dtype_of_the_weights(plain):
    weights, matrix = plain
    y = np.arange(weights.shape[1])
    assert_close(weights.forward(y), matrix @ y.astype(matrix.dtype), weights.dtype)
    assert weights.forward(y.astype(np.float64)).dtype == weights.dtype
    assert weights.adjoint(np.ones(weights.shape[0], dtype=np.float32)).dtype == weights.dtype


def test_columns(case):
    weights, matrix = case
    assert_canonical(weights.columns(), matrix, matrix.dtype, sparse.csc_array)
    for indices in some_indices(weights.shape[1]):
        assert_canonical(weights.columns(indices), matrix[:, indices], matrix.dtype, sparse.csc_array)


def test_rows(case):
    weights, matrix = case
    assert_canonical(weights.rows(), matrix, matrix.dtype, sparse.csr_array)
    for indices in some_indices(weights.shape[0]):
        assert_canonical(weights.rows(indices), matrix[indices], matrix.dtype, sparse.csr_array)


def some_indices(length):
    """Return one index, all backwards, one twice, and none."""
    none = np.zeros(0, dtype=np.int64)
    return [np.array([length - 1]), np.arange(length)[::-1], np.array([0, length - 1, 0], np.int32), none]


def test_indices_may_be_a_list_or_one_integer(plain):
    weights, matrix = plain
    np.testing.assert_array_equal(weights.columns(0).toarray(), matrix[:, [0]])
    np.testing.assert_array_equal(weights.rows([0]).toarray(), matrix[[0]])
    assert weights.columns([]).shape == (weights.shape[0], 0)


@pytest.mark.parametrize("indices", [[-1], [10_000], [0.5], [True], [[0]]], ids=str)
def test_wrong_indices(plain, indices):
    with pytest.raises(ArgumentError, match="indices of columns must"):
        plain[0].columns(indices)
    with pytest.raises(ArgumentError, match="indices of rows must"):
        plain[0].rows(indices)


def test_wrong_length_names_what_was_expected(case):
    weights, _ = case
    n, m = weights.shape
    with pytest.raises(ArgumentError, match=rf"y must have last dimension {m}.*got .*\(2, {m + 1}\)"):
        weights.forward(np.zeros((2, m + 1)))
    with pytest.raises(ArgumentError, match=rf"r must have last dimension {n}.*got .*\({n + 1},\)"):
        weights.adjoint(np.zeros(n + 1))
    with pytest.raises(ArgumentError, match="last dimension"):
        weights.forward(1.0)


def test_repr_and_pickle(case):
    weights, matrix = case
    n, m = matrix.shape
    chunked = isinstance(weights, ChunkedWeights)  # whose entries are not read for a repr
    last = f"{len(weights.chunks.slices)} chunks of rows" if chunked else f"{np.count_nonzero(matrix)} nonzero"
    assert f"{n} x {m}, {matrix.dtype}, {last}" in repr(weights)
    again = pickle.loads(pickle.dumps(weights))
    np.testing.assert_array_equal(again.toarray(), matrix)


def test_weights_pass_through(plain):
    weights, _ = plain
    assert as_weights(weights) is weights
