"""Acceleration of the means for rows of constant curvature, where the objective is quadratic in them.

The mean solves ``A mu = c`` with ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``, positive definite; the gradient of the
objective is the residual ``c - A mu``. Conjugate gradients, preconditioned with the diagonal of A (the precision of the
exact coordinate update), raise the objective in every step. A step is one pass over W, which gives ``W p`` and
``W^T diag(kappa) W p`` for its direction p; gradient and objective follow from the last ones, so that the rows need
not be looked at again.
"""

from __future__ import annotations

import numpy as np

from forestmix import vectors
from forestmix.arrays import Array
from forestmix.inference import direct
from forestmix.inference.base import Memory, Proposal
from forestmix.problem.gaussian import Point, Problem
from forestmix.inference.rules import spread_at
from forestmix.passes import normal_parts
from forestmix.problem.given import GaussianFactors, take_rows
from forestmix.small import few_entries

#: After this many steps objective and gradient are computed anew from the means, so that rounding does not build up;
#: where W is small, after each.
REFRESH = 50
#: Once the objective is smaller by this factor than when it was computed last, what rounding had left of it then shows.
SHRUNK = 1e3
#: A factor that costs less than this many steps is made at once: few problems are solved in as many.
LEAST_PATIENCE = 20


class ConjugateGradients(Memory):
    """The last direction and gradient of each observation, and the variances, which are solved beforehand.

    ``information`` is what the rows add to the precision at these variances; ``inverse`` that of the matrix's diagonal,
    the preconditioner; ``squared_norm`` that of the gradient which the last direction was made from, in its metric;
    ``ahead`` the gradient that the last step led to, with its norm; ``patience`` the number of steps after which a
    factor of the matrix takes over, ``factor`` that factor; ``computed`` the size of the objective when it was last
    computed from the rows.
    """

    def __init__(self, sd: Array, information: Array, inverse: Array, patience: float) -> None:
        self.sd, self.information, self.inverse, self.patience = sd, information, inverse, patience
        self.direction: Array | None = None
        self.squared_norm: Array | None = None
        self.ahead: tuple[Array, Array] | None = None
        self.factor: direct.Factor | None = None
        self.computed: Array | None = None
        self.steps = 0

    @classmethod
    def at(cls, problem: Problem, point: Point, method: str = "auto") -> ConjugateGradients:
        """Solve for the variances from ``point`` on; they depend on neither x nor the means.

        Args:
            problem: the problem.
            point: the start.
            method: "cg" for conjugate gradients alone, "direct" for a factor at once, "auto" for what costs less.

        """
        sd, information = solve_variances(problem, point)
        diagonal = problem.prior_precision + problem.exact_information(point)
        patience = np.inf
        if method != "cg" and direct.needs_orthogonal(problem, point, diagonal):
            patience = 0.0
        elif method != "cg" and direct.has_factor(point):
            patience = 0.0 if method == "direct" else direct.price(problem, point, diagonal)
        if patience < LEAST_PATIENCE:
            patience = 0.0
        return cls(sd, information, 1 / diagonal, patience)

    def take(self, keep: Array) -> ConjugateGradients:
        """Return the memory of the chosen observations."""
        sd, information, inverse = (take_rows(part, keep) for part in (self.sd, self.information, self.inverse))
        chosen = ConjugateGradients(sd, information, inverse, self.patience)
        chosen.steps, chosen.factor = self.steps, self.factor
        chosen.computed = None if self.computed is None else self.computed[keep]
        if self.direction is not None and self.squared_norm is not None:
            chosen.direction, chosen.squared_norm = self.direction[keep], self.squared_norm[keep]
        return chosen

    def forget(self, which: Array) -> None:
        """Start again from the gradient in the observations where a proposal was refused."""
        if self.direction is not None and self.squared_norm is not None:
            self.direction[which] = 0
            self.squared_norm[which] = 0

    def propose(self, problem: Problem, point: Point) -> Proposal:
        """Return the exact maximiser along the next conjugate direction, or over all means once there is a factor."""
        if self.factor is None and self.steps >= self.patience:
            self.factor = direct.factor(problem, point, 1 / self.inverse)
            self.patience = np.inf
        if self.factor is not None:
            mean = point.q.mean + self.factor.step(problem, point)
            return Proposal(GaussianFactors(mean, self.sd), 1, problem.size)
        if self.computed is None or not point.tracked:
            self.computed = np.abs(point.objective)
        if point.q.sd is not self.sd:
            point = problem.with_spread(point, self.sd, self.information)
        forms = self._turn(problem, point.gradient)
        length, mean, gradient, norm = self._step(problem, point, *forms)
        q = GaussianFactors(mean, self.sd)
        self.steps, self.ahead = self.steps + 1, (gradient, norm)
        gain = 0.5 * length * forms[1]
        size = np.abs(point.objective + gain) + problem.size
        cheap = few_entries(problem.weights.shape, problem.n_observations)
        if cheap or self.steps % REFRESH == 0 or np.any(self.computed > SHRUNK * size):
            return Proposal(q, 1, problem.size)
        # On the ELBO the preconditioner is the precision of q.
        known = norm if problem.site.objective == "elbo" else None
        return Proposal(q, 1, problem.size, problem.moved(point, q, gradient, gain, known))

    def _step(self, problem: Problem, point: Point, form: Array, slope: Array) -> tuple[Array, Array, Array, Array]:
        """Return the length of the step, mean and gradient at its end, and the gradient's squared norm.

        ``form`` is ``p^T diag(1 / sigma0^2) p`` and ``slope`` is ``gradient^T p``.
        """
        weights, direction = problem.site.layer.weights, self.direction
        assert direction is not None
        parts, of_rows = normal_parts(weights, direction, point.site.kappa)
        length = ratio(slope, form + of_rows)
        return length, *vectors.move(
            length, direction, parts, problem.prior_precision, self.inverse, point.q.mean, point.gradient
        )

    def _turn(self, problem: Problem, gradient: Array) -> tuple[Array, Array]:
        """Make the next direction p; return ``p^T diag(1 / sigma0^2) p`` and ``gradient^T p``, (N,)."""
        ahead = self.ahead if self.ahead is not None and self.ahead[0] is gradient else None
        if ahead is None:
            squared_norm = np.einsum("kj,kj,kj->k", *np.broadcast_arrays(gradient, gradient, self.inverse))
        else:
            squared_norm = ahead[1]
        if self.direction is None or self.squared_norm is None:
            self.direction, share = np.zeros_like(gradient), np.zeros(len(gradient), gradient.dtype)
        else:
            share = ratio(squared_norm, self.squared_norm).astype(gradient.dtype)
        forms = vectors.turn(share, gradient, self.inverse, problem.prior_precision, self.direction)
        self.squared_norm = squared_norm.copy()  # ``forget`` writes to it, and the point has the same array
        return forms


