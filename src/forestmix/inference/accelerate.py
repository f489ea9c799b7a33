"""Acceleration of the means for rows of constant curvature, where the objective is quadratic in them.

The mean solves ``A mu = c`` with ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``, positive definite; the gradient of the
objective is the residual ``c - A mu``. Conjugate gradients, preconditioned with the diagonal of A (the precision of the
exact coordinate update), raise the objective in every step. A step is one pass over W, which gives ``W p`` and
``W^T diag(kappa) W p`` for its direction p; gradient and objective follow from the last ones, so that the rows need
not be looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from forestmix.arrays import Array, form, host
from forestmix.inference import direct
from forestmix.inference.base import Proposal, Steps
from forestmix.problem.conjugate import ConjugateDirections
from forestmix.problem.points import CarriedPoint

#: After this many steps objective and gradient are computed anew from the means, so that rounding does not build up;
#: where W is small, after each.
REFRESH = 50
#: Entries of W times observations up to which W is small.
SMALL = 2**18
#: Once the objective is smaller by this factor than when it was computed last, what rounding had left of it then shows.
SHRUNK = 1e3


class ConjugateSteps(Steps):
    """Conjugate directions of each observation, and the variances, which are solved beforehand.

    ``information`` is what the rows add to the precision at these variances; ``inverse`` that of the matrix's diagonal,
    the preconditioner; ``patience`` the number of steps after which a factor of the matrix takes over, ``factor`` that
    factor; ``computed`` the size of the objective when it was last computed from the rows.

    Args:
        problem: the problem.
        point: the start, from which the variances are solved for; they depend on neither x nor the means.
        method: "cg" for conjugate gradients alone, "direct" for a factor at once, "auto" for what costs less.

    """

    def __init__(self, problem: Any, point: Any, method: str = "auto") -> None:
        self.sd, self.information = solve_variances(problem, point)
        diagonal = problem.prior.precision + problem.exact_information(point)
        self.inverse, self.patience = 1 / diagonal, direct.patience(problem, point, diagonal, method)
        self.directions = ConjugateDirections(self._precondition)
        self.factor: direct.Factor | None = None
        self.computed: Array | None = None
        self.steps = 0

    def _precondition(self, residual: Any) -> Any:
        return residual * self.inverse

    def take(self, keep: Array) -> ConjugateSteps:
        """Return the memory of the chosen observations."""
        chosen = super().take(keep)
        chosen.directions = self.directions.take(keep, chosen._precondition)
        return chosen

    def forget(self, which: Array) -> None:
        """Start again from the gradient in the observations where a proposal was refused."""
        self.directions.forget(which[:, None])

    def state(self) -> dict[str, Any]:
        """Return arrays and numbers, and whether there is a factor, which is made anew."""
        own = {name: part for name, part in vars(self).items() if name not in ("directions", "factor")}
        directions = self.directions
        return {**own, "factored": self.factor is not None, "last": (directions.direction, directions.squared)}

    def restore(self, state: dict[str, Any], problem: Any, point: Any) -> None:
        """Go on from a checkpoint."""
        own = dict(state)
        factored, (self.directions.direction, self.directions.squared) = own.pop("factored"), own.pop("last")
        vars(self).update(own)
        if factored:
            self.factor = direct.factor(problem, point, 1 / self.inverse)

    def propose(self, problem: Any, point: Any) -> Proposal:
        """Return the exact maximiser along the next conjugate direction, or over all means once there is a factor."""
        if self.factor is None and self.steps >= self.patience:
            self.factor = direct.factor(problem, point, 1 / self.inverse)
            self.patience = np.inf
        factors = type(point.q)
        if self.factor is not None:
            return Proposal(factors(point.q.mean + self.factor(problem, point), self.sd), 1, problem.size)
        if not point.carried:
            self.computed = np.abs(point.objective)
            # The variances of the start are left at the first step; afterwards they are these already.
            point = problem.with_sd(point, self.sd, self.information)
        self.directions.look(point.gradient)
        # One pass over W.
        kappa = point.origin.terms.kappa
        step = self.directions.advance(point.gradient, lambda p: problem.normal_image(p, kappa))
        mean, gradient = point.q.mean + step.length * step.direction, point.gradient - step.length * step.image
        gain = 0.5 * host(step.length * step.length * step.curvature)[:, 0].astype(np.float64)
        self.steps += 1
        if self._is_due(problem, point, gain):
            return Proposal(factors(mean, self.sd), 1, problem.size)
        # On the ELBO the preconditioner is the precision of q.
        norm = host(form(gradient, self.inverse)) if problem.objective_name == "elbo" else None
        variances = np.broadcast_to(problem.variance_norm(point), gain.shape)
        new = CarriedPoint(point.origin, factors(mean, self.sd), point.objective + gain, gradient, norm, variances)
        return Proposal(new.q, 1, problem.size, new)

    def retreats(self, problem: Any, point: Any) -> Iterator[Any]:
        """Yield the plain step, which cannot lower the objective."""
        yield problem.plain_step(point.origin if point.carried else point, None)

    def _is_due(self, problem: Any, point: Any, gain: Array) -> bool:
        """Return whether the rows have to be looked at again."""
        n, m = problem.weights.shape
        if n * m * problem.n_observations <= SMALL or self.steps % REFRESH == 0:
            return True
        assert self.computed is not None
        return bool(np.any(self.computed > SHRUNK * (np.abs(point.objective + gain) + problem.size)))


def solve_variances(problem: Any, point: Any) -> tuple[Any, Any]:
    """Return the standard deviations at the optimum, and what the rows add to their precision there, (N or 1, m).

    Objective "elbo" has them in closed form. For "fm" they solve ``sigma_j (A sigma)_j = 1`` with the nonnegative
    matrix ``A = diag(1 / sigma0^2) + |W|^T diag(kappa) |W|``. The paper's update ``sigma <- sqrt(sigma / (A sigma))``
    converges at a rate of at most 1/2 whatever W is: in the logarithm its slope at the solution is ``(I - P) / 2``,
    with ``P = diag(sigma) A diag(sigma)`` stochastic and positive semidefinite, so with eigenvalues in [0, 1].
    """
    sd, information = point.q.sd, problem.information(point)
    halvings = int(-np.log2(np.finfo(problem.model.dtype).eps))
    for _ in range(4 * halvings):  # far starts take some steps before the rate holds
        new = problem.spread_at(information, sd)
        converged = new.shape == sd.shape and bool(problem.xp.all(new == sd))
        sd = new
        if converged:
            break
        if problem.objective_name == "fm":
            information = problem.curvature_at(sd, point)
    return sd, information
