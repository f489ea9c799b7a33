"""Batches too large for their work arrays: run in parts, and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.inference import direct
from forestmix.inference.loop import Outcome
from forestmix.inference.status import Trace
from forestmix.model import DEF, Observations

#: Bytes of work arrays that a batch may take, when nothing else is said.
DEFAULT_MEMORY_BUDGET = 2**30
#: Work arrays of a run, for each observation: in units of its x and of its latents. Newton's metric takes most of it.
ROW_ARRAYS, LATENT_ARRAYS = 12, 60


def parts_of_batch(model: DEF, data: Observations, memory_budget: float) -> list[Array]:
    """Return the observations in parts, each within the budget or a single one.

    Under Gaussian rows the observations that miss the same entries and have the same case weights share one matrix, so
    they go together: with others among them none could be solved by a factor of it, and each would end elsewhere than
    by itself.
    """
    each, count = model.dtype.itemsize * (ROW_ARRAYS * model.n_observed + LATENT_ARRAYS * model.n_latent), len(data.x)
    most = count if memory_budget >= each * count else max(1, int(memory_budget // each))
    return [part for group in _alike(model, data) for part in np.array_split(group, -(-len(group) // most))]


def _alike(model: DEF, data: Observations) -> list[Array]:
    """Return the observations that are run together."""
    below, observed = model.layers[0], data.observed
    own_weights = below.family.differs_by_observation
    if not below.family.curvature_is_constant or (observed is None and not own_weights):
        return [np.arange(len(data.x))]
    there = np.ones((len(data.x), 1)) if observed is None else observed
    told: Any = there * np.asarray(below.case_weights) if own_weights else there
    if min(model.n_observed, model.n_latent) > direct.LARGEST:
        # There is no factor to share: what is complete goes together, and so does the rest.
        told = np.all(there, axis=1, keepdims=True)
    _, pattern = np.unique(told, axis=0, return_inverse=True)
    return [np.flatnonzero(pattern.ravel() == k) for k in np.unique(pattern)]


def merged(outcomes: Sequence[Outcome], parts: Sequence[Array]) -> Outcome:
    """Return the outcome of the whole batch from those of its parts, in the order of the observations.

    The trace has as many records as the longest of the parts; a part that ended earlier stays where it ended. Its
    seconds are what all parts together had spent by then.
    """
    if len(outcomes) == 1:
        return outcomes[0]
    back = np.argsort(np.concatenate(parts))
    factors = tuple(
        same[0].joined(same).take(back) for same in zip(*(outcome.factors for outcome in outcomes), strict=True)
    )
    objective, status, n_iter = (
        np.concatenate([getattr(outcome, name) for outcome in outcomes])[back]
        for name in ("objective", "status", "n_iter")
    )
    trace, notes = _trace([outcome.trace for outcome in outcomes], back), {outcome.note for outcome in outcomes}
    return Outcome(factors, objective, status, n_iter, trace, "\n".join(sorted(notes)))


def _trace(traces: Sequence[Trace], back: Array) -> Trace:
    length = max(map(len, traces))

    def extended(name: str) -> list[Array]:
        """Return a column of each trace with its last entry repeated."""
        columns = [getattr(trace, name) for trace in traces]
        return [column[np.minimum(np.arange(length), len(column) - 1)] for column in columns]

    counts = (np.max(extended(name), axis=0) for name in ("iteration", "step", "sweeps"))
    values = (np.concatenate(extended(name), axis=1)[:, back] for name in ("objective", "gradient_norm"))
    columns = (*counts, *values, np.sum(extended("seconds"), axis=0))
    return Trace(*columns)
