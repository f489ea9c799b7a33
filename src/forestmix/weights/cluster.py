"""Chunks in the memory of the workers of a cluster of Dask.

Each chunk is a future of weights. A map is one task for each chunk, and a sum is a tree of tasks. Everything a task
takes is itself a task or goes along with it, so that the scheduler makes anew, by its own record of how things came
about, whatever a lost worker held; nothing is scattered, since scattered data have no such record.
"""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from types import FunctionType
from typing import Any

import numpy as np

from forestmix.weights.base import Weights
from forestmix.weights.chunks import Chunks, ChunkShape, StreamedChunks, Turn

#: Chunks that one task of a sum adds up.
FAN_IN = 8
#: Bytes of vectors up to which each task brings its own copy: one task less for the scheduler.
SMALL_BYTES = 2**16
#: Bytes of an entry's column in a chunk that is not full; the size of a chunk need not be exact.
INDEX_BYTES = 4
#: Bytes that stand for a chunk in a file.
IN_A_FILE = 2**8
#: Seconds after which it is looked up again which worker holds which chunk.
LOOK_AGAIN = 10.0

Convert = Callable[[Any], Weights]


class ClusterChunks(Chunks):
    """Chunks in the memory of workers; handles are futures, or tasks that are sent together once one is asked for.

    So a map, the sum of what it gives, and whatever lies between them are one graph: one message to the scheduler.
    """

    def __init__(self, client: Any, delayed: Sequence[Any], convert: Convert, columns: int = 1) -> None:
        self.client = client
        self._where: dict[str, str] = {}
        self._looked = -np.inf
        computed = [Remote(None, future=one) for one in _spread(client, delayed)]
        self.held = self.derive(_held, computed, shared=(convert,))
        super().__init__(self.fetch(self.derive(shape_of, self.held)), columns)

    def place(self, parts: Sequence[Any]) -> list[Any]:
        """Return the parts as they go along with tasks; a large one is a task of its own."""
        return [Remote(Call(_constant, (part,))) if _size(part) > SMALL_BYTES else Arguments((part,)) for part in parts]

    def map(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return a task for each chunk, on the worker that holds it."""
        return self.derive(function, self.held, *own, shared=shared)

    def derive(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return a task for each; what is shared is sent once to each worker, or with each task if it is small."""
        given = Arguments(shared) if _size(shared) <= SMALL_BYTES else Remote(Call(_constant, (Arguments(shared),)))
        return [Remote(Call(function), [*mine, given]) for mine in zip(*own, strict=True)]

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """Send the tasks behind these handles, and bring what they give to this process."""
        self._send([one for one in handles if isinstance(one, Remote)])
        found = self.client.gather([one.future if isinstance(one, Remote) else one for one in handles])
        return [_opened(one)[0] for one in found]

    def sums(
        self, groups: Sequence[Sequence[Any]], first: Callable[[Any], Any] | None = None, *, once: bool = False
    ) -> list[Any]:
        """Add up in trees, so that no worker and not this process takes the parts of all chunks."""
        # What is not summed, such as terms of rows, stays where it is: ``first`` is a task beside it.
        found = [_tree(list(group) if first is None else self.derive(first, group)) for group in groups]
        for one in found:
            one.inside = once and one.future is None
        return found

    def without_waiting(
        self, turn: Turn, states: Sequence[Any], told: Callable[[Any], Any], rows: Any, turns: int
    ) -> list[Any]:
        """Start the next turn of a chunk when its last one has ended, with what the others have told by then."""
        from distributed import as_completed

        latest, heard, left = list(states), self.derive(told, states), [turns] * len(states)
        self._send([*latest, *heard])
        ended = as_completed([one.future for one in heard])
        whose = {one.key: (k, one) for k, one in enumerate(heard)}
        for future in ended:
            k, told_last = whose.pop(future.key)
            heard[k] = told_last
            if left[k] > 0:
                latest[k] = Remote(Call(turn), [self.held[k], latest[k], rows, *heard])
                coming = self.derive(told, [latest[k]])[0]
                self._send([coming])
                whose[coming.key], left[k] = (k, coming), left[k] - 1
                ended.add(coming.future)
        return latest

    def _send(self, wanted: Sequence[Remote]) -> None:
        """Send the tasks that were not sent yet as one graph."""
        tasks: dict[str, Remote] = {}
        waiting = list(wanted)
        while waiting:
            one = waiting.pop()
            if one.future is None and one.key not in tasks:
                tasks[one.key] = one
                waiting += one.needed()
        if not tasks:
            return
        import dask

        graph = {key: one.task() for key, one in tasks.items()}
        with dask.annotate(workers=self._places(tasks), allow_other_workers=True), warnings.catch_warnings():
            # Vectors of latents are a part of the graph on purpose: what is scattered is lost with its worker.
            warnings.filterwarnings("ignore", "Sending large graph")
            futures = self.client.get(graph, list(graph), sync=False)
        for one, future in zip(tasks.values(), futures, strict=True):
            one.future, one.call, one.given = future, None, ()

    def _places(self, tasks: dict[str, Remote]) -> Places:
        """Return on which worker each task finds its chunk: Dask would move a small one to a worker that is idle.

        It is only where a task had better be. A worker that was lost is missed for some seconds, no longer.
        """
        if time.monotonic() - self._looked > LOOK_AGAIN and self.held[0].future is not None:
            found = self.client.who_has([one.future for one in self.held])
            self._where, self._looked = {key: workers[0] for key, workers in found.items() if workers}, time.monotonic()
        chunk_of = {key: getattr(one.given[0], "key", None) for key, one in tasks.items() if one.given}
        return Places({key: self._where[chunk] for key, chunk in chunk_of.items() if chunk in self._where})


def _spread(client: Any, delayed: Sequence[Any]) -> list[Any]:
    """Return futures of the chunks, as many on each worker; chunks that workers hold already stay where they are."""
    from distributed import futures_of

    workers, count = sorted(client.has_what()), len(delayed)
    if not workers or futures_of(list(delayed)):
        return list(client.compute(list(delayed)))
    found = []
    for k, worker in enumerate(workers):
        own = delayed[-(-k * count // len(workers)) : -(-(k + 1) * count // len(workers))]
        found += client.compute(list(own), workers=[worker], allow_other_workers=True)
    return found


@dataclass(frozen=True)
class Places:
    """Workers by the key of a task, as Dask asks for them."""

    workers: dict[str, str]

    def __call__(self, key: str) -> list[str]:
        """Return the worker of a task, or none."""
        return [self.workers[key]] if key in self.workers else []


class Remote:
    """What a worker has, or will have once it is asked for: a future, or the task that makes it."""

    def __init__(self, call: Call | None, given: Sequence[Any] = (), future: Any = None) -> None:
        self.call, self.given, self.future, self.inside = call, given, future, False
        self.key = future.key if call is None else f"{call}-{uuid.uuid4().hex}"

    def task(self) -> tuple[Any, ...]:
        """Return the task as a graph of Dask has it: with keys, and inside it those that are for it alone."""
        return (self.call, *(part.named() if isinstance(part, Remote) else part for part in self.given))

    def named(self) -> Any:
        """Return what stands for this one in a task that takes it."""
        if self.future is not None:
            return self.future
        return self.task() if self.inside else self.key

    def needed(self) -> list[Remote]:
        """Return the tasks that this one waits for, and those that what is inside it waits for."""
        direct = [part for part in self.given if isinstance(part, Remote)]
        inner = [part for part in direct if part.inside and part.future is None]
        return [part for part in direct if part not in inner] + [deep for part in inner for deep in part.needed()]


class Call:
    """A function and its first arguments, into which Dask does not look."""

    def __init__(self, function: Callable[..., Any], first: tuple[Any, ...] = ()) -> None:
        self.function, self.first = function, first

    def __str__(self) -> str:
        return getattr(self.function, "__name__", "turn").strip("_")

    def __call__(self, *given: Any) -> Any:
        """Call the function on a worker; overflow is for the loop to judge."""
        with np.errstate(all="ignore"):
            return self.function(*self.first, *(one for part in given for one in _opened(part)))


@dataclass(frozen=True)
class Arguments:
    """Arguments that go along with a task, or are held by a worker for some."""

    values: tuple[Any, ...]


def shape_of(weights: Weights) -> ChunkShape:
    """Return the shape of a chunk."""
    return ChunkShape(*weights.shape, weights.dtype)


def _size(part: Any) -> int:
    """Return the bytes of all arrays in an argument, in what it holds and in what is bound to it."""
    if isinstance(part, np.ndarray):
        return part.nbytes
    if isinstance(part, partial):
        return _size((part.func, part.args))
    held = part if isinstance(part, list | tuple) else vars(part).values() if hasattr(part, "__dict__") else ()
    return 0 if isinstance(part, type | FunctionType) else sum(map(_size, held))


@dataclass(frozen=True)
class HeldChunk:
    """Weights on a worker, of which Dask can tell the size: it weighs moving a task against moving what it needs."""

    weights: Weights

    def __sizeof__(self) -> int:
        # A chunk that is itself read from a file in every pass is not in memory; and to count its entries is a pass.
        if isinstance(self.weights.chunks, StreamedChunks):
            return IN_A_FILE
        count, (n, m) = self.weights.stored, self.weights.shape
        return count * (self.weights.dtype.itemsize + (INDEX_BYTES if count < n * m else 0))


def _held(found: Any, convert: Convert) -> HeldChunk:
    return HeldChunk(convert(found))


def _constant(value: Any) -> Any:
    return value


def _opened(part: Any) -> tuple[Any, ...]:
    """Return the arguments that a function is called with for one that a task takes."""
    if isinstance(part, Arguments):
        return part.values
    return (part.weights,) if isinstance(part, HeldChunk) else (part,)


def _tree(level: list[Any]) -> Any:
    """Return the task that adds up some handles, FAN_IN at a time."""
    while len(level) > 1:
        level = [Remote(Call(_sum_of), level[k : k + FAN_IN]) for k in range(0, len(level), FAN_IN)]
    return level[0]


def _sum_of(*parts: Any) -> Any:
    return reduce(add, parts)
