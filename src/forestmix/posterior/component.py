"""The components of a posterior: Gaussians with a covariance of their own, or the factors of q.

A posterior is a mixture of them: one where all scales are known, several where unknown scales are integrated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.model import Layer
from forestmix.posterior.covariance import Covariance, CovarianceBatch, DiagonalCovariance
from forestmix.posterior.layer import LayerPosterior
from forestmix.posterior.system import distinct_rows
from forestmix.scales import Scale
from forestmix.weights.layered import slices_of

#: Halvings of the bracket of a quantile of a mixture: to the last digit of it.
HALVINGS = 80


class Component:
    """Normal latents of N observations, those of all layers side by side, the lowest first.

    Args:
        mean: (N, m); (m,) is taken as one observation.
        covariance: of each observation; one ``Covariance`` is shared by all.
        layer: ``p(x | y)`` of the observed rows, with the scales of this component.
        scales: the number that this component has for each unknown scale.

    """

    def __init__(
        self, mean: Array, covariance: Covariance | CovarianceBatch, layer: Layer,
        scales: Mapping[Scale, float] | None = None,
    ) -> None:  # fmt: skip
        self.mean, self.layer, self.scales = np.atleast_2d(np.asarray(mean, np.float64)), layer, scales or {}
        if isinstance(covariance, Covariance):
            covariance = CovarianceBatch([covariance], np.zeros(len(self.mean), int))
        self.covariance = covariance

    def take(self, keep: Array) -> Component:
        """Return the component of the chosen observations."""
        layer = self.layer.take_observations(keep)
        return Component(self.mean[keep], self.covariance.take(keep), layer, self.scales)

    def fitted(self) -> Component:
        """Return the Gaussian as it was fitted, without what it was widened by: there ``kappa`` gives the precision."""
        return Component(self.mean, self.covariance.unwidened(), self.layer, self.scales)

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Return draws, (size, N, m)."""
        return self.mean + self.covariance.sample(size, rng)

    def quantile(self, p: float) -> Array:
        """Return the quantile of each latent, (N, m)."""
        return self.mean + np.sqrt(self.covariance.variance()) * scipy.special.ndtri(p)


class FactorisedComponent(Component):
    """The factors of q, of any family of latents: quantiles and draws are theirs."""

    def __init__(self, factors: Sequence[LayerPosterior], layer: Layer) -> None:
        mean = np.concatenate([np.atleast_2d(part.mean).astype(np.float64) for part in factors], axis=1)
        sd = np.concatenate([np.atleast_2d(part.sd).astype(np.float64) for part in factors], axis=1)
        distinct, which = distinct_rows(sd)
        super().__init__(mean, CovarianceBatch([DiagonalCovariance(row**2) for row in distinct], which), layer)
        self.factors, self.sd = tuple(factors), sd

    def take(self, keep: Array) -> Component:
        """Return the component of the chosen observations."""
        chosen = [
            LayerPosterior(part.factors.expanded(len(self.mean)).take(keep), False, part.dtype) for part in self.factors
        ]
        return FactorisedComponent(chosen, self.layer.take_observations(keep))

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Return draws of the factors, which are independent."""
        drawn = [part.sample(rng, size).reshape(size, len(self.mean), -1) for part in self.factors]
        return np.concatenate(drawn, axis=2).astype(np.float64)

    def quantile(self, p: float) -> Array:
        """Return the quantile of each factor."""
        found = np.empty_like(self.mean)
        for part, columns in zip(self.factors, slices_of([q.factors.mean.shape[1] for q in self.factors]), strict=True):
            level = np.full(part.factors.mean.shape, p)
            found[:, columns] = part.factors.quantile(level)
        return found


def mixture_moments(weights: Array, means: Array, variances: Array) -> tuple[Array, Array]:
    """Return mean and variance of a mixture by the laws of total mean and variance.

    ``weights`` is (N, S) or (1, S), the others (S, N, ...).
    """
    if len(means) == 1:
        return means[0], variances[0]
    share = weights.T.reshape(*weights.T.shape, *[1] * (means.ndim - 2))
    mean = np.sum(share * means, axis=0)
    return mean, np.sum(share * (variances + (means - mean) ** 2), axis=0)


def mixture_quantile(p: float, weights: Array, means: Array, sds: Array) -> Array:
    """Return the quantile of a mixture of normal distributions, entry by entry, by bisection.

    It lies between those of its components. Shapes are those of ``mixture_moments``.
    """
    ends = means + sds * scipy.special.ndtri(p)
    if len(means) == 1:
        return ends[0]
    share = weights.T.reshape(*weights.T.shape, *[1] * (means.ndim - 2))
    low, high = ends.min(axis=0), ends.max(axis=0)
    # A component without spread is a step: its distance from the middle decides, and rounding where that is 0.
    scale = np.maximum(sds, np.finfo(np.float64).tiny)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        with np.errstate(over="ignore"):
            below = np.sum(share * scipy.special.ndtr((middle - means) / scale), axis=0) < p
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)
