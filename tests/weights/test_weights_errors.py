"""What is refused, and the words that say why."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from forestmix.errors import ArgumentError, ForestmixError
from forestmix.weights import Convolution, DenseWeights, SparseWeights, as_weights, checks, windows
from forestmix.weights.absent import AbsentWeights

NAN, INF = np.nan, np.inf
BAD_ROWS = [[1.0, 2.0], [NAN, 1.0], [INF, -INF]]
KERNEL = np.ones((3, 3))
HUGE = 2**40


def beyond(form, indices, indptr=(0, 1, 2, 3)):
    """A 3 x 3 matrix whose arrays were changed after SciPy had looked at them."""
    matrix = sparse.eye_array(3, format=form)
    matrix.indices[:], matrix.indptr[:] = indices, indptr
    return matrix


BAD_MATRICES = {
    "scalar": (1.0, ["W must be 2-d", "0-d"]),
    "vector": (np.ones(3), ["W must be 2-d", "1-d", "(3,)"]),
    "stack": (np.ones((2, 2, 2)), ["W must be 2-d", "3-d", "(2, 2, 2)"]),
    "sparse vector": (sparse.coo_array([1.0, 2.0]), ["W must be 2-d", "1-d"]),
    "no rows": (np.ones((0, 3)), ["W", "at least one row", "empty", "(0, 3)"]),
    "no columns": (sparse.csr_array((3, 0)), ["W", "one column", "empty", "(3, 0)"]),
    "empty list": ([[]], ["W", "empty", "(1, 0)"]),
    "ragged": ([[1.0, 2.0], [3.0]], ["W must be an array of numbers", "sequences of unequal length"]),
    "complex": (np.ones((2, 2), complex), ["W must hold real numbers", "complex128"]),
    "object": (np.ones((2, 2), object), ["W must hold real numbers", "object"]),
    "text": ([["a", "b"]], ["W must hold real numbers", "<U1"]),
    "date": (np.zeros((2, 2), "M8[s]"), ["W must hold real numbers", "datetime64"]),
    "none": (None, ["W must hold real numbers", "object"]),
    "sparse complex": (
        sparse.csr_array(np.eye(2, dtype=complex)),
        ["W must hold real numbers", "complex128"],
    ),
    "masked": (np.ma.masked_equal(np.eye(2), 0), ["W must have no masked entries"]),
    "not finite": (BAD_ROWS, ["W must be finite", "3 entries", "nan at index (1, 0)"]),
    "one not finite": ([[1.0, -INF]], ["W must be finite", "1 entry", "-inf at index (0, 1)"]),
    "late": (np.vstack([np.ones((300_000, 1)), [[NAN]]]), ["1 entry", "nan at index (300000, 0)"]),
    "sparse not finite": (
        sparse.csc_array(BAD_ROWS),
        ["W must be finite", "3 entries", "nan at index (1, 0)"],
    ),
    "sparse beyond": (beyond("csr", [0, 1, 3]), ["all entries within its 3 rows and 3 columns", "indices must be < 3"]),
    "sparse before": (beyond("csc", [0, -1, 2]), ["all entries within its 3 rows", "indices must be >= 0"]),
    "sparse falling": (beyond("csr", [0, 1, 2], [0, 2, 1, 3]), ["indptr must be a non-decreasing sequence"]),
    "sparse last": (sparse.csr_array([[0.0, 0.0], [0.0, INF]]), ["1 entry", "inf at index (1, 1)"]),
}


def assert_says(error, words):
    message = str(error.value)
    for word in words:
        assert word in message


@pytest.mark.parametrize("name", BAD_MATRICES)
def test_bad_matrix(name):
    given, words = BAD_MATRICES[name]
    with pytest.raises(ArgumentError) as error:
        as_weights(given)
    assert_says(error, words)


def test_the_classes_refuse_what_is_not_theirs():
    with pytest.raises(ArgumentError, match=r"W must be a scipy.sparse array or matrix; got ndarray"):
        SparseWeights(np.eye(2))
    with pytest.raises(ArgumentError, match="W must hold real numbers"):
        DenseWeights(sparse.eye_array(2))


BAD_CONVOLUTIONS = {
    "vector": ((np.ones(3), (4, 4)), ["kernels must have shape", "(3,)"]),
    "five axes": ((np.ones((1, 1, 1, 3, 3)), (4, 4)), ["kernels must have shape"]),
    "no kernels": ((np.ones((0, 1, 3, 3)), (4, 4)), ["kernels must have shape", "(0, 1, 3, 3)"]),
    "ragged": (([[1.0], [1.0, 2.0]], (4, 4)), ["kernels must be an array"]),
    "complex": ((KERNEL * 1j, (4, 4)), ["kernels must hold real numbers", "complex128"]),
    "not finite": (
        ([[1.0, NAN, INF]], (4, 4)),
        ["kernels must be finite", "2 entries", "nan at index (0, 1)"],
    ),
    "channels": ((np.ones((2, 3, 3, 3)), (1, 4, 4)), ["image_shape has 1 channels", "kernels have 3"]),
    "image of one axis": ((KERNEL, (4,)), ["image_shape must be 2 or 3 positive integers", "(4,)"]),
    "image a number": ((KERNEL, 4), ["image_shape must be 2 or 3 positive integers", "got 4"]),
    "image text": ((KERNEL, "44"), ["image_shape must be 2 or 3 positive integers", "'44'"]),
    "image empty": ((KERNEL, (0, 4)), ["image_shape must be a positive integer", "got 0"]),
    "image fraction": ((KERNEL, (4.0, 4)), ["image_shape must be a positive integer", "got 4.0"]),
    "image bool": ((KERNEL, (True, 4)), ["image_shape must be a positive integer", "got True"]),
    "placement": ((KERNEL, (4, 4), "centered"), ["placement must be one of", "Did you mean 'centred'?"]),
    "placement none": ((KERNEL, (4, 4), None), ["placement must be one of", "None"]),
    "placement list": ((KERNEL, (4, 4), ["centred"]), ["placement must be one of"]),
    "even": ((np.ones((2, 3)), (4, 4)), ["size must be odd", "centred", "got 2", "overlapping"]),
    "even width": ((np.ones((3, 4)), (4, 4)), ["size must be odd", "got 4"]),
    "too large": ((KERNEL, (HUGE, HUGE)), ["Convolution is too large", "integer overflow of sizes", "rows"]),
    "too many": ((np.ones((9, 9)), (2**29, 2**29)), ["integer overflow of sizes", "entries"]),
}


@pytest.mark.parametrize("name", BAD_CONVOLUTIONS)
def test_bad_convolution(name):
    arguments, words = BAD_CONVOLUTIONS[name]
    with pytest.raises(ArgumentError) as error:
        Convolution(*arguments)
    assert_says(error, words)


BAD_WINDOWS = {
    "no size": (((4, 4), 0), ["size must be a positive integer", "got 0"]),
    "negative": (((4, 4), -3), ["size must be a positive integer", "got -3"]),
    "fraction": (((4, 4), 2.5), ["size must be a positive integer", "got 2.5"]),
    "bool": (((4, 4), True), ["size must be a positive integer", "got True"]),
    "text": (((4, 4), "3"), ["size must be a positive integer", "'3'"]),
    "none": (((4, 4), None), ["size must be a positive integer", "None"]),
    "three sizes": (((4, 4), (1, 2, 3)), ["size must be 2 positive integers", "(1, 2, 3)"]),
    "one bad size": (((4, 4), (3, 0)), ["size must be a positive integer", "got 0"]),
    "shape of three": (((1, 4, 4), 3), ["shape must be 2 positive integers", "(1, 4, 4)"]),
    "shape a number": ((28, 7), ["shape must be 2 positive integers", "got 28"]),
    "shape negative": (((4, -4), 3), ["shape must be a positive integer", "got -4"]),
    "placement": (((4, 4), 3, "overlaping"), ["placement must be one of", "Did you mean 'overlapping'?"]),
    "even centred": (((4, 4), 2, "centred"), ["size must be odd", "got 2", "overlapping"]),
    "integer dtype": (((4, 4), 3, "overlapping", int), ["dtype must be float32 or float64", "int"]),
    "no dtype": (((4, 4), 3, "overlapping", "number"), ["dtype must be float32 or float64", "'number'"]),
    "too large": (((HUGE, HUGE), 3), ["windows is too large", "integer overflow of sizes", "pixels"]),
    "too large windows": (((4, 4), HUGE), ["integer overflow of sizes", "columns"]),
    "too many": (((2**28, 2**28), 99), ["integer overflow of sizes", "entries"]),
}


@pytest.mark.parametrize("name", BAD_WINDOWS)
def test_bad_windows(name):
    arguments, words = BAD_WINDOWS[name]
    with pytest.raises(ArgumentError) as error:
        windows(*arguments)
    assert_says(error, words)


def test_the_first_entry_that_is_not_finite_is_named():
    W = np.ones((50, 4))
    as_weights(W)
    W[31, 2], W[7, 1] = NAN, INF
    with pytest.raises(ArgumentError, match=r"2 entries that are not, the first inf at index \(7, 1\)"):
        as_weights(W)
    # Sums that overflow are no reason to refuse entries that are finite.
    as_weights(np.full((50, 4), 1e308))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_entry_is_passed_over(dtype):
    for size in range(1, 24):
        for wrong in range(size):
            entries = np.ones(size, dtype)
            assert checks.sums_to_finite(entries)
            for value in (NAN, INF, -INF):
                entries[wrong] = value
                assert not checks.sums_to_finite(entries)
    assert not checks.sums_to_finite(np.array([[INF, -INF], [1.0, 1.0]], order="F"))


def test_weights_whose_entries_are_elsewhere_can_be_shown():
    weights = AbsentWeights((5, 2))
    assert repr(weights) == "AbsentWeights(5 x 2, entries are elsewhere)"
    with pytest.raises(ForestmixError, match="The rows of this fit are not in its file"):
        weights.toarray()
