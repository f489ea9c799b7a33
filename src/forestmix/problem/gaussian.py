"""Gaussian latents of any depth under rows of any family."""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar

import numpy as np

from forestmix.arrays import Array, host
from forestmix.engines.protocol import Capability, Spread, SweepStart, require
from forestmix.latents import ArrayFactors, GaussianFactors
from forestmix.partition import Partition
from forestmix.problem import newton_system
from forestmix.problem.base import Problem, out_of_range
from forestmix.problem.given import as_layers
from forestmix.problem.objective import GaussianObjective
from forestmix.problem.points import GaussianPoint
from forestmix.problem.schedules import sets_of_layers
from forestmix.problem.start import gaussian_start
from forestmix.problem.sums import form, rms
from forestmix.problem.updates import forest_mixture_update, part_way

#: How many units of rounding are left of the relative errors of the variances.
UNITS_OF_VARIANCES = 32
#: Units in the last place by which a standard deviation may change and count as the same.
SAME_UNITS = 4


class GaussianProblem(GaussianObjective, Problem):
    """Maximise the bound over Gaussian factors; the arguments are those of ``GaussianObjective``."""

    gaussian: ClassVar[bool] = True

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
        if exactly and newton_system.affordable(self):
            return newton_system.distance(self, point)
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
            return type(old)(mean, self._kept(sd, old.sd))
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
        spread = Spread.ABSOLUTE if self.objective_name == "fm" else Spread.SQUARED
        options = {"surrogate": surrogate, "safe": safe, "spread": spread}
        return GaussianFactors(*self._sweeps.sweep_groups(self._state(point), groups, **options))

    def sweep_blocks(self, point: GaussianPoint, blocks: Partition, *, synchronous: bool) -> GaussianFactors:
        """Return the factors after every block was swept, side by side."""
        return GaussianFactors(*self._sweeps.sweep_blocks(self._state(point), blocks, synchronous=synchronous))

    def sweep_greedy(self, point: GaussianPoint, steps: int) -> GaussianFactors:
        """Return the factors after so many updates, each of the latent that gains most."""
        return GaussianFactors(*self._sweeps.sweep_greedy(self._state(point), steps))

    @property
    def _sweeps(self) -> Any:
        require(self.engine, Capability.SWEEP, "coordinate updates")
        return self.engine

    def _state(self, point: GaussianPoint) -> SweepStart:
        return SweepStart(self.layer, self.rows, point.q, point.terms, self.prior)
