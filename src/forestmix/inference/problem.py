"""The optimisation problem that an algorithm works on: a site, the prior above it, and the objective."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forestmix.arrays import Array, total
from forestmix.model import DEF, Observations
from forestmix.partition import Partition
from forestmix.posterior import GaussianFactors, as_factors, prior_factors, prior_sd, take_rows
from forestmix.statistics import Objective, Site, SiteStatistics

#: How many units of rounding, relative to the size of its terms, an objective may seem to fall by.
ROUNDING_UNITS = 64


@dataclass(frozen=True)
class Point:
    """Factors q with all that was computed at them, for each observation of a batch.

    ``objective``: (N,); ``gradient``: slope of the objective in the means, (N, m); ``rounding``: how far the objective
    may be off because it is a sum of rounded terms, (N,).
    """

    q: GaussianFactors
    site: SiteStatistics
    objective: Array
    gradient: Array
    rounding: Array

    def take(self, keep: Array) -> Point:
        """Return the point of the chosen observations."""
        batch = {name: getattr(self.site, name)[keep] for name in ("value", "gradient", "eta", "error", "magnitude")}
        shared = {name: take_rows(getattr(self.site, name), keep) for name in ("information", "kappa")}
        return Point(
            self.q.take(keep),
            replace(self.site, **batch, **shared),
            self.objective[keep], self.gradient[keep], self.rounding[keep],
        )  # fmt: skip


class Problem:
    """Maximise ``sum_i (row terms) - KL(q || p)`` over q, for each observation of a batch."""

    def __init__(self, model: DEF, data: Observations, objective: Objective, groups: Partition | None = None) -> None:
        self.model = model
        self.site = Site(model.layers[0], data, objective, groups)
        m, dtype = model.n_latent, model.dtype
        self.prior_mean = np.ascontiguousarray(np.broadcast_to(model.prior.bias, m))
        self.prior_precision = np.ascontiguousarray(np.broadcast_to(prior_sd(model.prior).astype(dtype) ** -2, m))
        self._last_curvature: tuple[Array, Array] | None = None

    @property
    def size(self) -> int:
        """Number of latents, m."""
        return self.model.n_latent

    @property
    def n_observations(self) -> int:
        """Number of observations in the batch, N."""
        return self.site.data.x.shape[0]

    @property
    def single(self) -> bool:
        """Whether the caller gave one observation without a leading axis."""
        return self.site.data.single

    @property
    def objective_name(self) -> str:
        """The bound that is climbed."""
        return self.site.objective

    def start(self, init: Any) -> GaussianFactors:
        """Return a start that the user gave, checked."""
        return as_factors("init", init, self.model, self.n_observations)

    def split(self, q: GaussianFactors) -> tuple[GaussianFactors, ...]:
        """Return the factors of each latent layer."""
        return (q,)

    def take(self, keep: Array) -> Problem:
        """Return the problem of the chosen observations."""
        chosen = copy(self)
        chosen.site = self.site.take(keep)
        chosen._last_curvature = None
        return chosen

    @property
    def curvature_is_constant(self) -> bool:
        """Whether the rows' curvature depends on neither x nor q, so that the objective is quadratic in the means."""
        return self.site.layer.family.curvature_is_constant

    def evaluate(self, q: GaussianFactors, eta: Array | None = None, known: Point | None = None) -> Point:
        """Return the objective and its slope at q; ``eta`` and ``known`` as in ``Site.statistics``."""
        site = self.site.statistics(q, eta, None if known is None else (known.q, known.site))
        divergence = q.divergence(self.model.prior)
        gradient = site.gradient - (q.mean - self.prior_mean) * self.prior_precision
        unit = ROUNDING_UNITS * float(np.finfo(self.model.dtype).eps)
        rounding = unit * (site.magnitude + np.abs(divergence) + self.size)
        return Point(q, site, site.value - divergence, gradient, rounding)

    def curvature(self, point: Point) -> Array:
        """Return ``D_j`` at ``point``, which majorises the mean problem for all latents at once, or for each group."""
        if self.site.objective == "fm":
            return point.site.information
        if self.curvature_is_constant and self._last_curvature is not None and self._last_curvature[0] is point.q.sd:
            return self._last_curvature[1]
        curvature = self.site.curvature(point.q.sd, point.site.kappa)
        self._last_curvature = (point.q.sd, curvature)
        return curvature

    def gradient_norm(self, point: Point) -> Array:
        """Return the relative gradient norm of each observation, (N,), as ``Stopping`` defines it."""
        precision = self.precision(point)
        variances = np.sqrt(np.mean((precision * point.q.sd**2 - 1.0) ** 2, axis=-1, dtype=np.float64))
        return np.maximum(_rms(point.gradient, precision), variances)

    def gradient_at_prior(self, start: Point, from_prior: bool) -> Array:
        """Return the norm of the gradient at the prior mean, which says what rounding leaves of it later."""
        at_prior = start if from_prior else self.evaluate(prior_factors(self.model, self.n_observations))
        return _rms(at_prior.gradient, self.precision(start))

    def precision(self, point: Point) -> Array:
        """Return the precision that q would have at its optimum, given the rows' curvature at ``point``."""
        return self.prior_precision + point.site.information


def _rms(gradient: Array, precision: Array) -> Array:
    return np.sqrt(total(gradient**2 / precision) / gradient.shape[1])
