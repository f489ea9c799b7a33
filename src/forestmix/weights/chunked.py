"""Weights in chunks of rows: in memory, in files larger than it, or with the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.weights.base import Weights
from forestmix.weights.blocks import blocks_of
from forestmix.weights.checks import positive_integer
from forestmix.weights.chunk_files import CHUNK_BYTES, dense_rows, sparse_rows
from forestmix.weights.chunks import Chunks, StreamedChunks

#: The maps of entries, by name: a name goes to a worker, and the map is made there.
MAPS: dict[str, Callable[[Weights], Weights]] = {
    "abs": abs,
    "square": lambda weights: weights.square(),
    "support": lambda weights: weights.support(),
    "double": lambda weights: weights.in_double(),
}


class ChunkedWeights(Weights):
    """Weights whose rows are in chunks, each of which is weights of its own kind.

    ``W y`` is put together from the chunks, ``W^T r`` is a sum over them; between them move vectors, never entries of
    W, but for those that are asked for by name (``rows``, ``columns``, ``toarray``).

    Args:
        chunks: the chunks, wherever they are.
        maps: names of the maps that entries pass, one after another.

    """

    def __init__(self, chunks: Chunks, maps: tuple[str, ...] = ()) -> None:
        rows = chunks.slices[-1].stop
        dtype = np.dtype(np.float64) if "double" in maps else chunks.shapes[0].dtype
        super().__init__((rows, chunks.shapes[0].columns), dtype)
        self._chunks, self._maps = chunks, maps

    @classmethod
    def open(cls, source: Any, chunk_bytes: int = CHUNK_BYTES) -> Self:
        """Return the weights in a file, which may be larger than memory; it is read anew in every pass.

        Args:
            source: the path of an ``.npy`` file, a memory map in C order, or an array of Zarr or HDF5.
            chunk_bytes: bytes that are read at a time.

        """
        return cls(StreamedChunks(dense_rows(source, positive_integer("chunk_bytes", chunk_bytes))))

    @classmethod
    def open_csr(cls, indptr: Any, indices: Any, data: Any, columns: int, chunk_bytes: int = CHUNK_BYTES) -> Self:
        """Return the sparse weights whose CSR arrays are ``.npy`` files or memory maps; ``columns`` is m."""
        size = positive_integer("chunk_bytes", chunk_bytes)
        return cls(StreamedChunks(sparse_rows(indptr, indices, data, positive_integer("columns", columns), size)))

    @property
    def chunks(self) -> Chunks | None:
        """The chunks, for an engine to compute with where they are; ``None`` for entries that a map has changed."""
        return None if self._maps else self._chunks

    @cached_property
    def nnz(self) -> int:
        """The number of entries that are not zero, for which all are read."""
        return int(self._sum(_count))

    @cached_property
    def stored(self) -> int:
        """The number of entries that a product reads."""
        return int(self._sum(_stored))

    def _forward(self, batch: Array) -> Array:
        return np.concatenate(self._each(_forward, batch), axis=1)

    def _adjoint(self, batch: Array) -> Array:
        parts = self._chunks.place([batch[:, rows] for rows in self._chunks.slices])
        return self._sum(_adjoint, parts)

    def __abs__(self) -> ChunkedWeights:
        return ChunkedWeights(self._chunks, (*self._maps, "abs"))

    def square(self) -> ChunkedWeights:
        """Return the weights w_ij^2."""
        return ChunkedWeights(self._chunks, (*self._maps, "square"))

    def support(self) -> ChunkedWeights:
        """Return the weights that are 1 where w_ij is not zero, and 0 elsewhere."""
        return ChunkedWeights(self._chunks, (*self._maps, "support"))

    def gram(self, kappa: Array) -> Array:
        """Return the lower triangle of ``W^T diag(kappa) W``, a sum over chunks."""
        return np.asfortranarray(self._sum(_gram, self._chunks.place([kappa[rows] for rows in self._chunks.slices])))

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
        if indices is None:
            return _stacked(self._each(_rows_of), "csr")
        order = np.argsort(indices, kind="stable")
        wanted = indices[order]
        ends = np.searchsorted(wanted, [rows.stop for rows in self._chunks.slices])
        own = [part - rows.start for part, rows in zip(np.split(wanted, ends[:-1]), self._chunks.slices, strict=True)]
        found = _stacked(self._fetched(_rows_of, self._chunks.place(own)), "csr")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return scipy.sparse.csr_array(found[back])

    def _columns(self, indices: Array | None) -> scipy.sparse.csc_array:
        return _stacked(self._each(_columns_of, indices), "csc")

    def __repr__(self) -> str:
        n, m = self.shape
        return f"{type(self).__name__}({n} x {m}, {self.dtype.name}, {len(self._chunks.slices)} chunks of rows)"

    def _each(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        return self._chunks.fetch(self._chunks.map(function, shared=(*shared, self._maps)))

    def _fetched(self, function: Callable[..., Any], parts: Sequence[Any]) -> list[Any]:
        return self._chunks.fetch(self._chunks.map(function, parts, shared=(self._maps,)))

    def _sum(self, function: Callable[..., Any], *own: Sequence[Any]) -> Any:
        return self._chunks.total(self._chunks.map(function, *own, shared=(self._maps,)), _itself)


def _itself(value: Any) -> Any:
    return value


def _mapped(weights: Weights, maps: tuple[str, ...]) -> Weights:
    for name in maps:
        weights = MAPS[name](weights)
    return weights


def _forward(weights: Weights, batch: Array, maps: tuple[str, ...]) -> Array:
    return _mapped(weights, maps).forward(batch)


def _adjoint(weights: Weights, batch: Array, maps: tuple[str, ...]) -> Array:
    return _mapped(weights, maps).adjoint(batch)


def _gram(weights: Weights, kappa: Array, maps: tuple[str, ...]) -> Array:
    return _mapped(weights, maps).gram(kappa)


def _count(weights: Weights, maps: tuple[str, ...]) -> int:
    return _mapped(weights, maps).nnz


def _stored(weights: Weights, maps: tuple[str, ...]) -> int:
    return _mapped(weights, maps).stored


def _rows_of(weights: Weights, *rest: Any) -> Any:
    *indices, maps = rest
    return _mapped(weights, maps).rows(*indices)


def _columns_of(weights: Weights, indices: Array | None, maps: tuple[str, ...]) -> Any:
    return _mapped(weights, maps).columns(indices)


def _stacked(parts: Sequence[Any], form: str) -> Any:
    """Return sparse matrices one below another, canonical as they are."""
    stack: Any = scipy.sparse.vstack  # its stubs want the format as a literal
    matrix = stack(parts, format=form)
    matrix.sort_indices()
    matrix.has_canonical_format = True
    return matrix
