"""Chunks of the rows of W, or of rows and columns, where they are: in memory, in files, or with workers of a cluster.

Whatever is a sum over rows is one map over the chunks and one sum of what they give. A map returns handles: what was
computed from a chunk stays with it until it is fetched.
"""

from __future__ import annotations

import contextvars
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from forestmix.errors import ArgumentError
from forestmix.weights.base import Weights
from forestmix.weights.layered import slices_of

#: Entries of W, zeros among them, up to which chunks in memory take turns: starting threads would take longer.
SMALL = 2**16
#: Told how many of how many chunks a pass has read; a progress bar sets it while it is shown.
READING: contextvars.ContextVar[Callable[[int, int], None] | None] = contextvars.ContextVar("READING", default=None)


class ChunkShape(NamedTuple):
    """What is known of a chunk without reading it."""

    rows: int
    columns: int
    dtype: np.dtype[Any]


#: What a chunk does in its turn, from its own state, data of the rows, and what it has heard of the others.
Turn = Callable[..., Any]


class Chunks(ABC):
    """The chunks of a matrix: a grid over its rows and columns, one chunk of rows after another.

    What holds part of a row only is summed twice: over the columns of each row for what depends on whole rows, and over
    rows for what each latent gets. On this machine a handle is the object itself.

    Attributes:
        shapes: of each chunk.
        slices: the rows of each chunk of rows.
        columns: the columns of each chunk of columns.
        held: handles of the chunks themselves, or of what loads them.
    """

    held: Sequence[Any]

    def __init__(self, shapes: Sequence[ChunkShape], columns: int = 1) -> None:
        self.shapes = _checked(shapes, columns)
        self.slices = slices_of([shape.rows for shape in self.shapes[::columns]])
        self.columns = slices_of([shape.columns for shape in self.shapes[:columns]])

    @abstractmethod
    def map(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return handles of ``function(weights, *own, *shared)`` for each chunk, each with its own of ``own``."""

    def mapped(self, name: str) -> Self:
        """Return the chunks after a map of their entries (``Weights.mapped``)."""
        chosen = copy(self)
        chosen.held = self._held_after(name)
        if name == "double":
            chosen.shapes = tuple(shape._replace(dtype=np.dtype(np.float64)) for shape in self.shapes)
        return chosen

    def _held_after(self, name: str) -> Sequence[Any]:
        return self.map(_mapped, shared=(name,))

    def place(self, parts: Sequence[Any]) -> list[Any]:
        """Bring objects to the chunks, and return their handles."""
        return list(parts)

    def derive(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return handles of ``function(*own, *shared)``, which reads nothing of W but what is in ``held``."""
        return [function(*mine, *shared) for mine in zip(*own, strict=True)]

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """Return the objects themselves."""
        return list(handles)

    def sums(self, groups: Sequence[Sequence[Any]]) -> list[Any]:
        """Return a handle for each group: the sum of its objects, in their order."""
        return [reduce(add, group) for group in groups]

    def total(self, handles: Sequence[Any]) -> Any:
        """Return the sum over all, itself."""
        return self.fetch(self.sums([handles]))[0]

    def in_turns(
        self, turn: Turn, states: Sequence[Any], told: Callable[[Any], Any], rows: Any, turns: int
    ) -> list[Any]:
        """Return handles of the chunks' states after turns ``state = turn(weights, state, rows, heard)`` in step.

        The chunks are side by side, and ``heard`` is the sum of what all were ``told`` of each after the last turn.
        """
        for _ in range(turns):
            heard = self.sums([self.derive(told, states)])
            states = self.map(turn, states, self.to_rows([rows]), self.to_rows(heard))
        return list(states)

    def without_waiting(
        self, turn: Turn, states: Sequence[Any], told: Callable[[Any], Any], rows: Any, turns: int
    ) -> list[Any]:
        """Return the same for chunks that do not wait: ``turn(weights, state, rows, *heard)`` with what was told last.

        Where chunks are taken one after another none can be ahead of the others, and they go in step.
        """
        return self.in_turns(turn, states, told, rows, turns)

    def to_rows(self, own: Sequence[Any]) -> list[Any]:
        """Return for each chunk what its rows have."""
        return [one for one in own for _ in self.columns]

    def to_columns(self, own: Sequence[Any]) -> list[Any]:
        """Return for each chunk what its columns have."""
        return list(own) * len(self.slices)

    def by_row(self, handles: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the handles of the chunks in groups that have the same rows."""
        count = len(self.columns)
        return [handles[start : start + count] for start in range(0, len(handles), count)]

    def by_column(self, handles: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the handles of the chunks in groups that have the same columns."""
        return [handles[k :: len(self.columns)] for k in range(len(self.columns))]

    def mapped_total(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> Any:
        """Return the sum of what ``map`` gives, of which nothing is kept."""
        return self.total(self.map(function, *own, shared=shared))


class MemoryChunks(Chunks):
    """Weights in memory, each chunk on a thread."""

    def __init__(self, parts: Sequence[Weights], columns: int = 1) -> None:
        super().__init__([ChunkShape(*part.shape, part.dtype) for part in parts], columns)
        self.held = tuple(parts)

    def map(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return what the function gives for each chunk, on as many threads as there are processors, if that pays."""
        calls = [partial(function, *mine, *shared) for mine in zip(self.held, *own, strict=True)]
        if len(calls) == 1 or sum(part.shape[0] * part.shape[1] for part in self.held) <= SMALL:
            return [call() for call in calls]
        with ThreadPoolExecutor(min(len(calls), processors())) as pool:
            return list(pool.map(_in_context, calls, [contextvars.copy_context() for _ in calls]))

    def without_waiting(
        self, turn: Turn, states: Sequence[Any], told: Callable[[Any], Any], rows: Any, turns: int
    ) -> list[Any]:
        """Give each chunk a thread, which reads what the others have written last."""
        latest = list(states)

        def run(k: int) -> None:
            for _ in range(turns):
                latest[k] = turn(self.held[k], latest[k], rows, *map(told, tuple(latest)))

        with ThreadPoolExecutor(len(latest)) as pool:
            calls = [partial(run, k) for k in range(len(latest))]
            list(pool.map(_in_context, calls, [contextvars.copy_context() for _ in calls]))
        return latest


class Loader(Protocol):
    """A chunk that is read each time that it is needed."""

    @property
    def shape(self) -> ChunkShape:
        """Its shape."""

    def load(self, *, trusted: bool) -> Weights:
        """Read it; its entries are checked unless they were before (``trusted``)."""


class MappedLoader(NamedTuple):
    """A chunk whose entries are mapped each time that it is read."""

    loader: Loader
    name: str

    def load(self, *, trusted: bool) -> Weights:
        """Read it."""
        return self.loader.load(trusted=trusted).mapped(self.name)


class StreamedChunks(Chunks):
    """Chunks that do not fit into memory together: while one is computed with, the next is read."""

    def __init__(self, loaders: Sequence[Loader], columns: int = 1) -> None:
        super().__init__([loader.shape for loader in loaders], columns)
        self.held = tuple(loaders)
        self._trusted = [False] * len(self.held)

    def map(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return what the function gives for each chunk, in one reading of all."""
        return [function(weights, *mine, *shared) for weights, *mine in zip(self._read(), *own, strict=True)]

    def mapped_total(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> Any:
        """Return the sum of what the function gives, added up on the way."""
        parts = (function(weights, *mine, *shared) for weights, *mine in zip(self._read(), *own, strict=True))
        return reduce(add, parts)

    def _held_after(self, name: str) -> Sequence[Any]:
        return tuple(MappedLoader(one, name) for one in self.held)

    def _read(self) -> Iterator[Weights]:
        """Yield the chunks; the next one is read on a thread of its own, which waits for the disk or the copy."""
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._load, 0)
            for k in range(len(self.held)):
                weights = coming.result()
                if k + 1 < len(self.held):
                    coming = reader.submit(self._load, k + 1)
                yield weights
                watch = READING.get()
                if watch is not None:
                    watch(k + 1, len(self.held))

    def _load(self, k: int) -> Weights:
        try:
            weights = self.held[k].load(trusted=self._trusted[k])
        except ArgumentError as error:
            row = self.slices[k // len(self.columns)].start
            raise ArgumentError(f"in the chunk of W that begins with row {row}: {error}") from error
        self._trusted[k] = True
        return weights


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _mapped(weights: Weights, name: str) -> Weights:
    return weights.mapped(name)


def _in_context(call: Callable[[], Any], context: contextvars.Context) -> Any:
    """Make a call with the settings of the thread that asked for it: NumPy's of overflow are among them."""
    return context.run(call)


def _checked(shapes: Sequence[ChunkShape], columns: int) -> tuple[ChunkShape, ...]:
    """Return the shapes if the chunks make one matrix."""
    if not shapes:
        raise ArgumentError("W must have at least one chunk of rows; got none.")
    for position, shape in enumerate(shapes):
        above, left = shapes[position % columns], shapes[position - position % columns]
        if shape[1:] != above[1:] or shape.dtype != shapes[0].dtype:
            raise ArgumentError(
                f"chunks of W must have the same columns and precision; chunk {position % columns} has {above.columns} "
                f"of {shapes[0].dtype}, chunk {position} has {shape.columns} of {shape.dtype}."
            )
        if shape.rows != left.rows:
            raise ArgumentError(
                f"chunks of W that are side by side must have the same rows; chunk {position - position % columns} has "
                f"{left.rows}, chunk {position} has {shape.rows}."
            )
    return tuple(shapes)
