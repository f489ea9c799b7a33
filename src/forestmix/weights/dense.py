"""Dense weights. |W| and W∘W are views: their entries are made a block at a time, inside each product."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike

from forestmix.arrays import Array, in_precision, numbers, working_dtype
from forestmix.weights.base import ENTRY_MAPS, Weights, as_indices
from forestmix.weights.blocks import blocks_of
from forestmix.weights.checks import check_finite_matrix, check_matrix_shape
from forestmix.weights.storage import DenseStorage

BLOCK_BYTES = 2**20  # fits the second-level cache of current processors


class DenseWeights(Weights):
    """A dense array as weights, or the weights f(w_ij), f some entry maps one after another.

    A float32 or float64 array that BLAS can read in place (C order, F order, or a block cut from one) is not
    copied: whoever changes it later changes the weights. Any other array is copied once. Products with mapped entries
    go over W in blocks of about 1 MB, so memory beyond W and the batch is one block.

    Attributes:
        array: W itself, (n, m), without the maps.
    """

    dense: ClassVar[bool] = True

    def __init__(self, array: ArrayLike, maps: tuple[str, ...] = (), *, trusted: bool = False) -> None:
        # Trusted: checked before, as the entries of chunks are in the first of many readings.
        self.array = np.asarray(array) if trusted else _as_matrix(array)
        self._maps = maps
        super().__init__((self.array.shape[0], self.array.shape[1]), self.array.dtype)

    @cached_property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        # Counted after the maps: the square of a tiny entry may be zero.
        return sum(int(np.count_nonzero(self._mapped(self.array[rows]))) for rows in _blocks(self.array))

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
        for rows in _blocks(array):
            result[:, rows] = batch @ self._mapped(array[rows]).T
        return result

    def _times(self, batch: Array, array: Array) -> Array:
        """Return batch f(A), the sum of one product for each block of rows of A."""
        result = np.zeros((len(batch), array.shape[1]), dtype=self.dtype)
        # Each block adds once to the whole result: with many vectors and long rows, blocks of a few rows
        # would spend their time on that sum. A block of at most N rows is no larger than the result.
        for rows in _blocks(array, least=min(len(batch), 64)):
            result += batch[:, rows] @ self._mapped(array[rows])
        return result

    def _with_map(self, name: str) -> DenseWeights:
        if name == "double":
            return DenseWeights(self.array.astype(np.float64), self._maps, trusted=True)
        return DenseWeights(self.array, (*self._maps, name), trusted=True)

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
        for block in blocks_of(self.shape[0], 24 * self.shape[1]):
            rows = slice(block[0], block[-1] + 1)
            yield np.sqrt(kappa[rows])[:, np.newaxis] * self._mapped(self.array[rows]).astype(np.float64, copy=False)

    def row_gram(self, scale: Array) -> Array:
        """Return the lower triangle of ``W diag(scale) W^T``."""
        return DenseWeights(self.array.T, self._maps, trusted=True).gram(scale)

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array(self._mapped(self.array if indices is None else self.array[indices]))

    def _columns(self, indices: Array | None) -> scipy.sparse.csc_array:
        return scipy.sparse.csc_array(self._mapped(self.array if indices is None else self.array[:, indices]))

    def __sizeof__(self) -> int:
        return 0 if self._maps else super().__sizeof__()

    def toarray(self) -> Array:
        """Return W as a new dense array."""
        return self._mapped(self.array) if self._maps else self.array.copy()


def _blocks(array: Array, least: int = 1) -> Iterator[slice]:
    """Yield slices that cover the rows of ``array``, each of about ``BLOCK_BYTES``, or of ``least`` rows."""
    row_bytes = max(1, array.itemsize * array.shape[1])
    step = max(least, BLOCK_BYTES // row_bytes, 1)
    for start in range(0, array.shape[0], step):
        yield slice(start, min(start + step, array.shape[0]))


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
