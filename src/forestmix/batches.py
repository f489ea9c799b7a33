"""Batches too large for their work arrays: run in parts, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from reprlib import repr as shown
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.checks import is_number
from forestmix.errors import ArgumentError
from forestmix.layer_posterior import LayerPosterior
from forestmix.model import DEF, Observations
from forestmix.result import Result, Trace

#: Bytes of work arrays that a batch may take, when nothing else is said.
DEFAULT_MEMORY_BUDGET = 2**30
#: Work arrays of a run, for each observation: in units of its x and of its latents. Newton's metric takes most of it.
ROW_ARRAYS, LATENT_ARRAYS = 12, 60


def parts_of_batch(model: DEF, count: int, memory_budget: float) -> list[Array]:
    """Return the observations in parts of about the same size, each within the budget or a single one."""
    if not is_number(memory_budget) or not memory_budget > 0:
        raise ArgumentError(f"memory_budget must be a positive number of bytes; got {shown(memory_budget)}.")
    each = model.dtype.itemsize * (ROW_ARRAYS * model.n_observed + LATENT_ARRAYS * model.n_latent)
    most = count if memory_budget >= each * count else max(1, int(memory_budget // each))
    return np.array_split(np.arange(count), -(-count // most))


def merged(results: Sequence[Result], data: Observations) -> Result:
    """Return the result of the whole batch from those of its parts.

    The trace has as many records as the longest of the parts; a part that ended earlier stays where it ended. Its
    seconds are what all parts together had spent by then.
    """
    layers = tuple(
        LayerPosterior(same[0].factors.joined([one.factors for one in same]), single=False, dtype=same[0].dtype)
        for same in zip(*(part.layers for part in results), strict=True)
    )
    names = ("objective", "converged", "status", "n_iter")
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in results]) for name in names}
    return replace(results[0], layers=layers, trace=_trace([part.trace for part in results]), data=data, **columns)


def _trace(traces: Sequence[Trace]) -> Trace:
    length = max(len(trace) for trace in traces)

    def column(name: str, combine: Callable[[list[Array]], Array]) -> Array:
        return combine([_extended(getattr(trace, name), length) for trace in traces])

    def largest(parts: list[Array]) -> Array:
        return np.max(parts, axis=0)

    return Trace(
        iteration=np.arange(length),
        step=column("step", largest),
        sweeps=column("sweeps", largest),
        objective=column("objective", lambda parts: np.concatenate(parts, axis=1)),
        gradient_norm=column("gradient_norm", lambda parts: np.concatenate(parts, axis=1)),
        seconds=column("seconds", lambda parts: np.sum(parts, axis=0)),
    )


def _extended(values: Array, length: int) -> Array:
    """Return a column of a trace with its last entry repeated."""
    return np.concatenate([values, np.repeat(values[-1:], length - len(values), axis=0)])
