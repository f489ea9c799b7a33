"""Memory for the large arrays of a run, which each iteration makes anew.

What an iteration drops goes back to the system, and what the next one takes comes from there again, cleared, page by
page: with millions of latents that takes a sixth of a sparse iteration. So while a run is under way, memory that its
arrays no longer need is kept for others of the same size. After the last run nothing is kept.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from forestmix.arrays import Array

#: Bytes from which on memory is kept; with less, the allocator does as well.
LEAST = 2**20
#: Bytes from which on an array begins with a line of the cache, and bytes of such a line.
ALIGNED, LINE = 2**12, 64
#: How many pieces of a size are kept at most.
MOST = 8

_kept: dict[int, list[Array]] = {}
_runs, _lock = 0, threading.Lock()


@contextmanager
def reused() -> Iterator[None]:
    """Keep what is dropped for what comes next, as long as this lasts, in all threads."""
    global _runs
    with _lock:
        _runs += 1
    try:
        yield
    finally:
        with _lock:
            _runs -= 1
            if _runs == 0:
                forget()


def forget() -> None:
    """Give what is kept back to the system."""
    _kept.clear()


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array whose entries are still to be written, as ``np.empty`` does."""
    size = math.prod(shape) * dtype.itemsize
    if size < ALIGNED:
        return np.empty(shape, dtype)
    piece = _lent(size) if _runs and size >= LEAST else np.empty(size + LINE, np.uint8)
    first = -piece.ctypes.data % LINE
    return piece[first : first + size].view(dtype).reshape(shape)


def _lent(size: int) -> Array:
    try:
        piece = _kept[size].pop()
    except (KeyError, IndexError):
        piece = np.empty(size + LINE, np.uint8)
    return np.asarray(_Lent(piece))


class _Lent:
    """Memory that an array is using; every view of the array holds on to this."""

    def __init__(self, piece: Array) -> None:
        self.piece = piece
        self.__array_interface__ = piece.__array_interface__

    def __del__(self) -> None:
        if not _runs:
            return
        others = _kept.setdefault(self.piece.size - LINE, [])
        if len(others) < MOST:
            others.append(self.piece)
