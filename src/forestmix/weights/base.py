"""The matrix of a layer as an operator: a few products, whatever the matrix is stored as."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import ArrayLike

from forestmix.arrays import Array, in_precision, numbers
from forestmix.errors import ArgumentError
from forestmix.weights.blocks import blocks_of, dense_gram, sparse_gram
from forestmix.weights.storage import Storage

#: Below this density ``W^T diag(kappa) W`` is a product of sparse matrices, above it one of dense rows by BLAS.
SPARSE_DENSITY = 0.05
#: Bytes of an entry's column in a matrix that is not full.
INDEX_BYTES = 4


def _indicator(entries: Array, out: Array | None = None) -> Array:
    return np.not_equal(entries, 0, out=np.empty_like(entries) if out is None else out)


#: The maps of entries by name; each but the last takes an array to write to as well.
ENTRY_MAPS: dict[str, Callable[..., Array]] = {
    "abs": np.abs, "square": np.square, "support": _indicator, "double": lambda entries: entries.astype(np.float64)
}  # fmt: skip


class Weights(ABC):
    """The matrix W of a layer: n rows (the variables below) by m columns (the latents above).

    A kind of weights gives two products for batches of vectors, ``_forward`` and ``_adjoint``, its rows as a sparse
    matrix, and the same weights with mapped entries. Weights never change once built.

    Attributes:
        shape: (n, m).
        dtype: float32 or float64; every product is computed and returned in it.
        on_device: whether they are an array of another library than NumPy, and products are too.
        dense: whether zeros are stored like other entries.
        chunks: the chunks that W is held in (``weights.chunks``), or ``None`` if it is in one piece.
        chunked: whether these are whole rows, so that ``over_rows`` calls a function several times.
    """

    on_device: ClassVar[bool] = False
    dense: ClassVar[bool] = False
    chunks: Any = None
    chunked: bool = False

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype

    @property
    @abstractmethod
    def nnz(self) -> int:
        """The number of entries that are not zero."""

    def prototype(self) -> Any:
        """Return an empty array in the library, precision and place that products with W are in."""
        return np.empty(0, self.dtype)

    def forward(self, y: ArrayLike) -> Any:
        """Return W y for each vector of ``y``: (..., m) -> (..., n)."""
        return self._product(self._forward, "y", y, *self.shape)

    def adjoint(self, r: ArrayLike) -> Any:
        """Return W^T r for each vector of ``r``: (..., n) -> (..., m)."""
        return self._product(self._adjoint, "r", r, *self.shape[::-1])

    @abstractmethod
    def _forward(self, batch: Array) -> Array:
        """Return W y for each row y of ``batch``: (N, m) -> (N, n)."""

    @abstractmethod
    def _adjoint(self, batch: Array) -> Array:
        """Return W^T r for each row r of ``batch``: (N, n) -> (N, m)."""

    def __abs__(self) -> Weights:
        """Return the weights |w_ij|."""
        return self.mapped("abs")

    def square(self) -> Weights:
        """Return the weights w_ij^2."""
        return self.mapped("square")

    def support(self) -> Weights:
        """Return the weights that are 1 where w_ij is not zero, and 0 elsewhere."""
        return self.mapped("support")

    def in_double(self) -> Weights:
        """Return the weights in float64, themselves if they are."""
        return self if self.dtype == np.float64 else self.mapped("double")

    def mapped(self, name: str) -> Weights:
        """Return the weights after a map of ``ENTRY_MAPS``; |W| and W∘W, for which every evaluation asks, are kept."""
        if name not in ("abs", "square"):
            return self._with_map(name)
        if name not in self._kept:
            self._kept[name] = self._with_map(name)
        return self._kept[name]

    @cached_property
    def _kept(self) -> dict[str, Weights]:
        return {}

    @abstractmethod
    def _with_map(self, name: str) -> Weights:
        """Return the weights whose entries are those of W after a map of ``ENTRY_MAPS``.

        "double" changes their precision only. None is checked: the square of a finite entry may overflow, which an
        algorithm reports as its status.
        """

    def columns(self, indices: ArrayLike | None = None) -> scipy.sparse.csc_array:
        """Return the columns ``indices`` (all if None) as an (n, len(indices)) sparse array.

        It is canonical: sorted, without duplicates, without stored zeros. It may share memory with the
        weights, so it is for reading only.
        """
        return self._columns(None if indices is None else as_indices("columns", indices, self.shape[1]))

    def rows(self, indices: ArrayLike | None = None) -> scipy.sparse.csr_array:
        """Return the rows ``indices`` (all if None) as a (len(indices), m) sparse array, like ``columns``."""
        return self._rows(None if indices is None else as_indices("rows", indices, self.shape[0]))

    def _columns(self, indices: Array | None) -> scipy.sparse.csc_array:
        """Return the columns at integers within range, or all."""
        columns = self._rows(None).tocsc()
        return columns if indices is None else columns[:, indices]

    @abstractmethod
    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        """Return the rows at integers within range, or all."""

    def storage(self) -> Storage:
        """Return the arrays that hold W, for an engine to read in place; ``None`` if it has to ask for products."""
        return None

    def over_rows(self, function: Callable[..., Any], *rows: Array, shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return ``function(weights, *rows, *shared)`` for each chunk of W, with its part of each vector of rows."""
        return [function(self, *rows, *shared)]

    def sum_over_rows(self, function: Callable[..., Any], *rows: Array, shared: tuple[Any, ...] = ()) -> Any:
        """Return the sum of the same over the chunks."""
        return function(self, *rows, *shared)

    @property
    def stored(self) -> int:
        """The number of entries that a product reads."""
        return self.shape[0] * self.shape[1] if self.dense else self.nnz

    def entries(self) -> tuple[Array, Array, Array]:
        """Return the row, the column and the value of each entry that is not zero, sorted by row, then column."""
        matrix = self.rows()
        row = np.repeat(np.arange(self.shape[0]), np.diff(matrix.indptr))
        return row, matrix.indices.astype(np.int64), matrix.data

    def like(self, row: Array, column: Array, value: Array) -> Any:
        """Return the matrix of these entries in the form of W: a dense array if W is dense, else a CSR array."""
        matrix = scipy.sparse.csr_array((value, (row, column)), self.shape)
        return matrix.toarray() if self.dense else matrix

    def take_rows(self, indices: ArrayLike) -> Weights:
        """Return the chosen rows as weights, of the same kind if they can be."""
        from forestmix.weights.sparse import SparseWeights

        return SparseWeights(self.rows(indices))

    def dense_rows(self, indices: ArrayLike) -> Array:
        """Return the chosen rows, neighbours or not, as a dense array in float64."""
        return self.rows(indices).toarray().astype(np.float64, copy=False)

    def weighted_rows(self, kappa: Array) -> Iterator[Array]:
        """Yield ``diag(sqrt(kappa)) W`` in dense blocks of rows, in float64."""
        for block in blocks_of(self.shape[0], 24 * self.shape[1]):
            yield np.sqrt(kappa[block])[:, np.newaxis] * self.dense_rows(block)

    def gram(self, kappa: Array) -> Array:
        """Return the lower triangle of ``W^T diag(kappa) W``, (m, m) in Fortran order and float64.

        What is above the diagonal has no meaning.
        """
        n, m = self.shape
        if not self.dense and self.nnz <= SPARSE_DENSITY * n * m:
            return sparse_gram(self.rows(), kappa)
        return dense_gram(self.weighted_rows(kappa), m)

    def row_gram(self, scale: Array) -> Array:
        """Return the lower triangle of ``W diag(scale) W^T``, (n, n), likewise."""
        from forestmix.weights.sparse import SparseWeights

        return SparseWeights(self.columns().T).gram(scale)

    def toarray(self) -> Array:
        """Return W as a new dense array."""
        return self.rows().toarray()

    def __sizeof__(self) -> int:
        """Return about how many bytes of memory the entries take, for Dask to weigh what it may move."""
        return self.stored * (self.dtype.itemsize + (0 if self.dense else INDEX_BYTES))

    def __repr__(self) -> str:
        n, m = self.shape
        return f"{type(self).__name__}({n} x {m}, {self.dtype.name}, {self.nnz} nonzero)"

    def _product(self, product: Callable[..., Any], name: str, values: ArrayLike, size: int, length: int) -> Any:
        """Return the products, of ``size``, with vectors of ``length``, as batches in the precision of W."""
        array = in_precision(name, numbers(name, values), self.dtype)
        self._check_vectors(name, array.shape, length)
        lead = array.shape[:-1]
        # The size is given in full: -1 cannot be resolved when a leading axis is empty among several.
        return product(array.reshape(math.prod(lead), length)).reshape(*lead, size)

    def _check_vectors(self, name: str, shape: tuple[int, ...], length: int) -> None:
        if not shape or shape[-1] != length:
            raise ArgumentError(
                f"{name} must have last dimension {length}, for weights of shape {self.shape}; "
                f"got an array of shape {shape}."
            )


def as_indices(name: str, indices: ArrayLike, length: int) -> Array:
    """Return ``indices`` as a 1-d array of integers in [0, length)."""
    array = np.atleast_1d(numbers(f"indices of {name}", indices))
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ArgumentError(
            f"indices of {name} must be a 1-d sequence of integers; got shape {array.shape}, dtype {array.dtype}."
        )
    if array.size and (array.min() < 0 or array.max() >= length):
        raise ArgumentError(
            f"indices of {name} must lie in [0, {length}); got values from {array.min()} to {array.max()}."
        )
    return array.astype(np.int64, copy=False)
