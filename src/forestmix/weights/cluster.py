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
from functools import partial, reduce
from operator import add
from types import FunctionType
from typing import Any

import numpy as np

from forestmix.weights.base import Weights
from forestmix.weights.chunks import Chunks, ChunkShape, Turn

#: Chunks that one task of a sum adds up.
FAN_IN = 8
#: Bytes of vectors up to which each task brings its own copy: one task less for the scheduler.
SMALL_BYTES = 2**16
#: Seconds after which it is looked up again which worker holds which chunk.
LOOK_AGAIN = 10.0

Convert = Callable[[Any], Weights]


class ClusterChunks(Chunks):
    """Chunks in the memory of workers; handles are futures, or tasks that are sent together once one is asked for.

    So a map, the sum of what it gives, and whatever lies between them are one graph: one message to the scheduler.
    """

    def __init__(self, client: Any, delayed: Sequence[Any], convert: Convert, columns: int = 1) -> None:
        import dask
        import distributed

        self.client = client
        self._where: list[Sequence[str]] = [()] * len(delayed)
        self._looked = -np.inf
        held = _spread(client, [dask.delayed(convert)(one) for one in delayed])
        distributed.wait(held)  # from now on it is known who has which
        self.held = [Remote(convert, [], one, place=k) for k, one in enumerate(held)]
        super().__init__(self.fetch(self.derive(shape_of, self.held)), columns)

    def place(self, parts: Sequence[Any]) -> list[Any]:
        """Return the parts, which go along with each task; a large one is a task of its own."""
        return [Remote(_itself, [part]) if _size(part) > SMALL_BYTES else part for part in parts]

    def map(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return a task for each chunk, on the worker that holds it."""
        return self.derive(function, self.held, *own, shared=shared)

    def derive(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return a task for each."""
        given = self.place(shared)
        return [Remote(function, [*mine, *given]) for mine in zip(*own, strict=True)]

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """Send the tasks behind these handles, and bring what they give to this process."""
        self._send([one for one in handles if isinstance(one, Remote)])
        return list(self.client.gather([one.future if isinstance(one, Remote) else one for one in handles]))

    def sums(self, groups: Sequence[Sequence[Any]]) -> list[Any]:
        """Add up in trees, so that no worker and not this process takes the parts of all chunks."""
        return [_tree(list(group)) for group in groups]

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
                latest[k] = Remote(turn, [self.held[k], latest[k], rows, *heard])
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
                waiting += one.needed
        if not tasks:
            return
        import dask

        graph = {key: one.task() for key, one in tasks.items()}
        with dask.annotate(workers=self._places(tasks).get, allow_other_workers=True), warnings.catch_warnings():
            # Vectors of latents are a part of the graph on purpose: what is scattered is lost with its worker.
            warnings.filterwarnings("ignore", "Sending large graph")
            futures = self.client.get(graph, list(graph), sync=False)
        for one, future in zip(tasks.values(), futures, strict=True):
            one.future, one.call, one.needed = future, None, []

    def _places(self, tasks: dict[str, Remote]) -> dict[str, Sequence[str]]:
        """Return the worker of each task, that of its chunk: Dask would move a small chunk to a worker that is idle.

        It is only where a task had better be. A worker that was lost is missed for some seconds, no longer.
        """
        if time.monotonic() - self._looked > LOOK_AGAIN and self.held[0].future is not None:
            found = self.client.who_has([one.future for one in self.held])
            self._where, self._looked = [found[one.key][:1] for one in self.held], time.monotonic()
        return {key: () if one.place is None else self._where[one.place] for key, one in tasks.items()}


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


class Remote:
    """What a worker has, or will have once it is asked for: a future, or the call that makes it.

    Attributes:
        key: its name for Dask.
        needed: what the call takes that workers have.
        place: the chunk whose worker makes it, if it is made of a chunk.
    """

    def __init__(self, function: Any, given: Sequence[Any], future: Any = None, place: int | None = None) -> None:
        self.needed = [one for one in given if isinstance(one, Remote)]
        self.call: Call | None = Call(function, [HERE if isinstance(one, Remote) else one for one in given])
        name = getattr(function, "__name__", "turn").strip("_")
        self.future, self.key = future, f"{name}-{uuid.uuid4().hex}" if future is None else future.key
        self.place: int | None = given[0].place if given and isinstance(given[0], Remote) else place

    def task(self) -> tuple[Any, ...]:
        """Return the task as a graph of Dask has it."""
        return (self.call, *(one.key if one.future is None else one.future for one in self.needed))


#: Stands for what workers have.
HERE = "here"


class Call:
    """A function and its arguments, into which Dask does not look, but for those that workers have."""

    def __init__(self, function: Callable[..., Any], given: Sequence[Any]) -> None:
        self.function, self.given = function, given

    def __call__(self, *held: Any) -> Any:
        """Call the function on a worker; overflow is for the loop to judge."""
        coming = iter(held)
        with np.errstate(all="ignore"):
            return self.function(*(next(coming) if isinstance(one, str) and one == HERE else one for one in self.given))


def shape_of(weights: Weights) -> ChunkShape:
    """Return the shape of a chunk."""
    return ChunkShape(*weights.shape, weights.dtype)


def _size(part: Any) -> int:
    """Return the bytes of all arrays in an argument, in what it holds and in what is bound to it."""
    if isinstance(part, np.ndarray):
        return part.nbytes
    if isinstance(part, type | FunctionType):
        return 0
    if isinstance(part, partial):
        part = (part.func, part.args)
    return sum(map(_size, part if isinstance(part, list | tuple) else getattr(part, "__dict__", {}).values()))


def _itself(value: Any) -> Any:
    return value


def _tree(level: list[Any]) -> Any:
    """Return the task that adds up some handles, FAN_IN at a time."""
    while len(level) > 1:
        level = [Remote(_sum_of, level[k : k + FAN_IN]) for k in range(0, len(level), FAN_IN)]
    return level[0]


def _sum_of(*parts: Any) -> Any:
    return reduce(add, parts)
