"""The bound of Gaussian factors under rows of any family, evaluated by an engine in arrays of any library."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import array_api_compat
import numpy as np

from forestmix.arrays import Array, host
from forestmix.engines.protocol import Engine, PriorMoments, RowTerms, Spread, Want
from forestmix.engines.reference import forest_mixture_spread, mean_field_spread
from forestmix.engines.rows import curvature_slopes, row_data
from forestmix.latents import GaussianFactors
from forestmix.model import DEF, Observations
from forestmix.partition import Partition
from forestmix.problem.base import Acceleration
from forestmix.problem.flat import Stacked
from forestmix.problem.grouped import Grouped
from forestmix.problem.points import CarriedPoint, GaussianPoint
from forestmix.problem.sums import form, inner, total

#: How many units of rounding, relative to the size of its terms, an objective may seem to fall by.
ROUNDING_UNITS = 64


class GaussianObjective:
    """``sum_i (row terms) - KL(q || p)``, its slope, and its curvatures.

    Args:
        stacked: the model, its layers stacked.
        data: the observations.
        engine: evaluates the rows.
        objective: "elbo" or "fm".
        groups: use Jensen's inequality inside these groups only; ``None`` for one group of all latents. The layers of a
            deep model are groups.
        both: compute ``D`` and ``H`` alike, whichever of the two the objective needs for the precision of q.

    """

    def __init__(
        self, stacked: Stacked, data: Observations, engine: Engine, objective: str, groups: Partition | None = None,
        *, both: bool = False,
    ) -> None:  # fmt: skip
        self.stacked, self.engine = stacked, engine
        self.model: DEF = stacked.deep
        self.layer, self.weights, self.family = stacked.layer, stacked.layer.weights, stacked.layer.family
        self.data = stacked.data(data).shared()
        self.rows = engine.observe(self.layer, self.data)
        self.groups = stacked.groups if stacked.is_deep else groups
        # With the layers as groups "fm" is the paper's deep bound.
        own_groups = objective == "fm" and groups is not None and not stacked.is_deep
        self.objective_name, self.climbed = objective, "grouped" if own_groups else objective
        self.acceleration = Acceleration.CONJUGATE if self.quadratic else Acceleration.NEWTON
        wanted = Want.VALUE | Want.GRADIENT
        if self.groups is None and (both or objective == "fm"):
            wanted |= Want.CURVATURE
        if both or objective == "elbo":
            wanted |= Want.INFORMATION
        self.wanted = wanted
        like = self.weights.prototype()
        self.xp, self.device, self.dtype = (
            array_api_compat.array_namespace(like), array_api_compat.device(like), like.dtype,
        )  # fmt: skip
        self.prior = PriorMoments(self.moved(stacked.prior_mean), self.moved(stacked.prior_precision))
        self._unit = ROUNDING_UNITS * float(np.finfo(self.model.dtype).eps)

    def moved(self, array: Any) -> Any:
        """Return a NumPy array in the library, precision and place of W."""
        return self.xp.asarray(np.array(array), dtype=self.dtype, device=self.device)

    @property
    def on_host(self) -> bool:
        """Whether arrays are NumPy's."""
        return not self.weights.on_device

    @property
    def quadratic(self) -> bool:
        """Whether the rows' curvature depends on neither x nor q, so that the objective is quadratic in the means."""
        return self.family.curvature_is_constant

    @property
    def joint(self) -> bool:
        """Whether Newton's steps move deviations with the means: constant curvature has them in closed form."""
        return not self.quadratic and (self.objective_name == "elbo" or self.groups is None)

    @cached_property
    def grouped(self) -> Grouped | None:
        """Sums over groups, or ``None`` where there are none."""
        return None if self.groups is None else Grouped(self.weights, self.groups)

    @cached_property
    def row_data(self) -> Any:
        """The rows as formulas in arrays of any library have them."""
        return row_data(self.layer, self.data)

    def evaluate(self, q: GaussianFactors, known: Any = None) -> GaussianPoint:
        """Return the objective and its slope at q.

        ``known`` is another point: for rows of constant curvature H is the same everywhere, and D wherever the standard
        deviations are.
        """
        old = known.origin if known is not None and self.quadratic else None
        same = old is not None and q.sd.shape == old.q.sd.shape and bool(self.xp.all(q.sd == old.q.sd))
        want = self.wanted
        if old is not None and old.exact is not None:
            want &= ~Want.INFORMATION
        if same and old is not None and old.curvature is not None:
            want &= ~Want.CURVATURE
        sums, terms = self.engine.statistics(self.layer, self.rows, q, want, self._spread(q.sd))
        D = sums.curvature_sd / q.sd if Want.CURVATURE in want else (old.curvature if old and same else None)
        if D is None and self.grouped is not None and self.objective_name == "fm":
            D = self.grouped.curvature(q.sd, terms.kappa)
        H = sums.information if Want.INFORMATION in want else (old.exact if old else None)
        divergence = old.divergence if old is not None and same else self._spread_divergence(q.sd)
        return self._point(q, sums, terms, D, H, divergence)

    def _point(self, q: GaussianFactors, sums: Any, terms: RowTerms, D: Any, H: Any, divergence: Any) -> GaussianPoint:
        """Return the point, with the prior's part of the objective and of its slope."""
        away = q.mean - self.prior.mean
        away_form = 0.5 * form(away, self.prior.precision)
        value, size = sums.value, sums.magnitude
        if self.quadratic:
            # sum_i kappa_i r_i^2 / 2, from sums over latents: this saves the products that r_i takes.
            half = 0.5 * form(q.sd, D if self.objective_name == "fm" else H)
            value, size = value - half, size + half
        size = size + self.xp.abs(away_form + divergence) + self.model.n_latent
        if self.stacked.is_deep:
            # The means that cancel in y - W y' - b add to the rounding.
            lower, n = self.stacked.slices[-1].start, self.model.n_observed
            size = size + 2 * inner(np.abs(terms.error[:, n:]), np.abs(q.mean[:, :lower]))
        objective, rounding = host(value - away_form - divergence), self._unit * host(size)
        gradient = sums.gradient - away * self.prior.precision
        return GaussianPoint(q, objective, np.asarray(rounding), gradient, terms, D, H, divergence)

    def _spread(self, sd: Any) -> Spread | Any:
        """Return which spread enters the row terms, or the spread itself where Jensen's inequality is in groups."""
        if self.quadratic:
            return Spread.NONE
        if self.objective_name == "elbo":
            return Spread.SQUARED
        return Spread.ABSOLUTE if self.grouped is None else self.grouped.spread(sd)

    def row_spread(self, sd: Any) -> Any:
        """Return the spread ``r_i`` of the objective, (N or 1, n)."""
        if self.objective_name == "elbo":
            return mean_field_spread(self.weights, sd)
        return forest_mixture_spread(self.weights, sd) if self.grouped is None else self.grouped.spread(sd)

    def _spread_divergence(self, sd: Any) -> Any:
        """Return ``sum_j (v - 1 - log v) / 2`` with ``v = sd^2 / sd0^2``; minus the entropy where sd0 is infinite."""
        return 0.5 * total(sd * sd * self.prior.precision - 2 * self.xp.log(sd) - self._log_precision)

    @cached_property
    def _log_precision(self) -> Any:
        """``1 + log(1 / sd0^2)``, with ``2 pi`` where sd0 is infinite."""
        precision = self.prior.precision
        proper = self.xp.where(precision > 0, precision, self.xp.full_like(precision, 2 * np.pi))
        return 1 + self.xp.log(proper)

    def carried(self, point: Any, mean: Any, gradient: Any, gain: Array, squared_norm: Array | None) -> CarriedPoint:
        """Return the point at other means, whose gradient and gain over another are known, with no look at the rows."""
        q = type(point.q)(mean, point.q.sd)
        return CarriedPoint(point.origin, q, point.objective + gain, gradient, squared_norm)

    def with_sd(self, point: GaussianPoint, sd: Any, information: Any) -> GaussianPoint:
        """Return the point with other standard deviations, whose information is known, for rows of constant curvature.

        The variances' part of the objective is ``-(1/2) sum_j sigma_j^2 information_j - KL``; all else stays.
        """
        divergence = self._spread_divergence(sd)
        before = 0.5 * form(point.q.sd, self.information(point)) + point.divergence
        gain = before - 0.5 * form(sd, information) - divergence
        D = information if self.objective_name == "fm" else None
        q, objective = type(point.q)(point.q.mean, sd), point.objective + host(gain)
        return replace(point, q=q, objective=objective, curvature=D, divergence=divergence)

    def information(self, point: Any) -> Any:
        """Return what the rows add to the precision of q: ``D`` for the paper's bound, ``H`` for the ELBO."""
        return point.origin.curvature if self.objective_name == "fm" else point.origin.exact

    def precision(self, point: Any) -> Any:
        """Return the precision that q would have at its optimum, given the rows' curvature at ``point``."""
        return self.prior.precision + self.information(point)

    def curvature(self, point: GaussianPoint) -> Any:
        """Return ``D_j`` at ``point``, which majorises the mean problem for all latents at once."""
        if point.curvature is not None and self.groups is None:
            return point.curvature
        return self.engine.curvatures(self.layer, point.terms.kappa, point.q.sd, Want.CURVATURE)[0] / point.q.sd

    def curvature_at(self, sd: Any, point: GaussianPoint) -> Any:
        """Return ``D_j`` of the bound, in groups where there are any, at other standard deviations."""
        if self.grouped is not None:
            return self.grouped.curvature(sd, point.terms.kappa)
        return self.engine.curvatures(self.layer, point.terms.kappa, sd, Want.CURVATURE)[0] / sd

    def exact_information(self, point: Any) -> Any:
        """Return ``H_j = sum_i w_ij^2 kappa_i`` at ``point``, the curvature of the exact coordinate update."""
        found = point.origin.exact
        if found is None:
            kappa = point.origin.terms.kappa
            found = self.engine.curvatures(self.layer, kappa, point.q.sd, Want.INFORMATION)[1]
        return found

    def normal_image(self, p: Any, kappa: Any) -> tuple[Any, Any]:
        """Return ``A p``, (N, m), and ``p^T A p``, (N,), with ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``."""
        image, squares = self.engine.normal_product(self.layer, kappa, p)
        return image + p * self.prior.precision, squares + form(p, self.prior.precision)

    def curvature_slopes(self, point: GaussianPoint) -> tuple[Any, Any]:
        """Return f and h of ``problem.newton_system``, (N, n), 0 where x is missing."""
        spread = self.row_spread(point.q.sd)
        # The ellipsis makes an array of what an engine may have left with chunks of W.
        third, fourth = curvature_slopes(self.row_data, point.terms.eta[...], spread)
        if self.objective_name == "elbo":
            return third, fourth
        return spread * third, point.terms.kappa + spread**2 * fourth
