"""Sparse weights, held as one canonical CSR matrix."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array, working_dtype
from forestmix.errors import ArgumentError
from forestmix.weights.base import Weights
from forestmix.weights.checks import check_matrix_shape, not_finite, sums_to_finite
from forestmix.weights.storage import SparseStorage


class SparseWeights(Weights):
    """A scipy.sparse array or matrix, of any format, as weights.

    Duplicate entries are summed and stored zeros dropped. The matrix given is never changed; if it is CSR,
    canonical, and of float32 or float64, its arrays are shared and not copied: whoever changes them later
    changes the weights. abs(W) and W.square() are made once and kept; they share the index arrays of W.

    Attributes:
        matrix: W itself, a canonical csr_array.
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix = _as_canonical(matrix)
        _check_finite(self.matrix)
        super().__init__((self.matrix.shape[0], self.matrix.shape[1]), self.matrix.dtype)

    @classmethod
    def trusted(cls, matrix: scipy.sparse.csr_array) -> SparseWeights:
        """Return the weights of a CSR matrix of which it is known that it is canonical and finite."""
        weights = cls.__new__(cls)
        weights.matrix = _marked_canonical(matrix)
        Weights.__init__(weights, (matrix.shape[0], matrix.shape[1]), matrix.dtype)
        return weights

    @property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        return int(self.matrix.nnz)

    def _forward(self, batch: Array) -> Array:
        return _product(self.matrix, batch)

    def _adjoint(self, batch: Array) -> Array:
        # The transpose is the same three arrays, read as CSC.
        return _product(self.matrix.T, batch)

    def __abs__(self) -> SparseWeights:
        return self._absolute

    def square(self) -> SparseWeights:
        """Return the weights w_ij^2."""
        return self._square

    @cached_property
    def _absolute(self) -> SparseWeights:
        entries = self.matrix.data
        # Windows, for one, have no negative entry: then |W| costs no memory at all.
        return self._with_entries(entries if np.all(entries > 0) else np.abs(entries))

    @cached_property
    def _square(self) -> SparseWeights:
        return self._with_entries(np.square(self.matrix.data))

    def support(self) -> SparseWeights:
        """Return the weights that are 1 where w_ij is not zero, and 0 elsewhere."""
        return self._with_entries(np.ones_like(self.matrix.data))

    def storage(self) -> SparseStorage:
        """Return the three arrays of W as CSR."""
        return SparseStorage(self.matrix.indptr, self.matrix.indices, self.matrix.data, False)

    def row_gram(self, scale: Array) -> Array:
        """Return the lower triangle of ``W diag(scale) W^T``; the copy by columns that it takes is not kept."""
        return SparseWeights(self.matrix.T).gram(scale)

    def _with_entries(self, entries: Array) -> SparseWeights:
        """Return the weights that have ``entries`` where W has its own.

        They are not checked: the square of a finite entry may overflow, which an algorithm reports as its status.
        """
        matrix = self.matrix
        weights = SparseWeights.__new__(SparseWeights)
        parts = (entries, matrix.indices, matrix.indptr)
        weights.matrix = _as_canonical(scipy.sparse.csr_array(parts, shape=matrix.shape))
        Weights.__init__(weights, self.shape, self.dtype)
        return weights

    def _columns(self, indices: Array | None) -> scipy.sparse.csc_array:
        return self._by_column if indices is None else _marked_canonical(self._by_column[:, indices])

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        return self.matrix if indices is None else _marked_canonical(self.matrix[indices])

    @cached_property
    def _by_column(self) -> scipy.sparse.csc_array:
        # Kept, for coordinate methods ask for one column after another.
        return _marked_canonical(self.matrix.tocsc())


def _product(matrix: Any, batch: Array) -> Array:
    """Return A v for each row v of ``batch``, in C order."""
    if len(batch) == 1:
        return (matrix @ batch[0])[np.newaxis]
    return np.ascontiguousarray((matrix @ batch.T).T)


def _as_canonical(given: Any) -> scipy.sparse.csr_array:
    """Return ``given`` as a canonical CSR array of float32 or float64, sharing memory if it can."""
    if not scipy.sparse.issparse(given):
        raise ArgumentError(f"W must be a scipy.sparse array or matrix; got {type(given).__name__}.")
    source: Any = given  # the stubs narrow it to a class without a shape
    dtype = working_dtype("W", source.dtype)
    check_matrix_shape("W", source.shape)
    # The dtype comes first: the sum of duplicates could overflow in a small integer type.
    converted = source.astype(dtype, copy=False).tocsr()
    # A new array on the same memory: looking for duplicates writes flags into the object that is asked.
    matrix = scipy.sparse.csr_array((converted.data, converted.indices, converted.indptr), shape=converted.shape)
    if not matrix.has_canonical_format or not np.all(matrix.data):
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return matrix


def _check_finite(matrix: scipy.sparse.csr_array) -> None:
    """Raise if a stored entry is not finite, naming the first in C order and their number."""
    if sums_to_finite(matrix.data):
        return
    wrong = np.flatnonzero(~np.isfinite(matrix.data))
    if len(wrong):
        first = int(wrong[0])
        row = int(np.searchsorted(matrix.indptr, first, side="right")) - 1
        raise not_finite("W", len(wrong), (row, int(matrix.indices[first])), matrix.data[first])


def _marked_canonical(matrix: Any) -> Any:
    """Return ``matrix``, which is sorted and has no duplicates by the way it was made, marked as such."""
    matrix.has_canonical_format = True
    return matrix
