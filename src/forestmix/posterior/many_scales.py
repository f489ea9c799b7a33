"""Unknown scales that all observations of a Dask array share.

``L(theta)`` of ``integrate.py`` is a log prior plus a sum over observations, and so is its slope: each value of it is
one map over the chunks of observations and one sum. The nodes that this finds are then given to each chunk, which
makes the posterior of its own observations there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.model import DEF, observations
from forestmix.posterior.columns import fits_factor
from forestmix.posterior.course import Course
from forestmix.posterior.full import check_joint
from forestmix.posterior.full_result import result_of_scales
from forestmix.posterior.integrate import Collector, ScaleFit, fit_objective
from forestmix.posterior.many import MappedResult
from forestmix.posterior.many_chunks import blocks_of_observations, constant, delayed
from forestmix.posterior.result import Result
from forestmix.posterior.scale_objective import Evaluated, ScaleObjective
from forestmix.posterior.scale_terms import ScaleTerms, scale_names, sums_of_data
from forestmix.weights.dask_chunks import KEPT_PART, current_client, memory_of_machine


@dataclass(frozen=True)
class SharedScales:
    """``infer`` for a chunk of observations once the scales of all are known, and what is known of these."""

    fit: ScaleFit
    course: Course

    def __call__(self, model: DEF, x: Any) -> Result:
        """Return the posterior of some observations at the nodes of all."""
        data = observations(model, x)
        collected = Collector(ScaleObjective(model, data))
        for theta in self.fit.thetas:
            collected(theta)
        nodes = [collected.nodes[theta.tobytes()] for theta in self.fit.thetas]
        own = replace(
            self.fit,
            components=tuple(node.component for node in nodes if node.component is not None),
            elbos=np.array([node.elbos for node in nodes]),
            converged=all(node.converged for node in nodes),
        )
        return result_of_scales(model, data, own, self.course)

    def put(self, found: MappedResult) -> MappedResult:
        """Return the outcome with the scales and the model at their mode."""
        model = found.model
        found.shared = dict(zip(scale_names(model), self.fit.scales, strict=True))
        found.model = model.with_scales(self.fit.mode)
        return found


def shared_scales(model: DEF, x: Any) -> SharedScales:
    """Integrate over the unknown scales that the observations of a Dask array (N, n) share."""
    check_joint(model)
    if not fits_factor(model.layers[0].weights):
        raise ArgumentError(
            "scales of a model with more latents than a factor can hold need x in memory: give x.compute(), or numbers "
            "by model.with_scales(values)."
        )
    with np.errstate(all="ignore"):
        objective = MappedScales(model, x)
        return SharedScales(fit_objective(objective), objective.course)


class MappedScales(ScaleObjective):
    """L of observations in chunks, wherever Dask computes them.

    Chunks stay in the memory of workers, or of this process, unless they are large beside it; then each value of L
    reads them again. What a chunk remembers of its last fits is where the next ones start, and nothing else.
    """

    def __init__(self, model: DEF, x: Any) -> None:
        import dask

        blocks, _ = blocks_of_observations(x)
        made, shared = delayed(_observed), constant(model)
        chunks: Sequence[Any] = [made(shared, block) for block in blocks]
        if current_client() is not None or x.nbytes <= KEPT_PART * memory_of_machine():
            chunks = dask.persist(*chunks)
        self._chunks = chunks
        self.model, self.terms, self.course = model, ScaleTerms(model, self._sums), Course(keeps=True)

    def over_observations(self, theta: Array, *, whole: bool) -> Evaluated:
        """Return the sums over the observations of all chunks."""
        parts = self._map(_evaluated, theta, whole)
        value, slope, left_out = (sum(part) for part in zip(*parts, strict=True))
        return Evaluated(value, slope, left_out)

    def _sums(self, rows: Any, centre: float) -> Array:
        return np.sum(self._map(_sums_of_chunk, rows, centre), axis=0)

    def _map(self, function: Any, *given: Any) -> tuple[Any, ...]:
        import dask

        called = delayed(function)
        found: tuple[Any, ...] = dask.compute(*(called(chunk, *given) for chunk in self._chunks))
        return found


def _observed(model: DEF, block: Any) -> ScaleObjective:
    return ScaleObjective(model, observations(model, np.asarray(block)))


def _evaluated(chunk: ScaleObjective, theta: Array, whole: bool) -> tuple[float, Array, float]:
    with np.errstate(all="ignore"):
        found = chunk.over_observations(theta, whole=whole)
    return found.value, found.slope, found.left_out


def _sums_of_chunk(chunk: ScaleObjective, rows: Any, centre: float) -> Array:
    return sums_of_data(chunk.model, chunk.problem.data, rows, centre)
