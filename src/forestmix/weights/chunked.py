"""Weights in chunks of rows, or of rows and columns: in memory, in larger files, or with the workers of a cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
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

#: The maps of entries, by name: a name goes to a worker, and the map is made there.
MAPS: dict[str, Callable[[Weights], Weights]] = {
    "abs": abs,
    "square": lambda weights: weights.square(),
    "support": lambda weights: weights.support(),
    "double": lambda weights: weights.in_double(),
}


class ChunkedWeights(Weights):
    """Weights in chunks of rows, or in a grid over rows and columns; each chunk is weights of its own kind.

    ``W y`` is a sum over the columns of chunks, ``W^T r`` one over the rows of chunks; between them move vectors, never
    entries of W, but for those that are asked for by name (``rows``, ``columns``, ``toarray``), and where chunks are
    side by side for ``gram``, whose products take two of them.

    Args:
        chunks: the chunks, wherever they are.
        maps: names of the maps that entries pass, one after another.

    """

    def __init__(self, chunks: Chunks, maps: tuple[str, ...] = ()) -> None:
        dtype = np.dtype(np.float64) if "double" in maps else chunks.shapes[0].dtype
        super().__init__((chunks.slices[-1].stop, chunks.columns[-1].stop), dtype)
        self._chunks, self._maps = chunks, maps

    @classmethod
    def open(cls, source: Any, chunk_bytes: int | None = None) -> Self:
        """Return the weights in a file, which may be larger than memory; it is read anew in every pass.

        Args:
            source: the path of an ``.npy`` file, a memory map in C order, or an array of Zarr or HDF5.
            chunk_bytes: bytes that are read at a time; 64 MB of a map, 2 MB of others when left out.

        """
        return cls(StreamedChunks(dense_rows(source, _size(chunk_bytes))))

    @classmethod
    def open_csr(cls, indptr: Any, indices: Any, data: Any, columns: int, chunk_bytes: int | None = None) -> Self:
        """Return the sparse weights with these CSR arrays: ``.npy`` files, memory maps, arrays of Zarr or HDF5.

        ``columns`` is m; ``chunk_bytes``: 16 MB of maps, 2 MB of others when left out.
        """
        size = _size(chunk_bytes)
        return cls(StreamedChunks(sparse_rows(indptr, indices, data, whole_number("columns", columns), size)))

    @property
    def chunks(self) -> Chunks | None:
        """The chunks, for an engine to compute with where they are; ``None`` for entries that a map has changed."""
        return None if self._maps else self._chunks

    @property
    def chunked(self) -> bool:
        """Whether W is in chunks of whole rows."""
        return len(self._chunks.columns) == 1

    def over_rows(self, function: Callable[..., Any], *rows: Array, shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return ``function(weights, *rows, *shared)`` for each chunk of W, with its part of each vector of rows."""
        if not self.chunked:
            return super().over_rows(function, *rows, shared=shared)
        given = (shared, function, self._maps)
        return self._chunks.fetch(self._chunks.map(_applied, *self._own(rows), shared=given))

    def sum_over_rows(self, function: Callable[..., Any], *rows: Array, shared: tuple[Any, ...] = ()) -> Any:
        """Return the sum of the same over the chunks."""
        if not self.chunked:
            return super().sum_over_rows(function, *rows, shared=shared)
        return self._chunks.mapped_total(_applied, *self._own(rows), shared=(shared, function, self._maps))

    def _own(self, rows: tuple[Array, ...]) -> list[list[Any]]:
        """Bring to each chunk its part of vectors of rows."""
        return [self._chunks.place([part[own] for own in self._chunks.slices]) for part in rows]

    @cached_property
    def nnz(self) -> int:
        """The number of entries that are not zero, for which all are read."""
        return int(self._chunks.total(self._map("nnz")))

    @cached_property
    def stored(self) -> int:
        """The number of entries that a product reads."""
        return int(self._chunks.total(self._map("stored")))

    def _forward(self, batch: Array) -> Array:
        chunks = self._chunks
        parts = self._map("forward", chunks.to_columns(chunks.place([batch[:, own] for own in chunks.columns])))
        return np.concatenate(chunks.fetch(chunks.sums(chunks.by_row(parts))), axis=1)

    def _adjoint(self, batch: Array) -> Array:
        chunks = self._chunks
        parts = self._map("adjoint", chunks.to_rows(chunks.place([batch[:, own] for own in chunks.slices])))
        return np.concatenate(chunks.fetch(chunks.sums(chunks.by_column(parts))), axis=1)

    def _with_map(self, name: str) -> ChunkedWeights:
        return ChunkedWeights(self._chunks, (*self._maps, name))

    def gram(self, kappa: Array) -> Array:
        """Return the lower triangle of ``W^T diag(kappa) W``, a sum over chunks of rows.

        A block off the diagonal is made of two chunks that are side by side, of which one is moved.
        """
        chunks, count = self._chunks, len(self._chunks.columns)
        weights = chunks.to_rows(chunks.place([kappa[own] for own in chunks.slices]))
        diagonal = chunks.by_column(self._map("gram", weights))
        held, result = chunks.by_column(chunks.held), np.zeros((self.shape[1],) * 2, order="F")
        for (j, own), (k, other) in itertools.product(enumerate(chunks.columns), repeat=2):
            if j >= k:
                parts = diagonal[j] if j == k else chunks.derive(
                    _cross_gram, held[j], held[k], weights[::count], shared=(self._maps,)
                )  # fmt: skip
                result[own, other] = chunks.total(parts)
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

    def weighted_rows(self, kappa: Array) -> Iterator[Array]:
        """Yield ``diag(sqrt(kappa)) W`` in dense blocks of rows within one chunk, in float64."""
        for rows in self._chunks.slices:
            for block in blocks_of(rows.stop - rows.start, 24 * self.shape[1]):
                chosen = block + rows.start
                yield np.sqrt(kappa[chosen])[:, np.newaxis] * self.dense_rows(chosen)

    def _in_double(self) -> ChunkedWeights:
        return ChunkedWeights(self._chunks, (*self._maps, "double"))

    def _rows(self, indices: Array | None) -> scipy.sparse.csr_array:
        chunks = self._chunks
        own, back = _split(indices, chunks.slices)
        found = self._joined("rows", chunks.to_rows(chunks.place(own)), "csr")
        return found if back is None else _canonical(found[back])

    def _columns(self, indices: Array | None) -> scipy.sparse.csc_array:
        chunks = self._chunks
        own, back = _split(indices, chunks.columns)
        found = self._joined("columns", chunks.to_columns(chunks.place(own)), "csc")
        return found if back is None else _canonical(found[:, back])

    def __repr__(self) -> str:
        (n, m), (rows, columns) = self.shape, map(len, (self._chunks.slices, self._chunks.columns))
        grid = f"{rows} chunks of rows" if columns == 1 else f"{rows} x {columns} chunks"
        return f"{type(self).__name__}({n} x {m}, {self.dtype.name}, {grid})"

    def _map(self, name: str, *own: Sequence[Any]) -> list[Any]:
        """Return handles of what a method of each chunk gives, or of a property."""
        return self._chunks.map(_asked, *own, shared=(name, self._maps))

    def _joined(self, name: str, own: Sequence[Any], form: str) -> Any:
        """Return the matrix of the sparse matrices that a method of each chunk gives."""
        stack: Any = scipy.sparse.block_array  # its stubs want the format as a literal
        return _canonical(stack(self._chunks.by_row(self._chunks.fetch(self._map(name, own))), format=form))


