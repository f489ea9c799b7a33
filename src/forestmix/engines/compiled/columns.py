"""W by columns, for sweeps: the arrays of a CSC matrix, or a dense array read where it lies.

Columns of a dense array in column order are slices of it. In row order, one column at a time would read a whole cache
line for each entry, so the next ``PANEL`` columns of a sweep are gathered together: that is the only copy, ``PANEL``
vectors of length n for each thread.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.weights.base import Weights
from forestmix.weights.storage import DenseStorage, SparseStorage

#: How many columns of an array in row order are gathered at a time: two cache lines of each row in float64.
PANEL = 16
#: Vectors of a panel lie this much further apart than they are long, lest they meet in the same lines of a cache.
_GAP = 24
_TILE = 32


class Columns(NamedTuple):
    """W as the sweeps read it.

    For a CSC matrix ``starts``, ``rows`` and ``values`` are its arrays and both steps are 0. For a dense array ``rows``
    counts from 0 to n - 1, ``values`` are the entries as they lie in memory, and the steps lead from an entry to the
    next of its column, ``row_step``, and to the next of its row, ``column_step``.
    """

    starts: Array
    rows: Array
    values: Array
    row_step: int
    column_step: int


class Panel(NamedTuple):
    """Columns gathered from an array in row order, and for which positions of the sweep: ``held[0]`` to ``held[1]``."""

    values: Array
    held: Array


def columns_of(weights: Weights, storage: Any) -> Columns:
    """Return W as columns: a dense array where it lies, all others as a CSC matrix."""
    if isinstance(storage, DenseStorage):
        n = weights.shape[0]
        # The array is that of W or, by columns, that of its transpose.
        steps = (1, storage.array.shape[1]) if storage.transposed else (storage.array.shape[1], 1)
        return Columns(np.zeros(1, np.int32), np.arange(n, dtype=np.uint32), storage.array.reshape(-1), *steps)
    if isinstance(storage, SparseStorage) and storage.transposed:
        return _sparse(storage.indptr, storage.indices, storage.data)
    matrix = weights.columns()
    return _sparse(matrix.indptr, matrix.indices, matrix.data)


def rows_of(weights: Weights, storage: Any) -> Columns:
    """Return W by rows, the columns of its transpose; nothing for a dense array, which has both."""
    if isinstance(storage, DenseStorage):
        return _sparse(np.zeros(1, np.int32), np.zeros(0, np.int32), storage.array.reshape(-1)[:0])
    matrix = weights.rows()
    return _sparse(matrix.indptr, matrix.indices, matrix.data)


def _sparse(starts: Array, rows: Array, values: Array) -> Columns:
    # Unsigned indices need no test for being negative.
    return Columns(starts, rows.view(np.dtype(f"u{rows.dtype.itemsize}")), values, 0, 0)


@njit(inline="always")
def is_dense(columns):  # type: ignore[no-untyped-def]
    """Return whether the columns are those of a dense array."""
    return columns.row_step > 0


@njit(inline="always")
def new_panel(columns):  # type: ignore[no-untyped-def]
    """Return a panel that holds nothing yet; it has no memory where none is needed."""
    size = PANEL * (columns.rows.shape[0] + _GAP) if columns.row_step > 1 else 0
    return Panel(np.empty(size, columns.values.dtype), np.zeros(2, np.int64))


@njit(forceinline=True, nogil=True)
def column(columns, members, position, panel):  # type: ignore[no-untyped-def]
    """Return the rows and the entries of the column ``members[position]``; entries of a dense one may be zero."""
    j, n = members[position], columns.rows.shape[0]
    if columns.row_step == 0:
        low, high = columns.starts[j], columns.starts[j + 1]
        return columns.rows[low:high], columns.values[low:high]
    if columns.row_step == 1:
        low = j * columns.column_step
        return columns.rows, columns.values[low : low + n]
    if position < panel.held[0] or position >= panel.held[1]:
        _gather(columns, members, position, panel)
    low = (position - panel.held[0]) * (n + _GAP)
    return columns.rows, panel.values[low : low + n]


@njit(nogil=True)
def _gather(columns, members, position, panel):  # type: ignore[no-untyped-def]
    """Copy the columns of the next positions into the panel, walking along the rows."""
    n, count = columns.rows.shape[0], min(PANEL, members.shape[0] - position)
    panel.held[0], panel.held[1] = position, position + count
    # A tile of rows at a time: its cache lines are read once and serve all columns, and are written whole.
    for low in range(0, n, _TILE):
        high = min(low + _TILE, n)
        for c in range(count):
            source, target = members[position + c] * columns.column_step, c * (n + _GAP)
            for i in range(low, high):
                panel.values[target + i] = columns.values[source + i * columns.row_step]


@njit(inline="always")
def keep_together(panel, low, high):  # type: ignore[no-untyped-def]
    """Let the panel begin anew at ``low`` where it holds only some of the positions from there to ``high``."""
    if panel.held[0] <= low < panel.held[1] < high:
        panel.held[1] = panel.held[0]
