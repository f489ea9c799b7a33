"""Many observations, chunk by chunk: what there is of each, as tasks wherever Dask runs them, or by this process.

A task on a worker cannot ask the other workers for their chunks of W. Where W is in chunks too, this process takes the
chunks of observations in turns, with one at a time in its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.model import DEF, observations
from forestmix.posterior.result import Result
from forestmix.weights.chunks import processors
from forestmix.weights.dask_chunks import current_client

#: ``infer`` with its options.
Infer = Callable[[DEF, Any], Result]
#: Tasks that a thread of this machine is given at a time.
TASKS_PER_THREAD = 4


class Part(NamedTuple):
    """A part of a result or a posterior: how to take it, its shape for one observation, and its type."""

    taken: Callable[[Any], Any]
    shape: tuple[int, ...]
    kind: Any


@dataclass(frozen=True)
class Tasks:
    """Chunks that are tasks of Dask's: what they come to stays where it was computed."""

    tasks: Sequence[Any]
    counts: Sequence[int]

    def arrays(self, parts: Sequence[Part]) -> list[Any]:
        """Return Dask arrays that compute each part when somebody asks for it."""
        import dask.array

        def chunk(task: Any, count: int, part: Part) -> Any:
            return dask.array.from_delayed(delayed(part.taken)(task), (count, *part.shape), dtype=part.kind)

        pairs = list(zip(self.tasks, self.counts, strict=True))
        return [dask.array.concatenate([chunk(*pair, part) for pair in pairs]) for part in parts]

    def posteriors(self, model: DEF, kind: str, tol: float, rng: int) -> Tasks:
        """Return the posteriors of results, see ``Result.posterior``."""
        made, shared = delayed(_posterior_of), constant(model)
        return Tasks([made(task, shared, kind, tol, rng) for task in self.tasks], self.counts)

    def persist(self) -> Tasks:
        """Return results that are left with the workers."""
        import dask

        return Tasks(dask.persist(*self.tasks), self.counts)

    def each(self, functions: Mapping[int, Callable[[Any], Any]]) -> Iterator[Any]:
        """Yield what functions give for the chunks of these numbers: on workers if there are some, else on threads."""
        import dask

        calls, client = [delayed(function)(self.tasks[k]) for k, function in functions.items()], current_client()
        if client is None:
            step = TASKS_PER_THREAD * processors()
            for first in range(0, len(calls), step):
                yield from dask.compute(*calls[first : first + step])
            return
        from distributed import as_completed

        for future in as_completed(client.compute(calls)):
            yield future.result()


@dataclass(frozen=True)
class Turns:
    """Chunks that this process makes one after another, each time that they are asked for, and their observations.

    No more than one is in memory: the factors of a posterior are far larger than its moments.
    """

    made: Sequence[Callable[[], Any]]
    counts: Sequence[int]
    blocks: Sequence[Any]

    def arrays(self, parts: Sequence[Part]) -> list[Any]:
        """Return arrays whose parts have been computed, in one turn of each chunk."""
        import dask.array

        turns = [_taken(one(), count, parts) for one, count in zip(self.made, self.counts, strict=True)]
        return [
            dask.array.concatenate([dask.array.from_array(chunk, chunks=-1) for chunk in chunks])
            for chunks in zip(*turns, strict=True)
        ]

    def posteriors(self, model: DEF, kind: str, tol: float, rng: int) -> Turns:
        """Return what makes the posteriors."""

        def posterior(one: Callable[[], Result], block: Any) -> Any:
            return _posterior_of(_with_data(one(), model, block), model, kind, tol, rng)

        made = [partial(posterior, *pair) for pair in zip(self.made, self.blocks, strict=True)]
        return Turns(made, self.counts, self.blocks)

    def each(self, functions: Mapping[int, Callable[[Any], Any]]) -> Iterator[Any]:
        """Compute in this process."""
        return (function(self.made[k]()) for k, function in functions.items())


#: A result or a posterior for each chunk of observations.
Chunks = Tasks | Turns


def tasks_of(run: Infer, model: DEF, x: Any) -> Tasks:
    """Return the inference of a Dask array (N, n), chunked by observations; nothing is computed yet."""
    blocks, counts = blocks_of_observations(x)
    shared, inferred = constant(model), delayed(_outcome_of)
    return Tasks([inferred(run, shared, block) for block in blocks], counts)


def turns_of(run: Infer, model: DEF, x: Any, *, keep: bool) -> Turns:
    """Return the same by this process: results are inferred now and kept, or each time that they are asked for.

    What is kept has no observations, which are read again at each turn.
    """
    blocks, counts = blocks_of_observations(x)
    made = [partial(_inferred, run, model, block) for block in blocks]
    return Turns([partial(replace, _without_data(one())) for one in made] if keep else made, counts, blocks)


def blocks_of_observations(x: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the chunks of a Dask array as delayed blocks of whole observations, and how many each has."""
    whole = x if len(x.chunks[1]) == 1 else x.rechunk({1: -1})
    if np.isnan(whole.shape[0]):
        whole = whole.compute_chunk_sizes()
    return list(whole.to_delayed()[:, 0]), tuple(int(count) for count in whole.chunks[0])


def constant(value: Any) -> Any:
    """Return a task that returns a value: it reaches each worker once, and is made anew if a worker is lost."""
    import dask

    return dask.delayed(value, pure=False, traverse=False)


def delayed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose calls are tasks; what it is given is not looked into."""
    import dask

    made: Callable[..., Any] = dask.delayed(function, pure=False, traverse=False)
    return made


def _taken(held: Any, count: int, parts: Sequence[Part]) -> list[Array]:
    return [np.asarray(part.taken(held), part.kind).reshape(count, *part.shape) for part in parts]


def _outcome_of(run: Infer, model: DEF, block: Any) -> Result:
    """Return the result of one chunk without the model, which would travel with it."""
    return replace(run(model, np.asarray(block)), model=None)  # type: ignore[arg-type]


def _posterior_of(outcome: Result, model: DEF, kind: str, tol: float, rng: int) -> Any:
    return replace(outcome, model=model).posterior(kind, tol=tol, rng=rng)


def _inferred(run: Infer, model: DEF, block: Any) -> Result:
    return run(model, np.asarray(block.compute()))


def _without_data(found: Result) -> Result:
    return found if found.joint is not None else replace(found, data=None)  # type: ignore[arg-type]


def _with_data(found: Result, model: DEF, block: Any) -> Result:
    return found if found.data is not None else replace(found, data=observations(model, np.asarray(block.compute())))
