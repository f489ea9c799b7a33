"""Chunks of rows that Dask computes: held by the workers of a cluster, or on this machine where there is none.

With a client of ``dask.distributed`` each chunk becomes a future of weights. A map is one task for each chunk, and a
sum is a tree of tasks. Everything a task takes is itself a task, so that the scheduler makes anew, by its own record of
how they came about, whatever a lost worker held; nothing is scattered, since scattered data have no such record.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from forestmix.errors import MissingExtraError
from forestmix.weights.base import Weights
from forestmix.weights.chunk_files import trusted_dense
from forestmix.weights.chunks import Chunks, ChunkShape, MemoryChunks, StreamedChunks

#: Chunks that one task of a sum adds up.
FAN_IN = 8
#: The part of this machine's memory up to which chunks are kept in it where there is no cluster.
KEPT_PART = 0.25

#: Bytes of vectors up to which each task brings its own copy: one message less to wait for.
SMALL_BYTES = 2**16

#: Bytes of an entry's column, of which dense weights have none; the size of a chunk need not be exact.
INDEX_BYTES = 4

Convert = Callable[[Any], Weights]


def dask_chunks(delayed: Sequence[Any], convert: Convert) -> Chunks:
    """Return chunks that are computed by Dask; ``convert`` makes weights of what a chunk is computed to.

    They go to the workers of the current client, if there is one; else they are computed on threads of this machine,
    once if they fit into its memory, and in every pass if they do not.
    """
    client = current_client()
    if client is not None:
        return ClusterChunks(client, delayed, convert)
    first = _computed(delayed[:1], convert)[0]
    if len(delayed) * first.stored * first.dtype.itemsize <= KEPT_PART * memory_of_machine():
        return MemoryChunks([first, *_computed(delayed[1:], convert)])
    return StreamedChunks([DelayedRows(part, convert, _shape(_computed([part], convert)[0])) for part in delayed])


class ClusterChunks(Chunks):
    """Chunks in the memory of workers; handles are futures."""

    def __init__(self, client: Any, delayed: Sequence[Any], convert: Convert) -> None:
        self.client = client
        computed = client.compute(list(delayed), optimize_graph=True)
        self.futures = [self._task(_held, convert, part) for part in computed]
        super().__init__(self.fetch([self._task(_call, _shape, (), part) for part in self.futures]))

    def place(self, parts: Sequence[Any]) -> list[Any]:
        """Return a task for each part that returns it: the scheduler can send it again."""
        return [self._task(_constant, part) for part in parts]

    def map(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Start a task for each chunk, on the worker that holds it; what is shared is sent once to each worker."""
        return self.derive(function, self.futures, *own, shared=shared)

    def derive(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Start a task for each chunk."""
        count = len(self.futures)
        common = shared if _size(shared) <= SMALL_BYTES else self._task(_constant, shared)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            given = [function] * count, [common] * count, *own
            return list(self.client.map(_call, *given, pure=False, batch_size=count))

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """Bring the objects to this process."""
        return list(self.client.gather(list(handles)))

    def total(self, handles: Sequence[Any], first: Callable[[Any], Any]) -> Any:
        """Add up in a tree, so that no worker and not this process takes the parts of all chunks."""
        level = [self._task(_sum_of, first, *handles[k : k + FAN_IN]) for k in range(0, len(handles), FAN_IN)]
        while len(level) > 1:
            level = [self._task(_sum_of, None, *level[k : k + FAN_IN]) for k in range(0, len(level), FAN_IN)]
        return level[0].result()

    def _task(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with warnings.catch_warnings():
            # Vectors of latents are a part of the graph on purpose: what is scattered is lost with its worker.
            warnings.filterwarnings("ignore", "Sending large graph")
            return self.client.submit(function, *arguments, pure=False)


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
            return trusted_dense(np.ascontiguousarray(found))
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


def delayed_rows(array: Any) -> list[Any]:
    """Return the row chunks of a Dask array as delayed objects; its column chunks are put together."""
    try:
        import dask.array  # noqa: F401
    except ImportError as error:  # pragma: no cover - whoever has a Dask array has Dask
        raise MissingExtraError("W as a Dask array needs Dask: pip install 'forestmix[dask]'.") from error
    whole = array if len(array.chunks[1]) == 1 else array.rechunk({1: -1})
    return list(whole.to_delayed()[:, 0])


def memory_of_machine() -> int:
    """Return the bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**33


def _computed(delayed: Sequence[Any], convert: Convert) -> list[Weights]:
    import dask

    return [convert(part) for part in dask.compute(*delayed, scheduler="threads")]


def _shape(weights: Weights) -> ChunkShape:
    return ChunkShape(*weights.shape, weights.dtype)


def _size(shared: tuple[Any, ...]) -> int:
    """Return the bytes of all arrays in arguments."""
    parts = (_size(part) if isinstance(part, tuple) else getattr(part, "nbytes", 0) for part in shared)
    return sum(parts)


@dataclass(frozen=True)
class HeldChunk:
    """Weights on a worker, of which Dask can tell the size: it weighs moving a task against moving what it needs."""

    weights: Weights

    def __sizeof__(self) -> int:
        return self.weights.stored * (self.weights.dtype.itemsize + INDEX_BYTES)


def _held(convert: Convert, found: Any) -> HeldChunk:
    return HeldChunk(convert(found))


def _constant(value: Any) -> Any:
    return value


def _call(function: Callable[..., Any], shared: tuple[Any, ...], *own: Any) -> Any:
    """Call a function on a worker; overflow is for the loop to judge."""
    given = (part.weights if isinstance(part, HeldChunk) else part for part in own)
    with np.errstate(all="ignore"):
        return function(*given, *shared)


def _sum_of(first: Callable[[Any], Any] | None, *parts: Any) -> Any:
    return reduce(add, parts if first is None else map(first, parts))
