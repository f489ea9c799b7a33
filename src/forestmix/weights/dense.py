"""Dense weights. |W| and W∘W are views: their entries are made a block at a time, inside each product."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike

from forestmix.arrays import Array, in_precision, numbers, working_dtype
from forestmix.weights.base import ENTRY_MAPS, Weights, as_indices
from forestmix.weights.blocks import blocks_of, dense_gram
from forestmix.weights.checks import blocks_of_rows, check_finite_matrix, check_matrix_shape
from forestmix.weights.storage import DenseStorage


class DenseWeights(Weights):
    """A dense array as weights, or the weights f(w_ij), f some entry maps one after another.

    A float32 or float64 array that BLAS can read in place (C order, F order, or a block cut from one) is not
    copied: whoever changes it later changes the weights. Any other array is copied once. Products with mapped entries
    go over W in blocks of about 1 MB, so memory beyond W and the batch is one block.

    Attributes:
        array: W itself, (n, m), without the maps.
    """

    dense: ClassVar[bool] = True
    _maps: tuple[str, ...] = ()

    def __init__(self, array: ArrayLike) -> None:
        self.array = _as_matrix(array)
        super().__init__((self.array.shape[0], self.array.shape[1]), self.array.dtype)

    def _with(self, array: Array, *maps: str) -> DenseWeights:
        """Return weights of another array, or with other maps, which are not checked again."""
        chosen = copy(self)
        for derived in ("nnz", "_kept"):
            vars(chosen).pop(derived, None)
        chosen.array, chosen.dtype, chosen._maps = array, array.dtype, maps
        return chosen

    @cached_property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        # Counted after the maps: the square of a tiny entry may be zero.
        return sum(int(np.count_nonzero(self._mapped(self.array[rows]))) for rows in blocks_of_rows(self.array))

    def _mapped(self, entries: Array) -> Array:
        """Return f(entries), a new array if there are maps."""
        result = np.empty_like(entries) if self._maps else entries
        for name in self._maps:
            entries = ENTRY_MAPS[name](entries, out=result)
        return entries

    def _forward(self, batch: Array) -> Array:
        array = self.array
        if not self._maps:
            return batch @ array.T
        return self._times_transpose(batch, array) if _by_rows(array) else self._times(batch, array.T)

    def _adjoint(self, batch: Array) -> Array:
        array = self.array
        if not self._maps:
            return batch @ array
        return self._times(batch, array) if _by_rows(array) else self._times_transpose(batch, array.T)

    def _times_transpose(self, batch: Array, array: Array) -> Array:
        """Return batch f(A)^T, where each block of rows of A gives its own part of the result."""
        result = np.empty((len(batch), array.shape[0]), dtype=self.dtype)
        for rows in blocks_of_rows(array):
            result[:, rows] = batch @ self._mapped(array[rows]).T
        return result

    def _times(self, batch: Array, array: Array) -> Array:
        """Return batch f(A), the sum of one product for each block of rows of A."""
        result = np.zeros((len(batch), array.shape[1]), dtype=self.dtype)
        # Each block adds once to the whole result: with many vectors and long rows, blocks of a few rows
        # would spend their time on that sum. A block of at most N rows is no larger than the result.
        for rows in blocks_of_rows(array, least=min(len(batch), 64)):
            result += batch[:, rows] @ self._mapped(array[rows])
        return result

    def __abs__(self) -> DenseWeights:
        # Whatever the maps are, their values are not negative.
        return self if self._maps else self._with(self.array, "abs")

    def _with_map(self, name: str) -> DenseWeights:
        return self._with(self.array, *self._maps, name)

    def storage(self) -> DenseStorage | None:
        """Return W, or ``W^T`` if W is in Fortran order; ``None`` for a block cut from a larger array, or with maps."""
        if self._maps or not (self.array.flags.c_contiguous or self.array.flags.f_contiguous):
            return None
        by_rows = self.array.flags.c_contiguous
        return DenseStorage(self.array if by_rows else self.array.T, not by_rows)

    def take_rows(self, indices: ArrayLike) -> DenseWeights:
        """Return the chosen rows as weights."""
        return DenseWeights(self._chosen(indices))

    def dense_rows(self, indices: ArrayLike) -> Array:
        """Return the chosen rows as an array in float64."""
        return self._chosen(indices).astype(np.float64, copy=False)

    def _chosen(self, indices: ArrayLike) -> Array:
        return self._mapped(self.array[as_indices("rows", indices, self.shape[0])])

    def weighted_rows(self, kappa: Array) -> Iterator[Array]:
        """Yield ``diag(sqrt(kappa)) W`` in blocks of rows, in float64."""
        return self._weighted(self.array, kappa)

    def row_gram(self, scale: Array) -> Array:
        """Return the lower triangle of ``W diag(scale) W^T``."""
        return dense_gram(self._weighted(self.array.T, scale), self.shape[0])

    def _weighted(self, array: Array, kappa: Array) -> Iterator[Array]:
        """Yield ``diag(sqrt(kappa)) f(A)`` in blocks of rows, in float64."""
        for block in blocks_of(len(array), 24 * array.shape[1]):
            rows = slice(block[0], block[-1] + 1)
            yield np.sqrt(kappa[rows])[:, np.newaxis] * self._mapped(array[rows]).astype(np.float64, copy=False)

    def _columns(self, indices: Array | None) -> scipy.sparse.csc_array:
        return self._sparse(scipy.sparse.csc_array(self.array if indices is None else self.array[:, indices]))

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        return self._sparse(scipy.sparse.csr_array(self.array if indices is None else self.array[indices]))

    def _sparse(self, matrix: Any) -> Any:
        """Return a sparse matrix of entries of W with the maps applied to them."""
        if self._maps:
            matrix.data = self._mapped(matrix.data)
            matrix.eliminate_zeros()
        return matrix

    def _in_double(self) -> DenseWeights:
        return self._with(self.array.astype(np.float64), *self._maps)

    def toarray(self) -> Array:
        """Return W as a new dense array."""
        return self._mapped(self.array) if self._maps else self.array.copy()

    def _label(self) -> str:
        return " of ".join([*reversed(self._maps), type(self).__name__])


def _by_rows(array: Array) -> bool:
    """Whether the entries of a row, rather than those of a column, are neighbours in memory."""
    return bool(array.strides[1] <= array.strides[0])


def _as_matrix(given: ArrayLike) -> Array:
    """Return ``given`` as a finite (n, m) array of float32 or float64, itself where possible."""
    array = numbers("W", given)
    array = in_precision("W", array, working_dtype("W", array.dtype))
    check_matrix_shape("W", array.shape)
    check_finite_matrix("W", array)
    return array if _blas_reads(array) else np.ascontiguousarray(array)


def _blas_reads(array: Array) -> bool:
    """Whether matrix products read ``array`` in place: else NumPy would copy all of it in every product."""
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return True
    (near, length), (far, _) = sorted(zip(array.strides, array.shape, strict=True))
    return near == array.itemsize and far >= array.itemsize * length
