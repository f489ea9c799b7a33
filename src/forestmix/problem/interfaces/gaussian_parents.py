"""Rows of other families under Gaussian parents: one-dimensional expectations, as in a model with one layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.reference import forest_mixture_spread, mean_field_spread
from forestmix.latents import Factors, GaussianFactors
from forestmix.problem.interfaces.base import Interface, Place
from forestmix.problem.updates import forest_mixture_update


class GaussianParents(Interface):
    """Rows with ``eta_i ~ N(m_i, r_i^2)``: ``excess_i = E a(m_i + r_i z) - a(m_i)`` (docs/guide.md).

    The step is a natural gradient step, which whoever takes it must shorten where it would lower the bound.
    """

    def spread(self, parents: Factors) -> Array:
        """Return the row spread ``r_i`` that enters the objective."""
        spread = mean_field_spread if self.objective == "elbo" else forest_mixture_spread
        return np.asarray(spread(self.layer.weights, parents.sd), np.float64)

    def excess(self, parents: Factors, auxiliary: None) -> Array:
        """Return ``E a(m_i + r_i z) - a(m_i)``."""
        eta, spread = self.eta(parents), self.spread(parents)
        return self.masked(self.layer.family.log_partition_gap(eta, spread, np.zeros_like(spread)))

    def target(self, place: Place) -> GaussianFactors:
        """Return the exact coordinate step of each parent, from the curvature at the current rows."""
        return self.step(place, alone=True)

    def step(self, place: Place, layers: Any = None, *, alone: bool = False) -> GaussianFactors:
        """Return the forest mixture step of all parents, or of each ``alone``, with the exact curvature as D."""
        family, parents = self.layer.family, place.parents
        expected = family.expected_log_partition(self.eta(parents), self.spread(parents))
        kappa, error = self.masked(expected.curvature), self.masked(family.statistic(place.seen) - expected.slope)
        prior = self.above.sd.astype(np.float64) ** -2.0
        gradient = self.layer.weights.adjoint(error) - prior * (parents.mean - place.eta)
        sd = np.broadcast_to(parents.sd, parents.mean.shape)
        D = self.majorant(kappa, sd)
        information = D if self.objective == "fm" else self.exact_curvature(kappa)
        curvature = information if alone else D
        return GaussianFactors(*forest_mixture_update(parents.mean, gradient, prior, curvature, information))
