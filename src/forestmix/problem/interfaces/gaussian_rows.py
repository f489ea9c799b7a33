"""Gaussian rows: the bound needs the means and variances of their parents only, of whatever family.

Newton's equations in the means: every factor is ``q_j(y) ∝ p(y) exp(-H_j y^2 / 2 + h_j y)``, and in its mean the ELBO
has the slope (docs/latents.md)::

    g_j = sum_i w_ij e_i + H_j mu_j - h_j          which is 0 at an optimum
    d mu_j = Var_j d h_j                           so the curvature is  1 / Var - H + W^T kappa W

In ``s = d mu / Std`` the matrix is ``I + Std (W^T kappa W - H) Std``: latents that are all but certain drop out of it
by themselves. A prior that is log-concave has ``Var_j <= 1 / H_j``, so that the ELBO is concave in the means; but where
there are fewer rows than latents it is nearly flat in many directions, and a multiple of the identity, or the prior's
precision, has to be added. Conjugate gradients stop where the curvature is not positive, as for other priors it may be.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array, inner, total
from forestmix.latents import BernoulliFactors, Factors, SpikeSlabFactors, solve_tilt
from forestmix.model import Layer, Observations
from forestmix.partition import Partition
from forestmix.problem.conjugate import conjugate_gradients, dot
from forestmix.problem.interfaces.base import Acceleration, Interface, Place, with_columns
from forestmix.weights.gram import precision_matrix

#: For objective "fm": epsilon is proportional to |w| times a standard deviation of at least this share of the largest.
LEAST_SHARE = 1e-6
#: Conjugate gradients at most for a Newton step; they end when the residual is this fraction of the slope.
INNER, FORCING, LEAST = 50, 0.1, 1e-6
#: Where conjugate gradients do not get there, a Cholesky factor does, for up to this many latents.
LARGEST = 500
#: How many times further than its distance from the prior's centre a latent may have to go.
REACH = 10.0
#: A precision that leaves a latent where it is.
CERTAIN = 1e200


class GaussianRows(Interface):
    """Rows ``N(b_i + w_i . y, sd_i^2)``; ``a`` is quadratic, so ``excess_i = Var(eta_i) / (2 sd_i^2)``.

    For all parents at once the mean part is majorised by ``D_j = sum_i kappa_i |w_ij| sum_k |w_ik|``, which is the
    forest mixture curvature with epsilon proportional to |w|; the variance part stays exact. Each parent then has a
    problem of its own, for ``latents.solve_tilt``. Objective "fm" has the paper's epsilon, and D for variances too.
    """

    def __init__(self, layer: Layer, above: Any, data: Observations | None, objective: str, *, alone: bool) -> None:
        super().__init__(layer, above, data, objective)
        # The paper's bound takes plain steps.
        self.acceleration = Acceleration.TILTED if alone and objective == "elbo" else Acceleration.NONE

    @property
    def kappa(self) -> Array:
        """``1 / sd_i^2``, 0 for a missing row: (N, n), or (1, n) where all observations share it."""
        sd = np.atleast_2d(self.layer.family.row_sd).astype(np.float64)  # type: ignore[attr-defined]
        return self.masked(np.broadcast_to(sd, (len(sd), self.layer.size)) ** -2.0)

    @cached_property
    def information(self) -> tuple[Array, Array]:
        """``H`` and ``D`` of every parent."""
        return self.exact_curvature(self.kappa), self.majorant(self.kappa, np.ones((1, self.layer.n_parents)))

    def take(self, keep: Array) -> GaussianRows:
        """Return the interface of the chosen observations."""
        chosen = super().take(keep)
        if len(self.kappa) > 1:
            chosen.__dict__.pop("information", None)
        return chosen

    def slope(self, seen: Array, parents: Factors) -> Array:
        """Return ``sum_i w_ij e_i`` with ``e_i = kappa_i (E y_i - m_i)``."""
        return self.layer.weights.adjoint(self.kappa * (seen - self.eta(parents))).astype(np.float64)

    def excess(self, parents: Factors, auxiliary: None) -> Array:
        """Return ``kappa_i r_i^2 / 2`` with ``r_i^2 = sum_j w_ij^2 Var_j`` or, for "fm", ``(sum_j |w_ij| Std_j)^2``."""
        weights = self.layer.weights
        if self.objective == "elbo":
            return 0.5 * self.kappa * weights.square().forward(parents.variance)
        return 0.5 * self.kappa * abs(weights).forward(parents.sd).astype(np.float64) ** 2

    def total_excess(self, parents: Factors, auxiliary: None) -> Array:
        """Return the sum over rows; on the ELBO it is ``sum_j H_j Var_j / 2``, which needs no pass over W."""
        if self.objective == "elbo":
            return 0.5 * total(self.information[0] * parents.variance)
        return super().total_excess(parents, auxiliary)

    def target(self, place: Place) -> Factors:
        """Return the exact coordinate update of each parent; for "fm" the update of the paper, which is one too."""
        parents = place.parents
        slope = self.slope(place.seen, parents)
        H = self._paper_curvature(parents) if self.objective == "fm" else self.information[0]
        return self.kind.tilted(self.above, place.eta, H, H * parents.mean + slope)

    def step(self, place: Place, layers: Any = None) -> Factors:
        """Return the maximiser of the surrogate for all parents at once."""
        if self.objective == "fm":
            return self.target(place)
        return self.step_from(place.parents.mean, self.slope(place.seen, place.parents), place.eta)

    def step_from(self, mean: Array, slope: Array, eta: Array) -> Factors:
        """Return the maximiser of the surrogate around any means, with the slope ``sum_i w_ij e_i`` of the rows there.

        The surrogate is that of the rows alone, so these means need not be those of any factors.
        """
        H, D = self.information
        return solve_tilt(self.kind, self.above, eta, H, D, D * mean + slope, H * mean + slope)

    def gradient(self, slope: Array, place: Place) -> Array:
        """Return ``g``, the slope of the ELBO in the means, from that of the rows, ``sum_i w_ij e_i``."""
        return slope - place.parents.pull(self.above, place.eta, self.information[0])

    def image(self, step: Array) -> Array:
        """Return ``W^T kappa W step``."""
        weights = self.layer.weights
        return weights.adjoint(self.kappa * weights.forward(step)).astype(np.float64)

    def solve(self, slope: Array, sd: Array, added: Array, forcing: float = FORCING) -> tuple[Array, int]:
        """Return the step ``d mu`` for a slope, with ``added`` to the curvature of each latent, and the passes it took.

        ``forcing`` is the part of the slope that may be left. Where there are few latents, 0 takes a factor, and the
        step is infinite where the curvature is not positive: that is a saddle.
        """
        right, diagonal = sd * slope, 1 + (added - self.information[0]) * sd**2

        def product(direction: Array) -> tuple[Array, Array]:
            along = diagonal * direction + sd * self.image(sd * direction)
            return along, dot(direction, along)

        goal = max(forcing, LEAST) ** 2 * dot(right, right)
        s, missed, passes = conjugate_gradients(
            right, product, lambda residual: residual, lambda residual, squared: squared <= goal, INNER
        )
        if slope.shape[1] <= LARGEST:
            for k in map(int, np.flatnonzero(missed | (forcing == 0))):
                otherwise = s[k] if forcing else np.full_like(s[k], np.inf)
                s[k] = self._by_factor(k, right[k], sd[k], diagonal[k], otherwise)
        return sd * s, passes

    def _by_factor(self, k: int, right: Array, sd: Array, diagonal: Array, otherwise: Array) -> Array:
        """Return the solution for one observation; what it was before where the matrix is not positive."""
        kappa = self.kappa[min(k, len(self.kappa) - 1)]
        matrix = precision_matrix(self.layer.weights, kappa, np.zeros(len(sd))) * sd * sd[:, None]
        matrix[np.diag_indices(len(sd))] += diagonal
        try:
            made = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            return otherwise
        return scipy.linalg.cho_solve(made, right, check_finite=False)

    def distance(self, place: Place, *, exactly: bool) -> Array:
        """Return how far the optimum is by Newton's equations, in posterior standard deviations, (N,).

        It is ``(g^T C^-1 g)^(1/2)``, g the slope in the means and C its curvature, with that of a Gaussian prior added
        which is as wide as the latent may have to go: priors with straight tails do not say where to stop. Half its
        square is the nats that are missing. At a saddle it is infinite.
        """
        if self.acceleration is Acceleration.NONE:
            return super().distance(place, exactly=exactly)
        q, zero = place.parents, np.zeros_like(place.eta)
        start = self.kind.tilted(self.above, place.eta, zero, zero)
        far = start.sd + np.abs(q.mean - start.mean) if q.straight_tails else start.sd
        slope = self.gradient(self.slope(place.seen, q), place)
        with np.errstate(divide="ignore", over="ignore"):
            added = np.minimum((REACH * far) ** -2.0, CERTAIN) * (not q.several_optima)
        step, _ = self.solve(slope, q.sd, added, forcing=0.0)
        maximum: Array = np.all(np.isfinite(step), axis=1)
        return np.where(maximum, np.sqrt(np.maximum(inner(slope, np.where(maximum[:, None], step, 0.0)), 0.0)), np.inf)

    def gradient_rounding(self, place: Place) -> Array:
        """Return what rounding leaves of the gradient norm, (N,): of the means themselves, and of the rows' slopes."""
        least = super().gradient_rounding(place)
        if self.acceleration is Acceleration.NONE:
            return least
        q = place.parents
        slope = abs(self.layer.weights).adjoint(self.kappa * self.row_sizes(q)).astype(np.float64)
        own = np.divide(np.abs(q.mean) + np.abs(getattr(q, "location", 0.0)), q.sd, out=0 * slope, where=q.sd > 0)
        moves = own + q.sd * slope
        return np.maximum(least, self.rounding_unit * np.sqrt(inner(moves, moves) / moves.shape[1]))

    def sweep(self, place: Place, groups: Partition, *, surrogate: bool) -> Factors:
        """Return the parents after each was set to its exact optimum in turn; the row errors go along."""
        seen, parents, _, eta, _ = place
        order = groups.members
        H, columns = self.information[0], self.layer.weights.columns()
        starts, rows, values = columns.indptr, columns.indices, columns.data.astype(np.float64)
        kappa = np.ascontiguousarray(np.broadcast_to(self.kappa, seen.shape))
        error = kappa * (seen - self.eta(parents))
        H, eta = (np.ascontiguousarray(np.broadcast_to(part, parents.mean.shape)) for part in (H, eta))
        mean = parents.mean.copy()
        if self.kind in (BernoulliFactors, SpikeSlabFactors):
            own = [np.array(getattr(parents, name)) for name in parents.__match_args__]
            _sweep_spike_slab((starts, rows, values, order, H), eta, self.above, (mean, error, kappa), own)
            return self.kind(*own)
        for j in order:
            part = slice(starts[j], starts[j + 1])
            h = H[:, j] * mean[:, j] + error[:, rows[part]] @ values[part]
            new = self.kind.tilted(self.above.take(np.array([j])), eta[:, j, None], H[:, j, None], h[:, None])
            change = new.mean[:, 0] - mean[:, j]
            error[:, rows[part]] -= kappa[:, rows[part]] * values[part] * change[:, None]
            mean[:, j] = new.mean[:, 0]
            parents = with_columns(parents, np.array([j]), new)
        return parents

    def _paper_curvature(self, parents: Factors) -> Array:
        """Return ``D_j = (1 / Std_j) sum_i |w_ij| s_i kappa_i``; a Std near 0 is taken for a share of the largest."""
        sd = np.maximum(parents.sd, LEAST_SHARE * np.max(parents.sd, axis=1, keepdims=True))
        return self.majorant(self.kappa, sd)


def _sweep_spike_slab(
    W: tuple[Array, ...], eta: Array, family: Any, state: tuple[Array, ...], own: list[Array]
) -> None:
    """Update ``own``, the parameters of q: the logit, and of a spike and slab also mean and sd of the slab."""
    from forestmix.engines.compiled.latents import sweep_spike_slab

    if len(own) > 1:
        logit = np.array(np.broadcast_to(scipy.special.logit(family.inclusion.astype(np.float64)), eta.shape))
        sd = np.array(np.broadcast_to(family.sd, eta.shape[1:]), np.float64)
        sweep_spike_slab(*W, logit, eta, sd, *state, *own)
    else:  # binary: the slab is at 1 and has no spread
        one = np.ones_like(eta)
        sweep_spike_slab(*W, eta, one, np.zeros(eta.shape[1]), *state, *own, one.copy(), one.copy())
