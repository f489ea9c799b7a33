"""Chunks of the rows of W where they are: in memory, in files, or with the workers of a cluster.

Whatever is a sum over rows is one map over the chunks and one sum of what they give. A map returns handles: what was
computed from a chunk stays with it until it is fetched.
"""

from __future__ import annotations

import contextvars
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple, Protocol

import numpy as np

from forestmix.errors import ArgumentError
from forestmix.weights.base import Weights
from forestmix.weights.layered import slices_of


class ChunkShape(NamedTuple):
    """What is known of a chunk without reading it."""

    rows: int
    columns: int
    dtype: np.dtype[Any]


class Chunks(ABC):
    """The row chunks of a matrix.

    Attributes:
        shapes: of each chunk.
        slices: the rows of each chunk.
    """

    def __init__(self, shapes: Sequence[ChunkShape]) -> None:
        self.shapes = _checked(shapes)
        self.slices = slices_of([shape.rows for shape in self.shapes])

    @abstractmethod
    def place(self, parts: Sequence[Any]) -> list[Any]:
        """Bring one object to each chunk, and return their handles."""

    @abstractmethod
    def map(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return handles of ``function(weights, *own, *shared)`` for each chunk, each with its own of ``own``."""

    @abstractmethod
    def derive(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return the same of ``function(*own, *shared)``, which reads nothing of W."""

    @abstractmethod
    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """Return the objects themselves."""

    @abstractmethod
    def total(self, handles: Sequence[Any], first: Callable[[Any], Any]) -> Any:
        """Return the sum of ``first`` of each object, in the order of the chunks."""


class LocalChunks(Chunks):
    """Chunks on this machine: a handle is the object itself."""

    def place(self, parts: Sequence[Any]) -> list[Any]:
        """Return the parts."""
        return list(parts)

    def derive(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return what the function gives, one chunk after another."""
        return [function(*mine, *shared) for mine in zip(*own, strict=True)]

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """Return the objects."""
        return list(handles)

    def total(self, handles: Sequence[Any], first: Callable[[Any], Any]) -> Any:
        """Return the sum."""
        return reduce(add, map(first, handles))


class MemoryChunks(LocalChunks):
    """Weights in memory, each chunk on a thread."""

    def __init__(self, parts: Sequence[Weights]) -> None:
        super().__init__([ChunkShape(*part.shape, part.dtype) for part in parts])
        self.parts = tuple(parts)

    def map(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return what the function gives for each chunk, on as many threads as there are processors."""
        calls = [partial(function, *mine, *shared) for mine in zip(self.parts, *own, strict=True)]
        if len(calls) == 1:
            return [calls[0]()]
        with ThreadPoolExecutor(min(len(calls), processors())) as pool:
            return list(pool.map(_in_context, calls, [contextvars.copy_context() for _ in calls]))


class Loader(Protocol):
    """A chunk that is read each time that it is needed."""

    @property
    def shape(self) -> ChunkShape:
        """Its shape."""

    def load(self, *, trusted: bool) -> Weights:
        """Read it; its entries are checked unless they were before (``trusted``)."""


class StreamedChunks(LocalChunks):
    """Chunks that do not fit into memory together: while one is computed with, the next is read."""

    def __init__(self, loaders: Sequence[Loader]) -> None:
        super().__init__([loader.shape for loader in loaders])
        self.loaders = tuple(loaders)
        self._trusted = [False] * len(self.loaders)

    def map(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return what the function gives for each chunk, in one reading of all."""
        return [function(weights, *mine, *shared) for weights, *mine in zip(self._read(), *own, strict=True)]

    def _read(self) -> Iterator[Weights]:
        """Yield the chunks; the next one is read on a thread of its own, which waits for the disk or the copy."""
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._load, 0)
            for k in range(len(self.loaders)):
                weights = coming.result()
                if k + 1 < len(self.loaders):
                    coming = reader.submit(self._load, k + 1)
                yield weights

    def _load(self, k: int) -> Weights:
        try:
            weights = self.loaders[k].load(trusted=self._trusted[k])
        except ArgumentError as error:
            raise ArgumentError(f"in the chunk of W that begins with row {self.slices[k].start}: {error}") from error
        self._trusted[k] = True
        return weights


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_context(call: Callable[[], Any], context: contextvars.Context) -> Any:
    """Make a call with the settings of the thread that asked for it: NumPy's of overflow are among them."""
    return context.run(call)


def _checked(shapes: Sequence[ChunkShape]) -> tuple[ChunkShape, ...]:
    """Return the shapes if the chunks make one matrix."""
    if not shapes:
        raise ArgumentError("W must have at least one chunk of rows; got none.")
    for position, shape in enumerate(shapes):
        if shape[1:] != shapes[0][1:]:
            raise ArgumentError(
                f"chunks of W must have the same columns and precision; chunk 0 has {shapes[0].columns} of "
                f"{shapes[0].dtype}, chunk {position} has {shape.columns} of {shape.dtype}."
            )
    return tuple(shapes)
