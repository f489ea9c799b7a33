"""The posterior of a regression's effects, with full covariance and unknown scales integrated."""

from __future__ import annotations

from typing import NamedTuple

from forestmix.arrays import Array
from forestmix.model import DEF
from forestmix.posterior.component import Component
from forestmix.posterior.kinds import stacked_factors
from forestmix.posterior.posterior import Posterior
from forestmix.posterior.scale_posterior import ScalePosterior
from forestmix.run import infer
from forestmix.scales import Scale


class Solution(NamedTuple):
    """A posterior, the posteriors of unknown scales, and what was done about these."""

    posterior: Posterior
    scales: dict[Scale, ScalePosterior]
    message: str

    def scale_in(self, part: Component, scale: Scale) -> float:
        """Return the value of an unknown scale in a component of the posterior."""
        return float(part.scales[scale]) if scale in part.scales else self.scales[scale].mean


def solve(model: DEF, y: Array) -> Solution:
    """Return the posterior of the effects given the responses, (n,)."""
    result = infer(model, y, covariance="full")
    scales = dict(zip(model.unknown_scales, result.scales.values(), strict=True))
    return Solution(result.posterior(), scales, result.note)


def at_scale_means(model: DEF, solution: Solution, y: Array) -> Posterior:
    """Return the posterior with each unknown scale at its posterior mean, and the factors of q to compare with."""
    known = model.with_scales({scale: found.mean for scale, found in solution.scales.items()})
    full = infer(known, y, covariance="full").posterior()
    factors = stacked_factors(infer(known, y))
    return Posterior(full.mixture.components, full.mixture.weights, known, full.data, full.kind, factors=factors)
