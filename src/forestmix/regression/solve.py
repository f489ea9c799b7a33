"""The posterior of a regression's effects, with full covariance and unknown scales integrated."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.model import DEF, Layer, Observations, observations
from forestmix.posterior.component import Component
from forestmix.posterior.covariance import Covariance, FactoredCovariance
from forestmix.posterior.factor import BlockFactor
from forestmix.posterior.full import fit_full
from forestmix.posterior.integrate import ScaleFit, fit_scales
from forestmix.posterior.kinds import FACTOR_LIMIT, stacked_factors
from forestmix.posterior.posterior import Posterior
from forestmix.run import infer
from forestmix.scales import Scale
from forestmix.weights import Weights


class Solution(NamedTuple):
    """A posterior, the posteriors of unknown scales, the value of each in each component, and what was done."""

    posterior: Posterior
    scales: dict[Scale, Any]
    values: dict[Scale, Array]
    message: str


def solve(model: DEF, y: Array) -> Solution:
    """Return the posterior of the effects given the responses, (n,)."""
    data = observations(model, y)
    if not model.unknown_scales:
        return Solution(_known(model, data), {}, {}, "")
    (found,) = fit_scales(model, data)
    return _integrated(model, data, found)


def at_scale_means(model: DEF, solution: Solution, y: Array) -> Posterior:
    """Return the posterior with each unknown scale at its posterior mean, and q beside it to compare with."""
    known = model.with_scales({scale: found.mean for scale, found in solution.scales.items()})
    posterior = _known(known, observations(known, y))
    component = posterior.mixture.components[0]
    if known.n_latent <= FACTOR_LIMIT:
        sd = np.broadcast_to(known.prior.family.sd, known.n_latent)
        factor = FactoredCovariance(known.layers[0].weights, component.covariance.kappa()[0], sd)  # type: ignore[index]
        component = Component(component.mean, factor, component.layer)  # type: ignore[arg-type]
    factors = stacked_factors(infer(known, y))
    return Posterior([component], [1.0], known, posterior.data, "full", factors=factors)


def _known(model: DEF, data: Observations) -> Posterior:
    """Return the posterior of a model whose scales are known."""
    (fit,) = fit_full(model, data)
    component = _component(fit.mean, fit.covariance, model.layers[0], data)
    return Posterior([component], [1.0], model, data, "full", log_evidence=fit.elbo)


def _integrated(model: DEF, data: Observations, found: ScaleFit) -> Solution:
    """Return the mixture over the nodes of the unknown scales."""
    components = [_component(node.mean[0], node.covariance[0], node.layer, data) for node in found.nodes]
    scales = dict(zip(model.unknown_scales, found.scales, strict=True))
    nodes = np.exp(np.stack([node.theta for node in found.nodes]))
    values = dict(zip(model.unknown_scales, nodes.T, strict=True))
    known = model.with_scales({scale: one.mean for scale, one in scales.items()})
    posterior = Posterior(components, found.weights, known, data, "full", log_evidence=found.log_evidence)
    return Solution(posterior, scales, values, found.message)


def _component(mean: Array, factor: BlockFactor, layer: Layer, data: Observations) -> Component:
    return Component(mean, FullCovariance(factor, mean, layer, data), layer)  # type: ignore[arg-type]


class FullCovariance(Covariance):
    """A factor with one-hot columns eliminated, as the covariance of a component."""

    def __init__(self, factor: BlockFactor, mean: Array, layer: Layer, data: Observations) -> None:
        self.factor, self._mean, self._layer, self._data = factor, mean, layer, data

    @cached_property
    def kappa(self) -> Array:  # type: ignore[override]
        """The curvature of each row at this posterior, 0 for a missing entry."""
        eta = self._layer.weights.forward(self._mean) + self._layer.bias
        found = self._layer.family.expectations(self._data.x[0], eta, np.sqrt(self.factor.row_variances())).curvature
        kappa = np.broadcast_to(found, eta.shape)
        return kappa if self._data.observed is None else np.where(self._data.observed[0], kappa, 0.0)

    def variance(self) -> Array:
        """Return the variance of each latent."""
        return self.factor.variance()

    def quadratic(self, C: Weights) -> Array:
        """Return ``c^T Sigma c`` for each row c."""
        return self.factor.quadratic(C)

    def covariance(self, C: Weights) -> Array:
        """Return ``C Sigma C^T``."""
        return self.factor.covariance(C.rows())

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Return draws from ``N(0, Sigma)``."""
        return self.factor.sample(size, rng)

    def solve(self, right: Array) -> Array:
        """Return ``Sigma r`` for each vector r."""
        return self.factor.solve(right)

    def log_determinant(self) -> float:
        """Return ``log det Sigma``."""
        return self.factor.log_determinant()
