"""Gaussian latents of any depth under rows of any family: the bound, by an engine, in arrays of any library."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import array_api_compat
import numpy as np

from forestmix.arrays import Array, form, host, inner, rms, total
from forestmix.engines.protocol import Capability, Engine, PriorMoments, RowTerms, Spread, SweepStart, Want, require
from forestmix.engines.reference import forest_mixture_spread, mean_field_spread
from forestmix.engines.rows import row_data
from forestmix.latents import GaussianFactors
from forestmix.model import Observations
from forestmix.partition import Partition
from forestmix.problem import newton_system
from forestmix.problem.flat import Stacked
from forestmix.problem.grouped import Grouped
from forestmix.problem.interfaces.base import Acceleration, Interface, Place
from forestmix.problem.points import RowsPoint
from forestmix.problem.start import gaussian_start
from forestmix.problem.updates import forest_mixture_update

#: How many units of rounding are left of the relative errors of the variances.
UNITS_OF_VARIANCES = 32
#: Units in the last place by which a standard deviation may change and count as the same.
SAME_UNITS = 4


class GaussianLatents(Interface):
    """All rows of a model with Gaussian latents, whose layers are stacked: ``sum_i (row terms) - KL(q || p)``.

    Args:
        stacked: the model, its layers stacked.
        data: the observations.
        engine: evaluates the rows.
        objective: "elbo" or "fm".
        groups: use Jensen's inequality inside these groups only; ``None`` for one group of all latents. The layers of a
            deep model are groups.
        both: compute ``D`` and ``H`` alike, whichever of the two the objective needs for the precision of q.

    Attributes:
        quadratic: whether the rows' curvature depends on neither x nor q: the objective is quadratic in the means.
        joint: whether Newton's steps move deviations with the means: constant curvature has them in closed form.

    """

    by_engine: ClassVar[bool] = True
    data: Observations

    def __init__(
        self, stacked: Stacked, data: Observations, engine: Engine, objective: str, groups: Partition | None = None,
        *, both: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(stacked.layer, stacked.deep.prior.family, stacked.data(data).shared(), objective)
        self.stacked, self.size, self.weights = stacked, stacked.deep.n_latent, stacked.layer.weights
        self.engine: Any = engine
        self.held = engine.observe(self.layer, self.data)
        self.groups = stacked.groups if stacked.is_deep else groups
        self.quadratic = self.layer.family.curvature_is_constant
        self.joint = not self.quadratic and (objective == "elbo" or self.groups is None)
        self.acceleration = Acceleration.CONJUGATE if self.quadratic else Acceleration.NEWTON
        self.wanted = Want.VALUE | Want.GRADIENT
        if self.groups is None and (both or objective == "fm"):
            self.wanted |= Want.CURVATURE
        if both or objective == "elbo":
            self.wanted |= Want.INFORMATION
        self.on_host, self.like = not self.weights.on_device, self.weights.prototype()
        self.xp = array_api_compat.array_namespace(self.like)
        self.prior = PriorMoments(self.moved(stacked.prior_mean), self.moved(stacked.prior_precision))

    def moved(self, array: Any) -> Any:
        """Return a NumPy array in the library, precision and place of W."""
        return self.xp.asarray(np.array(array), dtype=self.like.dtype, device=array_api_compat.device(self.like))

    @property
    def n_observations(self) -> int:
        """Number of observations in the batch, N."""
        return len(self.data.x)

    @cached_property
    def grouped(self) -> Grouped | None:
        """Sums over groups, or ``None`` where there are none."""
        return None if self.groups is None else Grouped(self.weights, self.groups)

    @cached_property
    def row_data(self) -> Any:
        """The rows as formulas in arrays of any library have them."""
        return row_data(self.layer, self.data)

    def take(self, keep: Array) -> GaussianLatents:
        """Return the interface of the chosen observations; what was derived from W is shared."""
        chosen = copy(self)
        chosen.data, chosen.layer = self.data.take(keep).shared(), self.layer.take_observations(keep)
        chosen.__dict__.pop("row_data", None)
        shared = self.data.observed is None and not self.layer.family.differs_by_observation
        chosen.held = self.held.take(keep) if shared else self.engine.observe(chosen.layer, chosen.data)
        return chosen

    def first(self, eta: Array) -> GaussianFactors:
        """Return q at the prior, narrowed where the rows call for it."""
        return gaussian_start(self)

    def evaluate(self, place: Place) -> tuple[Array, Array, RowsPoint]:
        """Return the bound, the size of its terms, and its slope; the prior's part of them is added here."""
        (sums, at), q = self.look(place.parents, place.known), place.parents
        away_form = 0.5 * form(q.mean - self.prior.mean, self.prior.precision)
        divergence, value, size = self._spread_divergence(q.sd), sums.value, sums.magnitude
        if self.quadratic:
            # sum_i kappa_i r_i^2 / 2, from sums over latents: this saves the products that r_i takes.
            half = 0.5 * form(q.sd, self.information(at))
            value, size = value - half, size + half
        size = size + self.xp.abs(away_form + divergence)
        if self.stacked.is_deep:
            # The means that cancel in y - W y' - b add to the rounding.
            lower, n = self.stacked.slices[-1].start, self.stacked.deep.n_observed
            size = size + 2 * inner(np.abs(at.error[:, n:]), np.abs(q.mean[:, :lower]))
        return host(value - away_form - divergence), np.asarray(host(size)), at

    def look(self, q: GaussianFactors, known: Any = None) -> tuple[Any, RowsPoint]:
        """Return sums over rows and what follows from them at q.

        ``known``: for rows of constant curvature H is the same everywhere, and D wherever the standard deviations are.
        """
        D, H = (known.curvature, known.exact) if known is not None and self.quadratic else (None, None)
        if D is not None and not (q.sd.shape == known.q.sd.shape and bool(self.xp.all(q.sd == known.q.sd))):
            D = None
        want = self.wanted
        for found, flag in ((D, Want.CURVATURE), (H, Want.INFORMATION)):
            want = want if found is None else want & ~flag
        spread = Spread.NONE if self.quadratic else self._spread(q.sd)
        sums, terms = self.engine.statistics(self.layer, self.held, q, want, spread)
        if Want.CURVATURE in want:
            D = sums.curvature_sd / q.sd
        elif D is None and self.grouped is not None and self.objective == "fm":
            D = self.grouped.curvature(q.sd, terms.kappa)
        gradient = sums.gradient - (q.mean - self.prior.mean) * self.prior.precision
        H = sums.information if Want.INFORMATION in want else H
        return sums, RowsPoint(q, gradient, terms.kappa, D, H, terms.eta, terms.error)

    def _spread(self, sd: Any) -> Spread | Any:
        """Return which spread the objective has, or the spread itself where Jensen's inequality is in groups."""
        if self.objective == "elbo":
            return Spread.SQUARED
        return Spread.ABSOLUTE if self.grouped is None else self.grouped.spread(sd)

    def row_spread(self, sd: Any) -> Any:
        """Return the spread ``r_i`` of the objective, (N or 1, n)."""
        spread = self._spread(sd)
        if spread is Spread.SQUARED:
            return mean_field_spread(self.weights, sd)
        return forest_mixture_spread(self.weights, sd) if spread is Spread.ABSOLUTE else spread

    def excess(self, parents: GaussianFactors, auxiliary: None, narrow: Any = 0.0) -> Array:
        """Return ``E a(m_i + r_i z)`` less the same at a narrower spread, none if it is left out."""
        eta, wide = self.weights.forward(parents.mean) + self.layer.bias, self.row_spread(parents.sd)
        difference = self.layer.family.log_partition_gap(eta, wide, np.broadcast_to(narrow, wide.shape))
        return self.masked(np.broadcast_to(difference, eta.shape))

    def gap(self, place: Place, other: Any, at_other: Place) -> Array:
        """Return the excess of these rows over that at the spread of another bound, (N, n)."""
        return self.excess(place.parents, None, narrow=other.row_spread(place.parents.sd))

    def _spread_divergence(self, sd: Any) -> Any:
        """Return ``sum_j (v - 1 - log v) / 2`` with ``v = sd^2 / sd0^2``; minus the entropy where sd0 is infinite."""
        precision = self.prior.precision
        proper = self.xp.where(precision > 0, precision, self.xp.full_like(precision, 2 * np.pi))
        return 0.5 * total(sd * sd * precision - 1 - 2 * self.xp.log(sd * proper**0.5))

    def with_sd(self, at: RowsPoint, sd: Any, information: Any) -> tuple[RowsPoint, Array]:
        """Return what is known at other standard deviations, whose information is known, and what the bound gains.

        That is for rows of constant curvature, where the variances' part of it is ``-(1/2) sum_j sigma_j^2
        information_j - KL``; all else stays.
        """
        before = 0.5 * form(at.q.sd, self.information(at)) + self._spread_divergence(at.q.sd)
        gain = before - 0.5 * form(sd, information) - self._spread_divergence(sd)
        D = information if self.objective == "fm" else None
        return replace(at, q=type(at.q)(at.q.mean, sd), curvature=D), host(gain)

    def information(self, at: Any) -> Any:
        """Return what the rows add to the precision of q: ``D`` for the paper's bound, ``H`` for the ELBO."""
        return at.curvature if self.objective == "fm" else at.exact

    def precision(self, at: Any) -> Any:
        """Return the precision that q would have at its optimum, given the rows' curvature."""
        return self.prior.precision + self.information(at)

    def majorant(self, kappa: Any, sd: Any) -> Any:
        """Return ``D_j``, which majorises the mean problem for all latents at once."""
        return self.engine.curvatures(self.layer, kappa, sd, Want.CURVATURE)[0] / sd

    def curvature_at(self, sd: Any, at: Any) -> Any:
        """Return ``D_j`` of the bound, in groups where there are any, at other standard deviations."""
        return self.majorant(at.kappa, sd) if self.grouped is None else self.grouped.curvature(sd, at.kappa)

    def exact_information(self, at: Any) -> Any:
        """Return ``H_j = sum_i w_ij^2 kappa_i``, the curvature of the exact coordinate update."""
        if at.exact is not None:
            return at.exact
        return self.engine.curvatures(self.layer, at.kappa, at.q.sd, Want.INFORMATION)[1]

    def normal_image(self, p: Any, kappa: Any) -> tuple[Any, Any]:
        """Return ``A p``, (N, m), and ``p^T A p``, (N, 1), with ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``."""
        image, squares = self.engine.normal_product(self.layer, kappa, p)
        return image + p * self.prior.precision, (squares + form(p, self.prior.precision))[:, None]

    def spread_at(self, information: Any, old: Any) -> Any:
        """Return ``1 / sqrt(1 / sigma0_j^2 + information_j)``, the best spread, or ``old`` where rounding is all."""
        return self._kept(1 / (self.prior.precision + information) ** 0.5, old)

    def _kept(self, new: Any, old: Any) -> Any:
        """Return ``new`` standard deviations, or ``old`` ones where rounding is all that they differ by."""
        unit = SAME_UNITS * self.rounding_unit
        same = new.shape == old.shape and bool(self.xp.all(self.xp.abs(new - old) <= unit * old))
        return old if same else new

    def moves(self, place: Place) -> tuple[Array, Array]:
        """Return the squared gradient in posterior standard deviations, and the variances' squared relative errors."""
        at = place.known
        if at.carried:
            return at.moves
        return host(form(at.gradient, 1 / self.precision(at))), self.size * self.variance_norm(at) ** 2

    def variance_norm(self, at: Any) -> Array:
        """Return the relative error of the variances, ``rms_j (P_j sigma_j^2 - 1)``, (N,)."""
        return rms(self.precision(at) * at.q.sd**2 - 1)

    def gradient_rounding(self, place: Place) -> Array:
        """Return what rounding leaves of the relative gradient norm, (N,).

        A row's error ``t(x) - E a'`` is off by units in the last place of both, and of ``kappa`` times the terms of
        its mean; the sums over rows are off by as much of what they add up.
        """
        xp, weights, at, mean = self.xp, abs(self.weights), place.known, place.parents.mean
        eta = weights.forward(xp.abs(mean)) + xp.abs(self.row_data.bias)
        size = 2 * xp.abs(at.error) + at.kappa * (eta + xp.abs(at.eta))
        own = self.prior.precision * (xp.abs(mean) + xp.abs(self.prior.mean))
        left = rms((weights.adjoint(size) + own) / self.precision(at) ** 0.5)
        return self.rounding_unit * np.maximum(UNITS_OF_VARIANCES, left)

    def distance(self, place: Place, *, exactly: bool) -> Array:
        """Return how far any mean can be from the optimum, in posterior standard deviations, (N,).

        The objective is concave in means and standard deviations, in the former at least as curved as the log density
        of the prior. So with g the gradient, ``g^T Var_prior(y) g`` and the squares of the variances' relative errors
        add up to a bound, and half of that is one on the nats that are missing.
        """
        at = place.known
        if exactly and newton_system.affordable(self):
            return newton_system.distance(self, at)
        if self.on_host:
            squared = self.stacked.prior_variance(at.gradient.astype(np.float64))
        else:
            squared = host(form(at.gradient, 1 / self.prior.precision))
        return np.sqrt(squared + self.moves(place)[1])

    def in_range(self, known: RowsPoint, objective: Array) -> bool:
        """Return whether what the rows say of the latents is finite."""
        return bool(self.xp.all(self.xp.isfinite(self.information(known))))

    def target(self, place: Place) -> GaussianFactors:
        """Return the exact coordinate step of every latent, the others held."""
        return self._updated(place.known, self.information(place.known))

    def step(self, place: Place, layers: Sequence[int] | None = None) -> GaussianFactors:
        """Return the factors after a forest mixture step of all latents, or of some layers (paper, Theorem 2)."""
        at = place.known
        if layers is not None and self.stacked.is_deep:
            new = self._updated(at, self.curvature_at(at.q.sd, at))
            which = np.isin(np.repeat(np.arange(len(self.stacked.slices)), self.stacked.deep.latent_sizes), layers)
            return GaussianFactors(np.where(which, new.mean, at.q.mean), np.where(which, new.sd, at.q.sd))
        # Within groups the curvature is smaller, and serves one group at a time.
        whole = at.curvature is not None and self.groups is None
        return self._updated(at, at.curvature if whole else self.majorant(at.kappa, at.q.sd))

    def _updated(self, at: RowsPoint, D: Any) -> GaussianFactors:
        q, information = at.q, self.information(at)
        mean, sd = forest_mixture_update(q.mean, at.gradient, self.prior.precision, D, information)
        return type(q)(mean, self._kept(sd, q.sd))

    def sweep(self, place: Place, groups: Partition, *, surrogate: bool) -> GaussianFactors:
        """Return the factors after the groups were updated one after another, the members of each at once.

        Exact updates of several latents at once may lower the objective: such steps are not halved.
        """
        safe = surrogate or bool(np.all(groups.sizes == 1))
        spread = Spread.ABSOLUTE if self.objective == "fm" else Spread.SQUARED
        options = {"surrogate": surrogate, "safe": safe, "spread": spread}
        return GaussianFactors(*self.engine.sweep_groups(self.sweep_start(place.known), groups, **options))

    def sweep_start(self, at: RowsPoint) -> SweepStart:
        """Return where the engine's coordinate updates begin."""
        require(self.engine, Capability.SWEEP, "coordinate updates")
        spread, terms = None if self.quadratic else self.row_spread(at.q.sd), RowTerms(at.eta, at.error, at.kappa)
        return SweepStart(self.layer, self.held, at.q, terms, spread, self.prior)
