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

import array_api_compat
import numpy as np

from forestmix.arrays import Array, form, host
from forestmix.inference import direct
from forestmix.inference.base import Proposal, Steps
from forestmix.latents.base import in_place_of
from forestmix.problem.conjugate import Last, conjugate_step, dot
from forestmix.problem.points import CarriedRows, Point

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
    the preconditioner; ``last`` what the last step was made from; ``patience`` the number of steps after which a factor
    of the matrix takes over; ``computed`` the size of the objective when it was last computed from the rows;
    ``variances`` what they would be at their optimum there, and their squared relative errors.

    Args:
        problem: the problem.
        point: the start, from which the variances are solved for; they depend on neither x nor the means.
        method: "cg" for conjugate gradients alone, "direct" for a factor at once, "auto" for what costs less.

    """

    def __init__(self, problem: Any, point: Any, method: str = "auto") -> None:
        rows, at = problem.rows, point.rows
        self.sd, self.information = solve_variances(rows, at)
        diagonal = rows.prior.precision + rows.exact_information(at)
        self.inverse, self.patience = 1 / diagonal, direct.patience(rows, at, diagonal, method)
        self.last: Last | None = None
        self.computed = np.abs(point.objective)
        self.variances: tuple[Any, Array] | None = None
        self.steps = 0
        self._factor: direct.Factor | None = None

    def forget(self, which: Array) -> None:
        """Start again from the gradient in the observations where a proposal was refused."""
        if self.last is not None:
            xp, marked = array_api_compat.array_namespace(*self.last), in_place_of(self.last[0], which[:, None])
            direction, squared = (xp.where(marked, xp.zeros_like(part), part) for part in self.last)
            self.last = direction, squared

    def propose(self, problem: Any, point: Any) -> Proposal:
        """Return the exact maximiser along the next conjugate direction, or over all means once there is a factor."""
        q, new = self._maximiser(problem, point)
        return Proposal(q, 1, problem.size, new, _retreats(problem, point))

    def _maximiser(self, problem: Any, point: Any) -> tuple[Any, Point | None]:
        """Return its factors, and the point there if that follows from this one."""
        rows, at, objective = problem.rows, point.rows, point.objective
        if self._factor is None and self.steps >= self.patience:
            self._factor = direct.factor(rows, at, 1 / self.inverse)
            if self._factor is None:
                self.patience = np.inf
        if self._factor is not None:
            return point.q.moved(at.q.mean + self._factor(rows, at), self.sd), None
        if not at.carried:
            self.computed = np.abs(objective)
            # The variances of the start are left at the first step; afterwards they are these already.
            at, gained = rows.with_sd(at, self.sd, self.information)
            objective = objective + gained
            errors = np.broadcast_to(problem.size * rows.variance_norm(at) ** 2, objective.shape)
            self.variances = 1 / rows.precision(at), errors
        preconditioned, kappa = at.gradient * self.inverse, at.kappa
        squared = dot(at.gradient, preconditioned)
        # One pass over W.
        step = conjugate_step(at.gradient, preconditioned, squared, self.last, lambda p: rows.normal_image(p, kappa))
        self.last = step.direction, squared
        mean, gradient = at.q.mean + step.length * step.direction, at.gradient - step.length * step.image
        objective = objective + 0.5 * host(step.length * step.length * step.curvature)[:, 0].astype(np.float64)
        self.steps += 1
        q = point.q.moved(mean, self.sd)
        if self._is_due(problem, objective):
            return q, None
        assert self.variances is not None
        moves = host(form(gradient, self.variances[0])), self.variances[1]
        carried = CarriedRows(q.layers[0], gradient, at.kappa, at.curvature, at.exact, moves)
        return q, Point(q, objective, point.rounding, carried)

    def _is_due(self, problem: Any, objective: Array) -> bool:
        """Return whether the rows have to be looked at again, for an objective that was carried on."""
        n, m = problem.rows.weights.shape
        if n * m * problem.n_observations <= SMALL or self.steps % REFRESH == 0:
            return True
        return bool(np.any(self.computed > SHRUNK * (np.abs(objective) + problem.size)))


def _retreats(problem: Any, point: Any) -> Iterator[Any]:
    """Yield the plain step, which cannot lower the objective by more than rounding, and then none."""
    yield problem.plain_step(problem.evaluate(point.q, known=point) if point.carried else point)
    yield point.q


def solve_variances(rows: Any, at: Any) -> tuple[Any, Any]:
    """Return the standard deviations at the optimum, and what the rows add to their precision there, (N or 1, m).

    Objective "elbo" has them in closed form. For "fm" they solve ``sigma_j (A sigma)_j = 1`` with the nonnegative
    matrix ``A = diag(1 / sigma0^2) + |W|^T diag(kappa) |W|``. The paper's update ``sigma <- sqrt(sigma / (A sigma))``
    converges at a rate of at most 1/2 whatever W is: in the logarithm its slope at the solution is ``(I - P) / 2``,
    with ``P = diag(sigma) A diag(sigma)`` stochastic and positive semidefinite, so with eigenvalues in [0, 1].
    """
    sd, information = at.q.sd, rows.information(at)
    halvings = int(-np.log2(rows.rounding_unit))
    for _ in range(4 * halvings):  # far starts take some steps before the rate holds
        new = rows.spread_at(information, sd)
        converged = new.shape == sd.shape and bool(rows.xp.all(new == sd))
        sd = new
        if converged:
            break
        if rows.objective == "fm":
            information = rows.curvature_at(sd, at)
    return sd, information
