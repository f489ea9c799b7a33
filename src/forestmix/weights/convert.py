"""What a user may pass as W, as weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import array_api_compat
import numpy as np
import scipy

from forestmix.arrays import finite, numbers
from forestmix.errors import ArgumentError
from forestmix.weights.arrays import ArrayWeights
from forestmix.weights.base import Weights
from forestmix.weights.chunked import ChunkedWeights
from forestmix.weights.chunks import MemoryChunks
from forestmix.weights.dask_chunks import dask_chunks, is_dask, is_future, memory_of_machine
from forestmix.weights.dense import DenseWeights
from forestmix.weights.sparse import SparseColumnWeights, SparseWeights

#: The part of this machine's memory from which on a memory map is read in chunks and not as one array.
LARGE_PART = 0.25


def as_weights(W: Any) -> Weights:
    """Return ``W`` as weights: weights themselves, anything of scipy.sparse, or what NumPy reads as 2-d.

    A dense array of PyTorch, JAX, CuPy or another library of the array API standard stays where it is. A list of
    matrices is one matrix in chunks of rows, a list of lists one in a grid of chunks; a Dask array, and delayed objects
    in such lists, stay with Dask's workers; a memory map that is large beside this machine's memory is read in chunks
    (docs/scaling.md).

    Raises:
        ArgumentError: if W is not 2-d, is empty, or has entries that are not finite real numbers.
    """
    if isinstance(W, Weights):
        return W
    if scipy.sparse.issparse(W):
        by_columns = getattr(W, "format", None) == "csc"
        return SparseColumnWeights(W) if by_columns else SparseWeights(W)
    rows = _rows_of_chunks(W)
    if rows is not None:
        return _in_chunks(rows)
    if isinstance(W, np.memmap) and W.flags.c_contiguous and W.nbytes > LARGE_PART * memory_of_machine():
        return ChunkedWeights.open(W)
    if not isinstance(W, np.ndarray) and array_api_compat.is_array_api_obj(W):
        return ArrayWeights(W)
    return DenseWeights(W)


def functionals(given: Any, m: int, name: str = "C") -> tuple[Weights, bool]:
    """Return vectors c as the rows of weights, and whether it was one without a leading axis; all latents for None."""
    if given is None:
        return SparseWeights(scipy.sparse.eye_array(m, format="csr")), False
    if not isinstance(given, Weights):
        is_sparse = bool(scipy.sparse.issparse(given))
        given = given if is_sparse else numbers(name, given)
        finite(f"entries of {name}" if is_sparse else name, given.tocoo().data if is_sparse else given)
    shape: tuple[int, ...] = given.shape
    if len(shape) not in (1, 2) or shape[-1] != m or shape[0] == 0:
        raise ArgumentError(f"{name} must have shape ({m},) or (K, {m}) for this model; got {shape}.")
    return as_weights(given if len(shape) == 2 else given.reshape(1, m)).in_double(), len(shape) == 1


def _rows_of_chunks(W: Any) -> list[list[Any]] | None:
    """Return the chunks of W by rows, or ``None`` if it is not in chunks."""
    if array_api_compat.is_dask_array(W):
        return [list(row) for row in W.to_delayed()]
    if not isinstance(W, list | tuple) or not W:
        return None
    if all(map(_is_chunk, W)):
        return [row for part in W for row in (_rows_of_chunks(part) or [[part]])]
    grid = all(isinstance(row, list | tuple) and row and all(map(_is_chunk, row)) for row in W)
    return [list(row) for row in W] if grid else None


def _is_chunk(part: Any) -> bool:
    """Return whether an entry of a list is a chunk of rows, rather than a row."""
    matrix = isinstance(part, np.ndarray) and part.ndim == 2
    return matrix or isinstance(part, Weights) or scipy.sparse.issparse(part) or _of_dask(part)


def _of_dask(part: Any) -> bool:
    return is_dask(part) or is_future(part)


def _in_chunks(rows: Sequence[Sequence[Any]]) -> ChunkedWeights:
    """Return a grid of chunks, given by rows, as one matrix; where one of them is Dask's, all are."""
    parts, columns = [part for row in rows for part in row], len(rows[0])
    if any(len(row) != columns for row in rows):
        found = sorted({len(row) for row in rows})
        raise ArgumentError(f"every row of chunks of W must have the same number of chunks; got {found}.")
    if not any(map(_of_dask, parts)):
        return ChunkedWeights(MemoryChunks([as_weights(part) for part in parts], columns))
    if not all(map(_of_dask, parts)):
        raise ArgumentError("chunks of W must be all of Dask or none of them; got both.")
    import dask

    return ChunkedWeights(dask_chunks(list(map(dask.delayed, parts)), as_weights, columns))
