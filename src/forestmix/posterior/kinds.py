"""The kinds of posterior that a result can give: q itself, and q with its correlations put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.arrays import Array, generator
from forestmix.model import DEF, Observations
from forestmix.posterior.component import Component, FactorisedComponent
from forestmix.posterior.covariance import Covariance, CovarianceBatch, FactoredCovariance
from forestmix.posterior.factor import BlockFactor
from forestmix.posterior.iterative import IterativeCovariance
from forestmix.posterior.layer import LayerPosterior
from forestmix.posterior.newton import corrected_means
from forestmix.posterior.row_factored import RowFactoredCovariance
from forestmix.posterior.system import LatentSystem, distinct_rows, require_gaussian_latents
from forestmix.problem.given import as_layers

if TYPE_CHECKING:
    from forestmix.posterior.result import Result

#: Up to this many latents the precision is factored, in some 300 to 650 MB.
FACTOR_LIMIT = 6000
#: With more latents, but at most this many rows, a matrix of the rows is factored instead.
ROW_FACTOR_LIMIT = 3000
#: Bytes of factors that a posterior of a batch holds on to; beyond, they are made anew when they are needed.
HELD_FACTORS = 2**30


def factorised_component(result: Result) -> FactorisedComponent:
    """Return q itself."""
    model, count = result.model.on_host(), len(result.data.x)
    layers = as_layers("result", result, model, count)
    factors = [LayerPosterior(part.expanded(count), False, model.dtype) for part in layers]
    return FactorisedComponent(factors, model.layers[0])


def corrected_component(
    model: DEF, data: Observations, factors: tuple[Array, Array], tol: float, rng: Any, progress: bool
) -> Component:
    """Return q with the covariance of linear response, and with its means corrected where that is factored.

    ``factors`` are means and standard deviations of q, (N, m), those of all layers side by side.
    """
    require_gaussian_latents(model, "kind='corrected'")
    system, (mean, sd) = LatentSystem(model, data), factors
    distinct, which = distinct_rows(system.curvatures(mean, sd))
    which = np.broadcast_to(which, len(mean))
    seeds = generator(rng).spawn(len(distinct))
    hold = 8 * len(distinct) * min(system.weights.shape) ** 2 <= HELD_FACTORS
    each = [make_covariance(system, row, tol, seed, progress, hold) for row, seed in zip(distinct, seeds, strict=True)]
    covariance = CovarianceBatch(each, which)
    if is_factored(covariance):
        mean = corrected_means(system, mean, covariance)
    return Component(mean, covariance, model.layers[0])


def make_covariance(system: LatentSystem, kappa: Array, tol: float, rng: Any, progress: bool, hold: bool) -> Covariance:
    """Return the covariance at given curvatures: by a factor where one can be held, else by draws."""
    if system.weights.shape[1] <= FACTOR_LIMIT:
        return FactoredCovariance(system.weights, kappa, system.scale, tol, keep=hold)
    if system.weights.shape[0] <= ROW_FACTOR_LIMIT and np.isfinite(system.scale).all():
        return RowFactoredCovariance(system.weights, kappa, system.scale, tol, keep=hold)
    prior_variance = system.stacked.prior_variance
    return IterativeCovariance(system.weights, kappa, system.scale, prior_variance, tol, rng, progress=progress)


def is_factored(covariance: CovarianceBatch) -> bool:
    """Whether products with the covariance are exact and cheap."""
    return all(isinstance(one, FactoredCovariance | BlockFactor) for one in covariance.distinct)
