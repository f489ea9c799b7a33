"""The posterior of a regression's effects, with full covariance and unknown scales integrated."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.model import DEF, Layer, Observations, observations
from forestmix.posterior.component import Component
from forestmix.posterior.covariance import Covariance
from forestmix.posterior.factor import BlockFactor
from forestmix.posterior.full import fit_full
from forestmix.posterior.integrate import ScaleFit, fit_scales
from forestmix.posterior.posterior import Posterior
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
        (fit,) = fit_full(model, data)
        component = _component(fit.mean, fit.covariance, model.layers[0])
        return Solution(Posterior([component], [1.0], model, data, "full", log_evidence=fit.elbo), {}, {}, "")
    (found,) = fit_scales(model, data)
    return _integrated(model, data, found)


def _integrated(model: DEF, data: Observations, found: ScaleFit) -> Solution:
    """Return the mixture over the nodes of the unknown scales."""
    components = [_component(node.mean, node.covariance[0], node.layer) for node in found.nodes]
    scales = dict(zip(model.unknown_scales, found.scales, strict=True))
    nodes = np.exp(np.stack([node.theta for node in found.nodes]))
    values = dict(zip(model.unknown_scales, nodes.T, strict=True))
    posterior = Posterior(components, found.weights, model, data, "full", log_evidence=found.log_evidence)
    return Solution(posterior, scales, values, found.message)


def _component(mean: Array, factor: BlockFactor, layer: Layer) -> Component:
    return Component(mean, FullCovariance(factor), layer)  # type: ignore[arg-type]


class FullCovariance(Covariance):
    """A factor with one-hot columns eliminated, as the covariance of a component."""

    def __init__(self, factor: BlockFactor) -> None:
        self.factor = factor

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