def _size(chunk_bytes: int | None) -> int | None:
    return None if chunk_bytes is None else whole_number("chunk_bytes", chunk_bytes)


def _split(indices: Array | None, slices: Sequence[slice]) -> tuple[list[Any], Array | None]:
    """Return the sorted indices within each chunk, and where among all of them each one of ``indices`` is."""
    if indices is None:
        return [None] * len(slices), None
    order = np.argsort(indices, kind="stable")
    wanted = indices[order]
    ends = np.searchsorted(wanted, [own.stop for own in slices])
    parts = [part - own.start for part, own in zip(np.split(wanted, ends[:-1]), slices, strict=True)]
    return parts, np.argsort(order)


def _mapped(weights: Weights, maps: tuple[str, ...]) -> Weights:
    for name in maps:
        weights = MAPS[name](weights)
    return weights


def _applied(weights: Weights, *given: Any) -> Any:
    *own, shared, function, maps = given
    return function(_mapped(weights, maps), *own, *shared)


def _asked(weights: Weights, *given: Any) -> Any:
    """Return what a method of the weights gives, or a property of theirs."""
    *own, name, maps = given
    found = getattr(_mapped(weights, maps), name)
    return found(*own) if callable(found) else found


def _cross_gram(first: Any, second: Any, kappa: Array, maps: tuple[str, ...]) -> Array:
    """Return ``A^T diag(kappa) B`` of two chunks of the same rows, in float64."""
    loaded = (one if isinstance(one, Weights) else one.load(trusted=True) for one in (first, second))
    left, right = (_mapped(one, maps) for one in loaded)
    result, wide = np.empty((left.shape[1], right.shape[1])), left.in_double()
    for block in blocks_of(right.shape[1], 24 * len(kappa)):
        result[:, block] = wide.adjoint(kappa * right.columns(block).toarray().T.astype(np.float64)).T
    return result


def _canonical(matrix: Any) -> Any:
    """Return a sparse matrix, whose entries are all different, as canonical."""
    matrix.sort_indices()
    matrix.has_canonical_format = True
    return matrix
