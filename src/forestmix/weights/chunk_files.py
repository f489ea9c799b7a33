"""Rows of W in files: dense ``.npy``, the three ``.npy`` arrays of a CSR matrix, and whatever can be sliced."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from reprlib import repr as shown
from typing import Any, Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.weights.base import Weights
from forestmix.weights.checks import check_matrix_shape, floating_dtype
from forestmix.weights.chunks import ChunkShape
from forestmix.weights.dense import DenseWeights
from forestmix.weights.sparse import SparseWeights

#: Bytes of a chunk that is read into memory: little enough to stay in the cache between reading and computing.
CHUNK_BYTES = 2**21
#: Bytes of a mapped chunk, which takes no memory of its own: enough to hide the calls, and to be worth threads. Maps of
#: sparse entries are made whole where an engine asks for them, so there are fewer.
MAPPED_BYTES, MAPPED_CSR_BYTES = 2**26, 2**24


@dataclass(frozen=True)
class FileArray:
    """Numbers in a memory-mapped file, or rows of numbers, one after another.

    They are computed with where the system has the file in memory, and no copy is made. It brings them there, and takes
    their memory back when it is short of it.

    Attributes:
        path: the file.
        dtype: their precision.
        first: the byte of the file at which they begin.
        shape: of the numbers, of one axis or two.
    """

    path: str
    dtype: np.dtype[Any]
    first: int
    shape: tuple[int, ...]

    @classmethod
    def of(cls, given: np.memmap) -> Self:
        """Return a memory-mapped array in C order, which may be a part of a larger one."""
        if given.filename is None or not given.flags.c_contiguous:
            raise ArgumentError(
                "W must be a memory map of a file in C order: np.save(path, np.ascontiguousarray(W)) writes one, and "
                "np.load(path, mmap_mode='r') opens it."
            )
        whole = given.base if isinstance(given.base, np.memmap) else given
        # The attribute offset of a part is still that of the whole.
        first = whole.offset + given.ctypes.data - whole.ctypes.data
        return cls(os.fspath(given.filename), given.dtype, first, given.shape)

    @cached_property
    def _mapped(self) -> Any:
        return np.memmap(self.path, self.dtype, "r", self.first, self.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        # Whoever gets it opens the file: a memory map by itself would go along as a copy of all numbers.
        return type(self), (self.path, self.dtype, self.first, self.shape)

    def __getitem__(self, rows: slice) -> Array:
        """Return some of the numbers, or rows, which the system reads if they are not in memory."""
        each = math.prod(self.shape[1:])
        first, last = (self.first + place * each * self.dtype.itemsize for place in (rows.start, rows.stop))
        with open(self.path, "rb") as file:
            # To touch a page past the end of a file would end the process.
            if os.fstat(file.fileno()).st_size < last:
                raise ArgumentError(f"W must be whole; the file {self.path} ends before entry {rows.stop * each}.")
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), first, last - first, os.POSIX_FADV_WILLNEED)
        part = np.asarray(self._mapped[rows])
        return np.asarray(_Unlocked(part)) if part.flags.aligned else part.copy()


class _Unlocked:
    """A read-only array that does not say so: kernels are compiled once for both kinds, and none writes to W."""

    def __init__(self, part: Array) -> None:
        self.part, interface = part, part.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


@dataclass(frozen=True)
class DenseRows:
    """Rows ``start`` to ``stop`` of a dense matrix in a file: a ``FileArray``, or what has a dtype and slices."""

    entries: Any
    start: int
    stop: int
    columns: int

    @property
    def shape(self) -> ChunkShape:
        """The shape of these rows."""
        return ChunkShape(self.stop - self.start, self.columns, np.dtype(self.entries.dtype))

    def load(self, *, trusted: bool) -> Weights:
        """Read the rows."""
        return DenseWeights(np.ascontiguousarray(self.entries[self.start : self.stop]), trusted=trusted)


@dataclass
class SparseRows:
    """Some rows of a CSR matrix whose three arrays are in files; ``indptr`` of these rows is in memory.

    ``canonical``: whether they were found in order, with no entry twice and none that is zero.
    """

    indptr: Array
    indices: Any
    data: Any
    columns: int
    canonical: bool = False

    @property
    def shape(self) -> ChunkShape:
        """The shape of these rows."""
        return ChunkShape(len(self.indptr) - 1, self.columns, np.dtype(self.data.dtype))

    def load(self, *, trusted: bool) -> Weights:
        """Read the rows."""
        own = slice(int(self.indptr[0]), int(self.indptr[-1]))
        data, indices = (np.ascontiguousarray(part[own]) for part in (self.data, self.indices))
        matrix = scipy.sparse.csr_array((data, indices, self.indptr - self.indptr[0]), shape=self.shape[:2])
        weights = SparseWeights(matrix, trusted=trusted and self.canonical)
        self.canonical = np.may_share_memory(weights.matrix.data, matrix.data)
        return weights


def dense_rows(source: Any, chunk_bytes: int | None) -> list[DenseRows]:
    """Return the chunks of a dense matrix: a path of an ``.npy`` file, a memory map, or what can be sliced."""
    array = np.load(source, mmap_mode="r") if isinstance(source, str | Path) else source
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise ArgumentError(
            f"W must be the path of an .npy file, a memory map, or an array of Zarr or HDF5; got {shown(source)}."
        )
    n, m = check_matrix_shape("W", tuple(array.shape))
    row_bytes = floating_dtype("the dtype of W", array.dtype).itemsize * m
    if isinstance(array, np.memmap):
        cuts = _cuts(np.arange(n + 1) * row_bytes, chunk_bytes or MAPPED_BYTES)
    else:
        # What is stored in chunks is read in whole ones: a part of one costs as much as all of it.
        each = (getattr(array, "chunks", None) or (1,))[0]
        step = max(1, (chunk_bytes or CHUNK_BYTES) // (row_bytes * each)) * each
        cuts = ((start, min(start + step, n)) for start in range(0, n, step))
    entries = _opened(array)
    return [DenseRows(entries, *cut, m) for cut in cuts]


def sparse_rows(indptr: Any, indices: Any, data: Any, columns: int, chunk_bytes: int | None) -> list[SparseRows]:
    """Return the chunks of a CSR matrix whose arrays are paths of ``.npy`` files, memory maps, or can be sliced."""
    opened = [np.load(part, mmap_mode="r") if isinstance(part, str | Path) else part for part in (indices, data)]
    starts = np.load(indptr) if isinstance(indptr, str | Path) else np.asarray(indptr[:])
    floating_dtype("the dtype of data", opened[1].dtype)
    if starts.ndim != 1 or not len(starts) or starts[0] != 0 or (starts[1:] < starts[:-1]).any():
        raise ArgumentError("indptr must be one row of integers that begin with 0 and never fall.")
    counts = [part.shape[0] for part in opened]  # arrays of Zarr have no length
    if not counts[0] == counts[1] == starts[-1]:
        raise ArgumentError(
            f"indices and data must have indptr[-1] = {starts[-1]} entries each; got {counts[0]} and {counts[1]}."
        )
    places, entries = map(_opened, opened)
    each = np.dtype(places.dtype).itemsize + np.dtype(entries.dtype).itemsize
    mapped = isinstance(places, FileArray) and isinstance(entries, FileArray)
    size = chunk_bytes or (MAPPED_CSR_BYTES if mapped else CHUNK_BYTES)
    return [SparseRows(starts[a : b + 1], places, entries, columns) for a, b in _cuts(starts * each, size)]


def _opened(array: Any) -> Any:
    return FileArray.of(array) if isinstance(array, np.memmap) else array


def _cuts(starts: Array, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of about ``chunk_bytes``, of one row at least; row i has bytes from ``starts[i]`` on."""
    first, rows = 0, len(starts) - 1
    while first < rows:
        end = int(np.searchsorted(starts, starts[first] + chunk_bytes, side="right")) - 1
        end = min(max(end, first + 1), rows)
        yield first, end
        first = end
