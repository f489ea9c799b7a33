"""Chunks that Dask computes: held by the workers of a cluster, or on this machine where there is none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forestmix.weights.base import Weights
from forestmix.weights.chunks import Chunks, ChunkShape, MemoryChunks, StreamedChunks
from forestmix.weights.cluster import ClusterChunks, Convert, shape_of
from forestmix.weights.dense import DenseWeights

#: The part of this machine's memory up to which chunks are kept in it where there is no cluster.
KEPT_PART = 0.25


def dask_chunks(delayed: Sequence[Any], convert: Convert, columns: int = 1) -> Chunks:
    """Return chunks that are computed by Dask; ``convert`` makes weights of what a chunk is computed to.

    They go to the workers of the current client, if there is one; else they are computed on threads of this machine,
    once if they fit into its memory, and in every pass if they do not. ``columns``: how many are side by side.
    """
    client = current_client()
    if client is not None:
        return ClusterChunks(client, delayed, convert, columns)
    first = _computed(delayed[:1], convert)[0]
    if len(delayed) * first.stored * first.dtype.itemsize <= KEPT_PART * memory_of_machine():
        return MemoryChunks([first, *_computed(delayed[1:], convert)], columns)
    parts = [DelayedRows(part, convert, shape_of(_computed([part], convert)[0])) for part in delayed]
    return StreamedChunks(parts, columns)


@dataclass(frozen=True)
class DelayedRows:
    """A chunk that is computed by Dask on threads of this machine each time that it is needed."""

    delayed: Any
    convert: Convert
    shape: ChunkShape

    def load(self, *, trusted: bool) -> Weights:
        """Compute the rows."""
        found = self.delayed.compute(scheduler="threads")
        if trusted and isinstance(found, np.ndarray) and found.dtype == self.shape.dtype:
            return DenseWeights(np.ascontiguousarray(found), trusted=True)
        return self.convert(found)


def current_client() -> Any:
    """Return the current client of ``dask.distributed``, or ``None`` where there is none."""
    try:
        import distributed
    except ImportError:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


def is_dask(value: Any) -> bool:
    """Return whether a value is a collection of Dask, without importing it."""
    return hasattr(value, "__dask_graph__") and value.__dask_graph__() is not None


def is_future(value: Any) -> bool:
    """Return whether a value is a future of ``dask.distributed``, without importing it."""
    return type(value).__module__.startswith("distributed.") and hasattr(value, "key")


def memory_of_machine() -> int:
    """Return the bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**33


def _computed(delayed: Sequence[Any], convert: Convert) -> list[Weights]:
    import dask

    return [convert(part) for part in dask.compute(*delayed, scheduler="threads")]
