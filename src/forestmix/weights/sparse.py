"""Sparse weights, held as one canonical matrix, by rows or by columns."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike

from forestmix.arrays import Array, working_dtype
from forestmix.errors import ArgumentError
from forestmix.weights.base import ENTRY_MAPS, Weights, as_indices
from forestmix.weights.checks import check_matrix_shape, not_finite, sums_to_finite
from forestmix.weights.storage import SparseStorage


class CompressedWeights(Weights):
    """A scipy.sparse array or matrix, of any format, as weights.

    Duplicate entries are summed and stored zeros dropped. The matrix given is never changed; if it has the right
    format, is canonical, and of float32 or float64, its arrays are shared and not copied: whoever changes them later
    changes the weights. Weights with mapped entries share the index arrays of W.

    Attributes:
        matrix: W itself, a canonical csr_array or csc_array.
    """

    by_columns: ClassVar[bool]

    def __init__(self, matrix: Any, *, trusted: bool = False) -> None:
        # Trusted: known to be canonical and of the right format; entries that a map has made infinite stay.
        self.matrix = _marked_canonical(matrix) if trusted else _canonical(matrix, "csc" if self.by_columns else "csr")
        if not trusted:
            _check_finite(self.matrix)
        super().__init__((self.matrix.shape[0], self.matrix.shape[1]), self.matrix.dtype)

    @property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        return int(self.matrix.nnz)

    def _forward(self, batch: Array) -> Array:
        return _product(self.matrix, batch)

    def _adjoint(self, batch: Array) -> Array:
        # The transpose is the same three arrays, read in the other format.
        return _product(self.matrix.T, batch)

    def _with_map(self, name: str) -> Self:
        entries = self.matrix.data
        # Windows, for one, have no negative entry: then |W| costs no memory at all.
        mapped = entries if name == "abs" and np.all(entries > 0) else ENTRY_MAPS[name](entries)
        parts = (mapped, self.matrix.indices, self.matrix.indptr)
        matrix = type(self.matrix)(parts, shape=self.shape)
        return type(self)(_canonical(matrix, matrix.format), trusted=True)

    def storage(self) -> SparseStorage:
        """Return the three arrays of W as CSR, or those of ``W^T``."""
        return SparseStorage(self.matrix.indptr, self.matrix.indices, self.matrix.data, self.by_columns)

    def take_rows(self, indices: ArrayLike) -> Self:
        """Return the chosen rows as weights, in the same format."""
        return type(self)(self.matrix[as_indices("rows", indices, self.shape[0])])

    def gram(self, kappa: Array) -> Array:
        """Return the lower triangle of ``W^T diag(kappa) W``; a copy by rows that it takes is not kept."""
        return SparseWeights(self.matrix).gram(kappa) if self.by_columns else super().gram(kappa)

    def row_gram(self, scale: Array) -> Array:
        """Return the lower triangle of ``W diag(scale) W^T``, likewise."""
        return SparseWeights(self.matrix.T).gram(scale)

    def toarray(self) -> Array:
        """Return W as a new dense array."""
        return self.matrix.toarray()

    def _columns(self, indices: Array | None) -> scipy.sparse.csc_array:
        columns = self.matrix if self.by_columns else self._turned
        return columns if indices is None else _marked_canonical(columns[:, indices])

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        rows = self._turned if self.by_columns else self.matrix
        return rows if indices is None else _marked_canonical(rows[indices])

    @cached_property
    def _turned(self) -> Any:
        # Kept, for coordinate methods ask for one column after another.
        return _marked_canonical(self.matrix.tocsr() if self.by_columns else self.matrix.tocsc())


class SparseWeights(CompressedWeights):
    """Sparse weights by rows."""

    by_columns: ClassVar[bool] = False


class SparseColumnWeights(CompressedWeights):
    """Sparse weights by columns, with no copy by rows."""

    by_columns: ClassVar[bool] = True


def _product(matrix: Any, batch: Array) -> Array:
    """Return A v for each row v of ``batch``, in C order."""
    if len(batch) == 1:
        return (matrix @ batch[0])[np.newaxis]
    return np.ascontiguousarray((matrix @ batch.T).T)


def _canonical(given: Any, form: str) -> Any:
    """Return ``given`` as a canonical array of this format, of float32 or float64, sharing memory if it can."""
    if not scipy.sparse.issparse(given):
        raise ArgumentError(f"W must be a scipy.sparse array or matrix; got {type(given).__name__}.")
    source: Any = given  # the stubs narrow it to a class without a shape
    dtype = working_dtype("W", source.dtype)
    check_matrix_shape("W", source.shape)
    # The dtype comes first: the sum of duplicates could overflow in a small integer type.
    converted = source.astype(dtype, copy=False).asformat(form)
    # A new array on the same memory: looking for duplicates writes flags into the object that is asked.
    kind = scipy.sparse.csc_array if form == "csc" else scipy.sparse.csr_array
    matrix = kind((converted.data, converted.indices, converted.indptr), shape=converted.shape)
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:  # SciPy's products would read whatever lies beyond the arrays
        n, m = matrix.shape
        raise ArgumentError(f"W must have all entries within its {n} rows and {m} columns; {error}.") from error
    if not matrix.has_canonical_format or not np.all(matrix.data):
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return matrix


def _check_finite(matrix: Any) -> None:
    """Raise if a stored entry is not finite, naming the first in C order and their number."""
    if sums_to_finite(matrix.data):
        return
    rows = matrix.tocsr()
    wrong = np.flatnonzero(~np.isfinite(rows.data))
    if len(wrong):
        row, column = (int(part[wrong[0]]) for part in rows.tocoo().coords)
        raise not_finite("W", len(wrong), (row, column), rows.data[wrong[0]])


def _marked_canonical(matrix: Any) -> Any:
    """Return ``matrix``, which is sorted and has no duplicates by the way it was made, marked as such."""
    matrix.has_canonical_format = True
    return matrix
