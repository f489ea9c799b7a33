"""The posterior of a regression's effects, with full covariance and unknown scales integrated."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

from forestmix.arrays import Array
from forestmix.inference.loop import Callback
from forestmix.inference.status import Status, Trace
from forestmix.model import DEF
from forestmix.posterior.component import Component
from forestmix.posterior.kinds import stacked_factors
from forestmix.posterior.posterior import Posterior
from forestmix.posterior.scale_posterior import ScalePosterior
from forestmix.run import infer
from forestmix.scales import Scale

#: Entries of a design up to which one thread is faster than several.
SMALL = 2**16


class Solution(NamedTuple):
    """A posterior, the posteriors of unknown scales, what was done about these, how the run went and ended."""

    posterior: Posterior
    scales: dict[Scale, ScalePosterior]
    message: str
    trace: Trace
    status: Status

    def scale_in(self, part: Component, scale: Scale) -> float:
        """Return the value of an unknown scale in a component of the posterior."""
        return float(part.scales[scale]) if scale in part.scales else self.scales[scale].mean


def one_thread(entries: int) -> AbstractContextManager[Any]:
    """Return a context in which small matrices are multiplied and factored by one thread, where threadpoolctl is there.

    Two threads that wait for each other take ten times as long on a busy machine; large matrices gain by them.
    """
    controller = _controller() if entries <= SMALL else None
    return nullcontext() if controller is None else controller.limit(limits=1, user_api="blas")


@cache
def _controller() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def solve(model: DEF, y: Array, callback: Callback | None = None) -> Solution:
    """Return the posterior of the effects given the responses, (n,)."""
    with one_thread(model.layers[0].weights.stored):
        result = infer(model, y, covariance="full", callback=callback)
    scales = dict(zip(model.unknown_scales, result.scales.values(), strict=True))
    return Solution(result.posterior(), scales, result.note, result.trace, result.status)


def at_scale_means(model: DEF, solution: Solution, y: Array) -> Posterior:
    """Return the posterior with each unknown scale at its posterior mean, and the factors of q to compare with."""
    known = model.with_scales({scale: found.mean for scale, found in solution.scales.items()})
    full = infer(known, y, covariance="full").posterior()
    factors = stacked_factors(infer(known, y))
    return Posterior(full.mixture.components, full.mixture.weights, known, full.data, full.kind, factors=factors)