def solve_variances(problem: Problem, point: Point) -> tuple[Array, Array]:
    """Return the standard deviations at the optimum, and what the rows add to their precision there, (N or 1, m).

    Objective "elbo" has them in closed form. For "fm" they solve ``sigma_j (A sigma)_j = 1`` with the nonnegative
    matrix ``A = diag(1 / sigma0^2) + |W|^T diag(kappa) |W|``. The paper's update ``sigma <- sqrt(sigma / (A sigma))``
    converges at a rate of at most 1/2 whatever W is: in the logarithm its slope at the solution is ``(I - P) / 2``,
    with ``P = diag(sigma) A diag(sigma)`` stochastic and positive semidefinite, so with eigenvalues in [0, 1].
    """
    sd, information = point.q.sd, point.site.information
    halvings = int(-np.log2(np.finfo(sd.dtype).eps))
    for _ in range(4 * halvings):  # far starts take some steps before the rate holds
        new = spread_at(problem, information, sd)
        if new is sd:
            break
        sd = new
        if problem.site.objective == "fm":
            information = problem.curvature_at(sd, point)
    return sd, information


def dot(first: Array, second: Array) -> Array:
    """Return the inner product of each observation, (N, 1)."""
    return np.einsum("kj,kj->k", first, second)[:, np.newaxis]


def ratio(numerator: Array, denominator: Array) -> Array:
    """Return the quotient, 0 where the denominator is 0: there is nothing left to gain in that direction."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
