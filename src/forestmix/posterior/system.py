"""The linear system behind a posterior of Gaussian latents, in float64, the layers of a deep model stacked.

With ``q`` at its optimum the precision of the latents by linear response is (docs/trust.md)::

    A = diag(1 / sigma0^2) + W^T diag(kappa) W        kappa_i = E a''(m_i + sqrt(v_i) z)
"""

from __future__ import annotations

from copy import copy

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.families import Gaussian
from forestmix.families.base import RowExpectations
from forestmix.model import DEF, Observations
from forestmix.problem.flat import Stacked
from forestmix.weights import SparseWeights, Weights


class LatentSystem:
    """Rows with their data, weights and prior of a model whose latents are all Gaussian.

    Attributes:
        weights: W in float64, (n, m); for a deep model that of the stacked latents.
        data: the observations of all rows, also those that stand for latents of a deep model.
        precision, prior_mean: of each latent, (m,); the precision is 0 for latents whose prior is among the rows.
        stacked: the model with its layers stacked.

    """

    def __init__(self, model: DEF, data: Observations) -> None:
        model = model.on_host()
        self.stacked = Stacked(model)
        layer = self.stacked.layer.with_weights(self.stacked.layer.weights.in_double())
        self.weights, self.family, self.bias = layer.weights, layer.family, layer.bias
        self.data = self.stacked.data(data).shared()
        self.precision = self.stacked.prior_precision.astype(np.float64)
        with np.errstate(divide="ignore"):
            self.scale = self.precision**-0.5
        self.prior_mean = self.stacked.prior_mean.astype(np.float64)

    def take(self, keep: Array) -> LatentSystem:
        """Return the system of the chosen observations."""
        chosen = copy(self)
        chosen.data, chosen.family = self.data.take(keep), self.family.take_observations(keep)
        return chosen

    @property
    def constant_curvature(self) -> bool:
        """Whether kappa depends neither on the means nor on the data, as for Gaussian rows."""
        return self.family.curvature_is_constant

    def eta(self, mean: Array) -> Array:
        """Return ``m_i = b_i + w_i . mean`` of all rows, (N, n)."""
        return self.weights.forward(mean) + self.bias

    def terms(self, eta: Array, variance: Array) -> RowExpectations:
        """Return ``E log p``, ``e_i`` and ``kappa_i`` at ``eta_i ~ N(m_i, v_i)``, 0 where x is missing; (N or 1, n)."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.family.expectations(self.data.x.astype(np.float64), eta, np.sqrt(variance))
        parts = [np.atleast_2d(np.asarray(part, np.float64)) for part in found]
        parts[2] = np.broadcast_to(parts[2], (len(parts[2]), self.weights.shape[0]))
        if self.data.observed is not None:
            parts = [np.where(self.data.observed, part, 0.0) for part in parts]
        return RowExpectations(*parts)

    def curvatures(self, mean: Array, sd: Array) -> Array:
        """Return ``kappa`` at factors q, (N or 1, n). The spread is the ELBO's, whichever bound was climbed.

        That of the forest mixture bound is wider and would smear ``a''`` over values that eta does not take.
        """
        variance = self.weights.square().forward(np.asarray(sd, np.float64) ** 2)
        kappa = self.terms(self.eta(mean), variance).curvature
        if not np.isfinite(kappa).all():
            raise ForestmixError(
                "The rows' expected curvature is infinite at this posterior, so it has no linear response. It is no "
                "optimum: look at result.message, and at the scales of x and W."
            )
        return kappa


def require_gaussian_latents(model: DEF, what: str) -> None:
    """Raise unless all latents are Gaussian, and say what is there for others."""
    others = [family for family in model.latent_families if not isinstance(family, Gaussian)]
    if others:
        raise ArgumentError(
            f"{what} needs Gaussian latents; these are {others[0]!r}. For them there is kind='factorised', which is q "
            "itself."
        )


def distinct_rows(kappa: Array) -> tuple[Array, Array]:
    """Return the distinct rows of an array and which of them each row is, so that each is solved for once."""
    known: dict[bytes, int] = {}
    which = np.array([known.setdefault(row.tobytes(), len(known)) for row in kappa])
    return kappa[np.unique(which, return_index=True)[1]], which


def padded(vectors: Weights, before: int, m: int) -> Weights:
    """Return the vectors with zeros for latents before and after theirs, m in all; themselves if there are none."""
    after = m - before - vectors.shape[1]
    if before == after == 0:
        return vectors
    sides = [scipy.sparse.csr_array((vectors.shape[0], width)) for width in (before, after)]
    return SparseWeights(scipy.sparse.csr_array(scipy.sparse.hstack([sides[0], vectors.rows(), sides[1]])))
