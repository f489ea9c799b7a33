"""Gaussian latents of any depth under rows of any family: the bound, by an engine, in arrays of any library."""

from __future__ import annotations

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
from forestmix.problem.base import ROUNDING_UNITS, Acceleration, Problem, out_of_range
from forestmix.problem.flat import Stacked
from forestmix.problem.given import as_layers
from forestmix.problem.grouped import Grouped
from forestmix.problem.points import GaussianPoint
from forestmix.problem.start import gaussian_start, placed
from forestmix.problem.updates import forest_mixture_update, part_way

#: How many units of rounding are left of the relative errors of the variances.
UNITS_OF_VARIANCES = 32
#: Units in the last place by which a standard deviation may change and count as the same.
SAME_UNITS = 4


class GaussianProblem(Problem):
    """Maximise ``sum_i (row terms) - KL(q || p)`` over Gaussian factors.

    Args:
        stacked: the model, its layers stacked.
        data: the observations.
        engine: evaluates the rows.
        objective: "elbo" or "fm".
        groups: use Jensen's inequality inside these groups only; ``None`` for one group of all latents. The layers of a
            deep model are groups.
        both: compute ``D`` and ``H`` alike, whichever of the two the objective needs for the precision of q.

    """

    gaussian: ClassVar[bool] = True

    def __init__(
        self, stacked: Stacked, data: Observations, engine: Engine, objective: str, groups: Partition | None = None,
        *, both: bool = False,
    ) -> None:  # fmt: skip
        self.stacked, self.model = stacked, stacked.deep
        self.engine: Any = engine
        self.layer, self.weights, self.family = stacked.layer, stacked.layer.weights, stacked.layer.family
        self.data = stacked.data(data).shared()
        self.rows = engine.observe(self.layer, self.data)
        self.groups = stacked.groups if stacked.is_deep else groups
        # With the layers as groups "fm" is the paper's deep bound.
        own_groups = groups is not None and not stacked.is_deep
        self.objective_name, self.climbed = objective, "grouped" if own_groups and objective == "fm" else objective
        self.acceleration = Acceleration.CONJUGATE if self.quadratic else Acceleration.NEWTON
        self.wanted = Want.VALUE | Want.GRADIENT
        if self.groups is None and (both or objective == "fm"):
            self.wanted |= Want.CURVATURE
        if both or objective == "elbo":
            self.wanted |= Want.INFORMATION
        like = self.weights.prototype()
        self.xp, self.device = array_api_compat.array_namespace(like), array_api_compat.device(like)
        self.dtype = like.dtype
        self.prior = PriorMoments(self.moved(stacked.prior_mean), self.moved(stacked.prior_precision))
        precision = self.prior.precision
        proper = self.xp.where(precision > 0, precision, self.xp.full_like(precision, 2 * np.pi))
        self._log_precision = 1 + self.xp.log(proper)
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

    def take(self, keep: Array) -> GaussianProblem:
        """Return the problem of the chosen observations; what was derived from W is shared."""
        chosen = copy(self)
        chosen.data, chosen.layer = self.data.take(keep).shared(), self.layer.take_observations(keep)
        chosen.family = chosen.layer.family
        chosen.__dict__.pop("row_data", None)
        shared = self.data.observed is None and not self.family.differs_by_observation
        chosen.rows = self.rows.take(keep) if shared else self.engine.observe(chosen.layer, chosen.data)
        return chosen

    def default_start(self) -> GaussianFactors:
        """Return q at the prior, narrowed where the rows call for it."""
        return gaussian_start(self)

    def start(self, init: Any, name: str = "init") -> GaussianFactors:
        """Return factors that the user gave, one entry for each layer, stacked."""
        layers: Any = as_layers(name, init, self.model, self.n_observations)
        return placed(self, self.stacked.stacked(layers))

    def split(self, q: GaussianFactors) -> tuple[GaussianFactors, ...]:
        """Return the factors of each latent layer."""
        return self.stacked.split(q)

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
        spread = Spread.NONE if self.quadratic else self._spread(q.sd)
        sums, terms = self.engine.statistics(self.layer, self.rows, q, want, spread)
        D = sums.curvature_sd / q.sd if Want.CURVATURE in want else (old.curvature if old and same else None)
        if D is None and self.grouped is not None and self.objective_name == "fm":
            D = self.grouped.curvature(q.sd, terms.kappa)
        H = sums.information if Want.INFORMATION in want else (old.exact if old else None)
        return self._point(q, sums, terms, D, H)

    def _point(self, q: GaussianFactors, sums: Any, terms: RowTerms, D: Any, H: Any) -> GaussianPoint:
        """Return the point, with the prior's part of the objective and of its slope."""
        away, divergence = q.mean - self.prior.mean, self._spread_divergence(q.sd)
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
        return GaussianPoint(q, objective, np.asarray(rounding), gradient, terms, D, H)

    def _spread(self, sd: Any) -> Spread | Any:
        """Return which spread the objective has, or the spread itself where Jensen's inequality is in groups."""
        if self.objective_name == "elbo":
            return Spread.SQUARED
        return Spread.ABSOLUTE if self.grouped is None else self.grouped.spread(sd)

    def row_spread(self, sd: Any) -> Any:
        """Return the spread ``r_i`` of the objective, (N or 1, n)."""
        spread = self._spread(sd)
        if spread is Spread.SQUARED:
            return mean_field_spread(self.weights, sd)
        return forest_mixture_spread(self.weights, sd) if spread is Spread.ABSOLUTE else spread

    def _spread_divergence(self, sd: Any) -> Any:
        """Return ``sum_j (v - 1 - log v) / 2`` with ``v = sd^2 / sd0^2``; minus the entropy where sd0 is infinite."""
        return 0.5 * total(sd * sd * self.prior.precision - 2 * self.xp.log(sd) - self._log_precision)

    def with_sd(self, point: GaussianPoint, sd: Any, information: Any) -> GaussianPoint:
        """Return the point with other standard deviations, whose information is known, for rows of constant curvature.

        The variances' part of the objective is ``-(1/2) sum_j sigma_j^2 information_j - KL``; all else stays.
        """
        before = 0.5 * form(point.q.sd, self.information(point)) + self._spread_divergence(point.q.sd)
        gain = before - 0.5 * form(sd, information) - self._spread_divergence(sd)
        D = information if self.objective_name == "fm" else None
        q, objective = type(point.q)(point.q.mean, sd), point.objective + host(gain)
        return replace(point, q=q, objective=objective, curvature=D)

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
        """Return ``A p``, (N, m), and ``p^T A p``, (N, 1), with ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``."""
        image, squares = self.engine.normal_product(self.layer, kappa, p)
        return image + p * self.prior.precision, (squares + form(p, self.prior.precision))[:, None]

    def spread_at(self, information: Any, old: Any) -> Any:
        """Return ``1 / sqrt(1 / sigma0_j^2 + information_j)``, the best spread, or ``old`` where rounding is all."""
        return self._kept(1 / (self.prior.precision + information) ** 0.5, old)

    def _kept(self, new: Any, old: Any) -> Any:
        """Return ``new`` standard deviations, or ``old`` ones where rounding is all that they differ by."""
        unit = SAME_UNITS * float(np.finfo(self.model.dtype).eps)
        same = new.shape == old.shape and bool(self.xp.all(self.xp.abs(new - old) <= unit * old))
        return old if same else new

    def gradient_norm(self, point: Any) -> Array:
        """Return the larger of the gradient in posterior standard deviations and the variances' relative error."""
        squared = point.squared_norm if point.carried else None
        if squared is None:
            squared = host(form(point.gradient, 1 / self.precision(point)))
        return np.maximum(np.sqrt(squared / self.size), self.variance_norm(point))

    def variance_norm(self, point: Any) -> Array:
        """Return the relative error of the variances, ``rms_j (P_j sigma_j^2 - 1)``, (N,)."""
        return point.variance_norm if point.carried else rms(self.precision(point) * point.q.sd**2 - 1)

    def gradient_rounding(self, point: GaussianPoint) -> Array:
        """Return what rounding leaves of ``gradient_norm`` at a point, (N,).

        A row's error ``t(x) - E a'`` is off by units in the last place of both, and of ``kappa`` times the terms of
        its mean; the sums over rows are off by as much of what they add up.
        """
        xp, weights, terms = self.xp, abs(self.weights), point.terms
        eta = weights.forward(xp.abs(point.q.mean)) + xp.abs(self.row_data.bias)
        size = 2 * xp.abs(terms.error) + terms.kappa * (eta + xp.abs(terms.eta))
        own = self.prior.precision * (xp.abs(point.q.mean) + xp.abs(self.prior.mean))
        left = rms((weights.adjoint(size) + own) / self.precision(point) ** 0.5)
        return float(np.finfo(self.model.dtype).eps) * np.maximum(UNITS_OF_VARIANCES, left)

    def distance(self, point: Any, *, exactly: bool) -> Array:
        """Return how far any mean can be from the optimum, in posterior standard deviations, (N,).

        The objective is concave in means and standard deviations, in the former at least as curved as the log density
        of the prior. So with g the gradient, ``g^T Var_prior(y) g`` and the squares of the variances' relative errors
        add up to a bound, and half of that is one on the nats that are missing.
        """
        return newton_system.distance(self, point, exactly=exactly)

    def check_range(self, start: GaussianPoint) -> None:
        """Raise where what the rows say of the latents is beyond the range of numbers: no step could be made."""
        if not bool(self.xp.all(self.xp.isfinite(self.information(start)))):
            raise out_of_range(self.model)

    def plain_step(self, point: GaussianPoint, layers: list[int] | None) -> GaussianFactors:
        """Return the factors after a forest mixture step of all latents, or of some layers (paper, Theorem 2)."""
        part = layers if self.stacked.is_deep else None
        D = self.curvature(point) if part is None else self.curvature_at(point.q.sd, point)
        information, old = self.information(point), point.q
        mean, sd = forest_mixture_update(old.mean, point.gradient, self.prior.precision, D, information)
        if part is None:
            return type(old)(mean, self._kept(sd, old.sd))
        which = np.isin(np.repeat(np.arange(len(self.stacked.slices)), self.model.latent_sizes), part)
        return type(old)(np.where(which, mean, old.mean), np.where(which, sd, old.sd))

    def shorter(self, old: GaussianFactors, new: GaussianFactors, share: Any) -> GaussianFactors:
        """Return factors the fraction ``share`` of the way, (N, 1), in the means and in the precisions."""
        return part_way(old, new, self.moved(share))

    def sweep(self, point: GaussianPoint, groups: Partition, *, surrogate: bool) -> GaussianFactors:
        """Return the factors after the groups were updated one after another, the members of each at once.

        Exact updates of several latents at once may lower the objective: such steps are not halved.
        """
        safe = surrogate or bool(np.all(groups.sizes == 1))
        spread = Spread.ABSOLUTE if self.objective_name == "fm" else Spread.SQUARED
        options = {"surrogate": surrogate, "safe": safe, "spread": spread}
        return GaussianFactors(*self.engine.sweep_groups(self._state(point), groups, **options))

    def sweep_blocks(self, point: GaussianPoint, blocks: Partition, *, synchronous: bool) -> GaussianFactors:
        """Return the factors after every block was swept, side by side."""
        return GaussianFactors(*self.engine.sweep_blocks(self._state(point), blocks, synchronous=synchronous))

    def sweep_greedy(self, point: GaussianPoint, steps: int) -> GaussianFactors:
        """Return the factors after so many updates, each of the latent that gains most."""
        return GaussianFactors(*self.engine.sweep_greedy(self._state(point), steps))

    def _state(self, point: GaussianPoint) -> SweepStart:
        require(self.engine, Capability.SWEEP, "coordinate updates")
        return SweepStart(self.layer, self.rows, point.q, point.terms, self.prior)
