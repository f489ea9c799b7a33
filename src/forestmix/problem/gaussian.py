"""Gaussian latents of any depth under rows of any family, evaluated by an engine in arrays of any library."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import array_api_compat
import numpy as np

from forestmix.arrays import Array, host
from forestmix.engines.protocol import Capability, Engine, PriorMoments, RowTerms, Spread, Want, require
from forestmix.engines.reference import forest_mixture_spread, mean_field_spread
from forestmix.engines.rows import curvature_slopes, row_data
from forestmix.latents import ArrayFactors, GaussianFactors
from forestmix.model import Observations
from forestmix.partition import Partition
from forestmix.problem import factored
from forestmix.problem.base import Acceleration, Problem, out_of_range
from forestmix.problem.flat import Stacked
from forestmix.problem.given import as_layers
from forestmix.problem.grouped import Grouped
from forestmix.problem.points import CarriedPoint, GaussianPoint
from forestmix.problem.schedules import sets_of_layers
from forestmix.problem.start import gaussian_start
from forestmix.problem.sums import form, inner, rms, total
from forestmix.problem.updates import forest_mixture_update, part_way

#: How many units of rounding, relative to the size of its terms, an objective may seem to fall by.
ROUNDING_UNITS = 64
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
        self.stacked, self.model, self.engine = stacked, stacked.deep, engine
        self.layer, self.weights, self.family = stacked.layer, stacked.layer.weights, stacked.layer.family
        self.data = stacked.data(data).shared()
        self.rows = engine.observe(self.layer, self.data)
        self.groups = stacked.groups if stacked.is_deep else groups
        self._objective, wanted = objective, Want.VALUE | Want.GRADIENT
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
        return not self.quadratic and (self._objective == "elbo" or self.groups is None)

    @property
    def objective_name(self) -> str:
        """The bound that is climbed."""
        return self._objective

    @property
    def climbed(self) -> str:
        """The bound whose value the objective is; with the layers as groups "fm" is the paper's deep bound."""
        own = self.groups is not None and not self.stacked.is_deep
        return "grouped" if self._objective == "fm" and own else self._objective

    @property
    def acceleration(self) -> Acceleration:
        """Conjugate gradients where the objective is quadratic, else Newton's steps."""
        return Acceleration.CONJUGATE if self.quadratic else Acceleration.NEWTON

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
        chosen.data = self.data.take(keep).shared()
        chosen.__dict__.pop("row_data", None)
        missing = self.data.observed is not None
        chosen.rows = self.engine.observe(self.layer, chosen.data) if missing else self.rows.take(keep)
        return chosen

    def default_start(self) -> GaussianFactors:
        """Return q at the prior, narrowed where the rows call for it."""
        return gaussian_start(self)

    def start(self, init: Any) -> GaussianFactors:
        """Return a start that the user gave, one entry for each layer, stacked."""
        layers: Any = as_layers("init", init, self.model, self.n_observations)
        return self.factors(self.stacked.stacked(layers))

    def factors(self, q: GaussianFactors) -> GaussianFactors:
        """Return factors in the library and place of W; there each observation has its own standard deviations."""
        if self.on_host:
            return q
        shape = (self.n_observations, self.size)
        return ArrayFactors(*(self.moved(np.broadcast_to(host(part), shape)) for part in (q.mean, q.sd)))

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
        sums, terms = self.engine.statistics(self.layer, self.rows, q, want, self._spread(q.sd))
        D = sums.curvature_sd / q.sd if Want.CURVATURE in want else (old.curvature if old and same else None)
        if D is None and self.grouped is not None and self._objective == "fm":
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
            half = 0.5 * form(q.sd, D if self._objective == "fm" else H)
            value, size = value - half, size + half
        size = size + self.xp.abs(away_form + divergence) + self.size
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
        if self._objective == "elbo":
            return Spread.SQUARED
        return Spread.ABSOLUTE if self.grouped is None else self.grouped.spread(sd)

    def row_spread(self, sd: Any) -> Any:
        """Return the spread ``r_i`` of the objective, (N or 1, n)."""
        if self._objective == "elbo":
            return mean_field_spread(self.weights, sd)
        return forest_mixture_spread(self.weights, sd) if self.grouped is None else self.grouped.spread(sd)

    def _spread_divergence(self, sd: Any) -> Any:
        """Return ``sum_j (v - 1 - log v) / 2`` with ``v = sd^2 / sd0^2``; minus the entropy where sd0 is infinite."""
        xp, precision = self.xp, self.prior.precision
        proper = precision > 0
        safe = xp.where(proper, precision, xp.full_like(precision, 2 * np.pi))
        terms = sd * sd * precision - 1 - 2 * xp.log(sd) - xp.log(safe)
        return 0.5 * total(terms)

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
        D = information if self._objective == "fm" else None
        q, objective = type(point.q)(point.q.mean, sd), point.objective + host(gain)
        return replace(point, q=q, objective=objective, curvature=D, divergence=divergence)

    def information(self, point: Any) -> Any:
        """Return what the rows add to the precision of q: ``D`` for the paper's bound, ``H`` for the ELBO."""
        return point.origin.curvature if self._objective == "fm" else point.origin.exact

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
        """Return f and h of ``problem.factored``, (N, n), 0 where x is missing."""
        spread = self.row_spread(point.q.sd)
        third, fourth = curvature_slopes(self.row_data, point.terms.eta, spread)
        if self._objective == "elbo":
            return third, fourth
        return spread * third, point.terms.kappa + spread**2 * fourth

    def spread_at(self, information: Any, old: Any) -> Any:
        """Return ``1 / sqrt(1 / sigma0_j^2 + information_j)``, the best spread, or ``old`` where rounding is all."""
        new = (self.prior.precision + information) ** -0.5
        unit = SAME_UNITS * float(np.finfo(self.model.dtype).eps)
        same = new.shape == old.shape and bool(self.xp.all(self.xp.abs(new - old) <= unit * old))
        return old if same else new

    def gradient_norm(self, point: Any) -> Array:
        """Return the larger of the gradient in posterior standard deviations and the variances' relative error."""
        precision, variances = self.precision(point), self.variance_norm(point)
        if point.carried and point.squared_norm is not None:
            return np.maximum(np.sqrt(point.squared_norm / self.size), variances)
        return np.maximum(np.sqrt(host(form(point.gradient, 1 / precision)) / self.size), variances)

    def variance_norm(self, point: Any) -> Array:
        """Return the relative error of the variances, ``rms_j (P_j sigma_j^2 - 1)``, (N,)."""
        return rms(self.precision(point) * point.q.sd**2 - 1)

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
        if exactly and factored.affordable(self):
            return factored.distance(self, point)
        excess = self.variance_norm(point) * np.sqrt(self.size)
        if self.on_host:
            squared = self.stacked.prior_variance(point.gradient.astype(np.float64))
        else:
            squared = host(form(point.gradient, 1 / self.prior.precision))
        return np.sqrt(squared + excess**2)

    def check_range(self, start: GaussianPoint) -> None:
        """Raise where what the rows say of the latents is beyond the range of numbers: no step could be made."""
        if not bool(self.xp.all(self.xp.isfinite(self.information(start)))):
            raise out_of_range(self.model)

    def sets(self, schedule: str) -> list[Any]:
        """Return the sets of layers that share no rows, as latents; all latents where there is one layer."""
        if not self.stacked.is_deep:
            return [None]
        latents, slices = np.arange(self.size), self.stacked.slices
        chosen = sets_of_layers(schedule, len(slices))
        return [np.concatenate([latents[slices[layer]] for layer in layers]) for layers in chosen]

    def plain_step(self, point: GaussianPoint, members: Array | None) -> GaussianFactors:
        """Return the factors after a forest mixture step of all latents, or of the members (paper, Theorem 2)."""
        D = self.curvature(point) if members is None else self.curvature_at(point.q.sd, point)
        information, old = self.information(point), point.q
        mean, sd = forest_mixture_update(old.mean, point.gradient, self.prior.precision, D, information)
        if members is None:
            return type(old)(mean, self.spread_at(information, old.sd))
        which = np.isin(np.arange(self.size), members)
        return type(old)(np.where(which, mean, old.mean), np.where(which, sd, old.sd))

    def shorter(self, old: GaussianFactors, new: GaussianFactors, share: Any) -> GaussianFactors:
        """Return factors the fraction ``share`` of the way, (N, 1), in the means and in the precisions."""
        return part_way(old, new, self.moved(share))

    def sweep(self, point: GaussianPoint, groups: Partition, *, surrogate: bool) -> GaussianFactors:
        """Return the factors after the groups were updated one after another, the members of each at once.

        Exact updates of several latents at once may lower the objective: such steps are not halved.
        """
        safe = surrogate or bool(np.all(groups.sizes == 1))
        spread = Spread.ABSOLUTE if self._objective == "fm" else Spread.SQUARED
        options = {"surrogate": surrogate, "safe": safe, "spread": spread}
        return GaussianFactors(*self._sweeps.sweep_groups(*self._state(point), groups, **options))

    def sweep_blocks(self, point: GaussianPoint, blocks: Partition, *, synchronous: bool) -> GaussianFactors:
        """Return the factors after every block was swept, side by side."""
        return GaussianFactors(*self._sweeps.sweep_blocks(*self._state(point), blocks, synchronous=synchronous))

    def sweep_greedy(self, point: GaussianPoint, steps: int) -> GaussianFactors:
        """Return the factors after so many updates, each of the latent that gains most."""
        return GaussianFactors(*self._sweeps.sweep_greedy(*self._state(point), steps))

    @property
    def _sweeps(self) -> Any:
        require(self.engine, Capability.SWEEP, "coordinate updates")
        return self.engine

    def _state(self, point: GaussianPoint) -> tuple[Any, ...]:
        return self.layer, self.rows, point.q, point.terms, self.prior
