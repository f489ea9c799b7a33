"""Weights in chunks of rows, or of rows and columns: in memory, in larger files, or with the workers of a cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.checks import whole_number
from forestmix.weights.base import Weights
from forestmix.weights.blocks import blocks_of
from forestmix.weights.chunk_files import dense_rows, sparse_rows
from forestmix.weights.chunks import Chunks, StreamedChunks


class ChunkedWeights(Weights):
    """Weights in chunks of rows, or in a grid over rows and columns; each chunk is weights of its own kind.

    ``W y`` is a sum over the columns of chunks, ``W^T r`` one over the rows of chunks; between them move vectors, never
    entries of W, but for those that are asked for by name (``rows``, ``columns``, ``toarray``), and where chunks are
    side by side for ``gram``, whose products take two of them.

    Args:
        chunks: the chunks, wherever they are.

    """

    def __init__(self, chunks: Chunks) -> None:
        super().__init__((chunks.slices[-1].stop, chunks.columns[-1].stop), chunks.shapes[0].dtype)
        self.chunks, self.chunked = chunks, len(chunks.columns) == 1

    @classmethod
    def open(cls, source: Any, chunk_bytes: int | None = None) -> Self:
        """Return the weights in a file, which may be larger than memory; it is read anew in every pass.

        Args:
            source: the path of an ``.npy`` file, a memory map in C order, or an array of Zarr or HDF5.
            chunk_bytes: bytes that are read at a time; 64 MB of a map, 2 MB of others when left out.

        """
        return cls(StreamedChunks(dense_rows(source, whole_number("chunk_bytes", chunk_bytes, optional=True))))

    @classmethod
    def open_csr(cls, indptr: Any, indices: Any, data: Any, columns: int, chunk_bytes: int | None = None) -> Self:
        """Return the sparse weights with these CSR arrays: ``.npy`` files, memory maps, arrays of Zarr or HDF5.

        ``columns`` is m; ``chunk_bytes``: 16 MB of maps, 2 MB of others when left out.
        """
        size = whole_number("chunk_bytes", chunk_bytes, optional=True)
        return cls(StreamedChunks(sparse_rows(indptr, indices, data, whole_number("columns", columns), size)))

    def over_rows(self, function: Callable[..., Any], *rows: Array, shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return ``function(weights, *rows, *shared)`` for each chunk of W, with its part of each vector of rows."""
        if not self.chunked:
            return super().over_rows(function, *rows, shared=shared)
        return self.chunks.fetch(self.chunks.map(function, *self._own(rows), shared=shared))

    def sum_over_rows(self, function: Callable[..., Any], *rows: Array, shared: tuple[Any, ...] = ()) -> Any:
        """Return the sum of the same over the chunks."""
        if not self.chunked:
            return super().sum_over_rows(function, *rows, shared=shared)
        return self.chunks.mapped_total(function, *self._own(rows), shared=shared)

    def _own(self, rows: tuple[Array, ...]) -> list[list[Any]]:
        """Bring to each chunk its part of vectors of rows."""
        return [self.chunks.place([part[own] for own in self.chunks.slices]) for part in rows]

    @cached_property
    def nnz(self) -> int:
        """The number of entries that are not zero, for which all are read."""
        return int(self.chunks.total(self._map("nnz")))

    @cached_property
    def stored(self) -> int:
        """The number of entries that a product reads."""
        return int(self.chunks.total(self._map("stored")))

    def _forward(self, batch: Array) -> Array:
        chunks = self.chunks
        parts = self._map("forward", chunks.to_columns(chunks.place([batch[:, own] for own in chunks.columns])))
        return np.concatenate(chunks.fetch(chunks.sums(chunks.by_row(parts))), axis=1)

    def _adjoint(self, batch: Array) -> Array:
        chunks = self.chunks
        parts = self._map("adjoint", chunks.to_rows(chunks.place([batch[:, own] for own in chunks.slices])))
        return np.concatenate(chunks.fetch(chunks.sums(chunks.by_column(parts))), axis=1)

    def _with_map(self, name: str) -> ChunkedWeights:
        return ChunkedWeights(self.chunks.mapped(name))

    def gram(self, kappa: Array) -> Array:
        """Return the lower triangle of ``W^T diag(kappa) W``, a sum over chunks of rows.

        A block off the diagonal is made of two chunks that are side by side, of which one is moved.
        """
        chunks, count = self.chunks, len(self.chunks.columns)
        weights = chunks.to_rows(chunks.place([kappa[own] for own in chunks.slices]))
        diagonal = chunks.by_column(self._map("gram", weights))
        held, result = chunks.by_column(chunks.held), np.zeros((self.shape[1],) * 2, order="F")
        for (j, own), (k, other) in itertools.product(enumerate(chunks.columns), repeat=2):
            if j > k:
                result[own, other] = chunks.total(chunks.derive(_cross_gram, held[j], held[k], weights[::count]))
            elif j == k:
                result[own, own] = chunks.total(diagonal[j])
        return result

    def row_gram(self, scale: Array) -> Array:
        """Return ``W diag(scale) W^T`` by products with some unit vectors at a time."""
        (n, m), wide = self.shape, self.in_double()
        result = np.empty((n, n), order="F")
        for block in blocks_of(n, 16 * (n + m)):
            units = np.zeros((len(block), n))
            units[np.arange(len(block)), block] = 1
            result[:, block] = wide.forward(scale * wide.adjoint(units)).T
        return result

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        chunks, chosen = self.chunks, np.arange(self.shape[0]) if indices is None else indices
        order = np.argsort(chosen, kind="stable")
        ends = np.searchsorted(chosen, [own.stop for own in chunks.slices], sorter=order)
        parts = [chosen[part] - own.start for part, own in zip(np.split(order, ends[:-1]), chunks.slices, strict=True)]
        found = chunks.fetch(self._map("rows", chunks.to_rows(chunks.place(parts))))
        matrix: Any = scipy.sparse.block_array(chunks.by_row(found), format="csr")
        matrix = matrix[np.argsort(order)]
        matrix.sort_indices()
        matrix.has_canonical_format = True
        return matrix

    def __sizeof__(self) -> int:
        return 0 if isinstance(self.chunks, StreamedChunks) else super().__sizeof__()

    def __repr__(self) -> str:
        (n, m), (rows, columns) = self.shape, map(len, (self.chunks.slices, self.chunks.columns))
        grid = f"{rows} chunks of rows" if columns == 1 else f"{rows} x {columns} chunks"
        return f"{type(self).__name__}({n} x {m}, {self.dtype.name}, {grid})"

    def _map(self, name: str, *own: Sequence[Any]) -> list[Any]:
        """Return handles of what a method of each chunk gives, or of a property."""
        return self.chunks.map(_asked, *own, shared=(name,))


def _asked(weights: Weights, *given: Any) -> Any:
    """Return what a method of the weights gives, or a property of theirs."""
    *own, name = given
    found = getattr(weights, name)
    return found(*own) if callable(found) else found


def _cross_gram(first: Any, second: Any, kappa: Array) -> Array:
    """Return ``A^T diag(kappa) B`` of two chunks of the same rows, in float64."""
    left, right = (one if isinstance(one, Weights) else one.load(trusted=True) for one in (first, second))
    result, wide = np.empty((left.shape[1], right.shape[1])), left.in_double()
    for block in blocks_of(right.shape[1], 24 * len(kappa)):
        result[:, block] = wide.adjoint(kappa * right.columns(block).toarray().T.astype(np.float64)).T
    return result
