"""The optimisation problem that an algorithm works on: a site, the prior above it, and the objective."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from forestmix import vectors
from forestmix.arrays import Array, inner
from forestmix.errors import ArgumentError
from forestmix.families import Family
from forestmix.problem.start import gaussian_start
from forestmix.model import DEF, Observations
from forestmix.partition import Partition
from forestmix.problem.given import GaussianFactors, as_factors, prior_sd, take_rows
from forestmix.statistics import Objective, Site, SiteStatistics
from forestmix.weights import Weights

#: How many units of rounding, relative to the size of its terms, an objective may seem to fall by.
ROUNDING_UNITS = 64
#: How many units of rounding are left of the relative errors of the variances.
UNITS_OF_VARIANCES = 32


@dataclass(frozen=True)
class Point:
    """Factors q with all that was computed at them, for each observation of a batch.

    ``objective``: (N,); ``gradient``: slope of the objective in the means, (N, m); ``rounding``: how far the objective
    may be off because it is a sum of rounded terms, (N,); ``tracked``: whether objective and gradient were carried on
    from another point, see ``Problem.moved``; ``squared_norm``: ``gradient^T P^-1 gradient`` where it is known, P being
    the precision of q at its optimum.
    """

    q: GaussianFactors
    site: SiteStatistics
    objective: Array
    gradient: Array
    rounding: Array
    tracked: bool = False
    squared_norm: Array | None = None

    def take(self, keep: Array) -> Point:
        """Return the point of the chosen observations."""
        batch = {name: getattr(self.site, name)[keep] for name in ("value", "gradient", "eta", "error", "magnitude")}
        shared = {name: getattr(self.site, name) for name in ("curvature", "exact", "kappa")}
        shared = {name: None if part is None else take_rows(part, keep) for name, part in shared.items()}
        return Point(
            self.q.take(keep),
            replace(self.site, **batch, **shared),
            self.objective[keep], self.gradient[keep], self.rounding[keep], self.tracked,
        )  # fmt: skip


class Problem:
    """Maximise ``sum_i (row terms) - KL(q || p)`` over q, for each observation of a batch."""

    #: Whether Newton's system can be factored, where that is affordable.
    factorable: ClassVar[bool] = True
    #: Whether arrays are those of another library than NumPy.
    on_device: ClassVar[bool] = False

    def __init__(
        self, model: DEF, data: Observations, objective: Objective, groups: Partition | None = None,
        *, both: bool = False,
    ) -> None:  # fmt: skip
        self.model = model
        self.site = Site(model.layers[0], data, objective, groups, both=both)
        m, dtype = model.n_latent, model.dtype
        self.prior_mean = np.broadcast_to(model.prior.bias, m).copy()
        self.prior_precision = np.broadcast_to(prior_sd(model.prior).astype(dtype) ** -2, m).copy()
        self._unit = ROUNDING_UNITS * float(np.finfo(dtype).eps)
        self._last_spread: tuple[Array, Array] | None = None
        self._settled: tuple[tuple[Array, Array], tuple[Array, Array]] | None = None

    @property
    def size(self) -> int:
        """Number of latents, m."""
        return self.model.n_latent

    @property
    def joins_deviations(self) -> bool:
        """Whether Newton's steps move deviations with the means: constant curvature has them in closed form."""
        return not self.curvature_is_constant and (self.site.objective == "elbo" or self.site.groups is None)

    @property
    def weights(self) -> Weights:
        """The weights of all rows."""
        return self.site.layer.weights

    @property
    def family(self) -> Family:
        """The family of the rows."""
        return self.site.layer.family

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

    @property
    def climbed(self) -> str:
        """The bound whose value the objective is: "elbo", "fm", or "grouped" for one between the two."""
        return "grouped" if self.site.objective == "fm" and self.site.groups is not None else self.site.objective

    def default_start(self) -> GaussianFactors:
        """Return where a run starts that is given no start."""
        return gaussian_start(self)

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
        return chosen

    @property
    def curvature_is_constant(self) -> bool:
        """Whether the rows' curvature depends on neither x nor q, so that the objective is quadratic in the means."""
        return self.site.layer.family.curvature_is_constant

    def evaluate(self, q: GaussianFactors, known: Point | None = None) -> Point:
        """Return the objective and its slope at q; ``known`` as in ``Site.statistics``."""
        site = self.site.statistics(q, None if known is None else (known.q, known.site))
        slope, form = self._slope(q, site.gradient)
        divergence = 0.5 * form + self._spread_divergence(q)
        rounding = self._unit * (site.magnitude + np.abs(divergence) + self.size)
        return Point(q, site, site.value - divergence, slope, rounding)

    def _slope(self, q: GaussianFactors, gradient: Array) -> tuple[Array, Array]:
        """Return the slope of the objective, (N, m), and ``sum_j (mu_j - prior_mean_j)^2 / sigma0_j^2``, (N,)."""
        return vectors.prior_slope(q.mean, self.prior_mean, self.prior_precision, gradient)

    def moved(
        self, point: Point, q: GaussianFactors, gradient: Array, gain: Array, squared_norm: Array | None
    ) -> Point:
        """Return a point whose gradient and gain over another are known, with no look at W or the rows.

        That is so along a line where the objective is quadratic, with the variances held. The rows' own terms are left
        out: arrays of no columns stand for them.
        """
        count, site = len(gain), point.site
        if not point.tracked:
            unknown, none = np.full(count, np.nan), np.empty((count, 0))
            site = replace(site, value=unknown, gradient=none, eta=none, error=none)
        return Point(q, site, point.objective + gain, gradient, point.rounding, True, squared_norm)

    def with_spread(self, point: Point, sd: Array, information: Array) -> Point:
        """Return the point with other standard deviations, whose information is known, for rows of constant curvature.

        The variances' part of the objective is ``-(1/2) sum_j sigma_j^2 information_j - KL``; all else stays.
        """
        own = {"curvature": information} if self.site.objective == "fm" else {"curvature": None, "exact": information}
        q, site = GaussianFactors(point.q.mean, sd), replace(point.site, **own)
        change = point.site.spread_form(point.q.sd) - site.spread_form(sd)
        gain = 0.5 * change + self._spread_divergence(point.q) - self._spread_divergence(q)
        return replace(point, q=q, site=site, objective=point.objective + gain)

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

    def row_curvature(self, point: Point) -> Array:
        """Return ``kappa_i`` at ``point``, (N or 1, n)."""
        return point.site.kappa

    def curvature_slopes(self, point: Point) -> tuple[Array, Array]:
        """Return f and h of ``inference.dense_newton``, (N, n), 0 where x is missing."""
        site = self.site
        spread = site.spread(point.q.sd).astype(np.float64)
        third, fourth = site.layer.family.curvature_slopes(point.site.eta.astype(np.float64), spread)
        if site.data.observed is not None:
            third, fourth = np.where(site.data.observed, third, 0.0), np.where(site.data.observed, fourth, 0.0)
        if site.objective == "elbo":
            return third, fourth
        return spread * third, point.site.kappa + spread**2 * fourth

    def gradient_norm(self, point: Point) -> Array:
        """Return the relative gradient norm of each observation, (N,), as ``Stopping`` defines it."""
        precision, variances = self._of_variances(point)
        if point.squared_norm is not None:
            return np.maximum(np.sqrt(point.squared_norm / self.size), variances)
        return np.maximum(_rms(point.gradient, precision), variances)

    def variance_norm(self, point: Point) -> Array:
        """Return the relative error of the variances, ``rms_j (P_j sigma_j^2 - 1)``, (N,)."""
        return self._of_variances(point)[1]

    def _of_variances(self, point: Point) -> tuple[Array, Array]:
        """Return the precision of q at its optimum and the norm of the variances.

        Both stay the same once the variances of rows of constant curvature have settled, as accelerated runs have them.
        """
        key = (point.q.sd, point.site.information)
        if self._settled is None or any(old is not new for old, new in zip(self._settled[0], key, strict=True)):
            precision = self.precision(point)
            excess = precision * point.q.sd**2 - 1
            self._settled = (key, (precision, np.sqrt(inner(excess, excess) / self.size)))
        return self._settled[1]

    def check_range(self, start: Point) -> None:
        """Raise where what the rows say of the latents is beyond the range of numbers: no step could be made."""
        if not np.isfinite(start.site.information).all():
            raise out_of_range(self.model)

    def gradient_rounding(self, point: Point) -> Array:
        """Return what rounding leaves of ``gradient_norm`` at a point, (N,).

        A row's error ``t(x) - E a'`` is off by units in the last place of both, and of ``kappa`` times the terms of
        its mean; the sums over rows are off by as much of what they add up.
        """
        layer, q, data = self.site.layer, point.q, self.site.data
        unit = float(np.finfo(self.model.dtype).eps)
        eta = layer.weights.project(None, np.abs(q.mean), absolute=True).absolute + np.abs(layer.bias)
        size = np.abs(layer.family.statistic(data.x)) + np.abs(point.site.error) + point.site.kappa * eta
        if data.observed is not None:
            size = np.where(data.observed, size, 0)
        gathered = layer.weights.collect(None, size.astype(layer.dtype)).absolute
        own = self.prior_precision * (np.abs(q.mean) + np.abs(self.prior_mean))
        return unit * np.maximum(UNITS_OF_VARIANCES, _rms(gathered + own, self.precision(point)))

    def distance_bound(self, point: Point) -> Array:
        """Return how many posterior standard deviations no mean can be further from the optimum than, (N,).

        The objective is concave in means and standard deviations, in the former at least as curved as the log density
        of the prior. So with g the gradient, ``g^T Var_prior(y) g`` and the squares of the variances' relative errors
        add up to a bound, and half of that is one on the nats that are missing.
        """
        excess = self.precision(point) * point.q.sd.astype(np.float64) ** 2 - 1
        squared = self.model.prior.variance_of(point.gradient.astype(np.float64)) + inner(excess, excess)
        return np.sqrt(squared)

    def precision(self, point: Point) -> Array:
        """Return the precision that q would have at its optimum, given the rows' curvature at ``point``."""
        return self.prior_precision + point.site.information


def out_of_range(model: DEF) -> ArgumentError:
    """Return the error for weights whose squares, or squares over those of sd, are beyond the range of numbers."""
    return ArgumentError(
        "W must be such that the sums of its squares, times the rows' curvature (1 / sd^2 for Gaussian rows), are "
        f"finite in {model.dtype}; they overflow. Rescale W, x, b or sd, or use float64."
    )


def _rms(gradient: Array, precision: Array) -> Array:
    return np.sqrt(inner(gradient, gradient / precision) / gradient.shape[1])
