"""The optimisation problem that an algorithm works on: a site, the prior above it, and the objective."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from forestmix.arrays import Array
from forestmix.model import DEF, Observations
from forestmix.partition import Partition
from forestmix.posterior import GaussianFactors, prior_sd, take_rows
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
        shared = {name: getattr(self.site, name) for name in ("curvature", "exact", "kappa")}
        shared = {name: None if part is None else take_rows(part, keep) for name, part in shared.items()}
        return Point(
            self.q.take(keep),
            replace(self.site, **batch, **shared),
            self.objective[keep], self.gradient[keep], self.rounding[keep],
        )  # fmt: skip


class Problem:
    """Maximise ``sum_i (row terms) - KL(q || p)`` over q, for each observation of a batch."""

    def __init__(
        self, model: DEF, data: Observations, objective: Objective, groups: Partition | None = None,
        *, both: bool = False,
    ) -> None:  # fmt: skip
        self.model = model
        self.site = Site(model.layers[0], data, objective, groups, both=both)
        m, dtype = model.n_latent, model.dtype
        self.prior_mean = np.ascontiguousarray(np.broadcast_to(model.prior.bias, m))
        self.prior_precision = np.ascontiguousarray(np.broadcast_to(prior_sd(model.prior).astype(dtype) ** -2, m))
        self._last_spread: tuple[Array, Array] | None = None

    @property
    def size(self) -> int:
        """Number of latents, m."""
        return self.model.n_latent

    @property
    def n_observations(self) -> int:
        """Number of observations in the batch, N."""
        return self.site.data.x.shape[0]

    def take(self, keep: Array) -> Problem:
        """Return the problem of the chosen observations."""
        chosen = copy(self)
        chosen.site = self.site.take(keep)
        return chosen

    @property
    def curvature_is_constant(self) -> bool:
        """Whether the rows' curvature depends on neither x nor q, so that the objective is quadratic in the means."""
        return self.site.layer.family.curvature_is_constant

    def evaluate(
        self, q: GaussianFactors, eta: Array | None = None, gradient: Array | None = None, known: Point | None = None
    ) -> Point:
        """Return the objective and its slope at q; the other arguments as in ``Site.statistics``."""
        site = self.site.statistics(q, eta, gradient, None if known is None else (known.q, known.site))
        slope = q.mean - self.prior_mean
        divergence = 0.5 * self.prior_form(slope) + self._spread_divergence(q)
        slope *= -self.prior_precision
        slope += site.gradient
        unit = ROUNDING_UNITS * float(np.finfo(self.model.dtype).eps)
        rounding = unit * (site.magnitude + np.abs(divergence) + self.size)
        return Point(q, site, site.value - divergence, slope, rounding)

    def prior_form(self, vectors: Array) -> Array:
        """Return ``sum_j v_j^2 / sigma0_j^2`` of each vector, (N,)."""
        return np.einsum("kj,kj,j->k", vectors, vectors, self.prior_precision, dtype=np.float64)

    def _spread_divergence(self, q: GaussianFactors) -> Array:
        """Return the part of KL(q || p) that depends on the variances, which accelerated runs settle at the start."""
        if self._last_spread is None or self._last_spread[0] is not q.sd:
            self._last_spread = (q.sd, q.spread_divergence(self.model.prior))
        return self._last_spread[1]

    def curvature(self, point: Point) -> Array:
        """Return ``D_j`` at ``point``, which majorises the mean problem for all latents at once, or for each group."""
        return self.curvature_at(point.q.sd, point) if point.site.curvature is None else point.site.curvature

    def curvature_at(self, sd: Array, point: Point) -> Array:
        """Return ``D_j`` at other standard deviations, with the rows' curvature at ``point``."""
        found, _ = self.site.curvatures(sd, point.site.kappa, curvature=True, exact=False)
        assert found is not None
        return found

    def exact_information(self, point: Point) -> Array:
        """Return ``H_j = sum_i w_ij^2 kappa_i`` at ``point``, the curvature of the exact coordinate update."""
        found = point.site.exact
        if found is None:
            _, found = self.site.curvatures(point.q.sd, point.site.kappa, curvature=False, exact=True)
            assert found is not None
        return found

    def precision(self, point: Point) -> Array:
        """Return the precision that q would have at its optimum, given the rows' curvature at ``point``."""
        return self.prior_precision + point.site.information
