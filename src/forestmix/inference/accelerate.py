"""Acceleration of the means for rows of constant curvature, where the objective is quadratic in them.

The mean solves ``A mu = c`` with ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``, positive definite; the gradient of the
objective is the residual ``c - A mu``. Conjugate gradients, preconditioned with the diagonal of A (the precision of the
exact coordinate update), raise the objective in every step.
"""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.inference.base import Memory, Proposal
from forestmix.inference.problem import Point, Problem
from forestmix.inference.rules import settled
from forestmix.posterior import GaussianFactors, take_rows

#: After this many steps the row means are computed anew from the means, so that rounding does not build up.
REFRESH = 50


class ConjugateGradients(Memory):
    """The last direction and gradient of each observation, and the variances, which are solved beforehand."""

    def __init__(self, sd: Array, precision: Array) -> None:
        self.sd, self.precision = sd, precision
        self.direction: Array | None = None
        self.squared_norm: Array | None = None
        self.steps = 0

    @classmethod
    def at(cls, problem: Problem, point: Point) -> ConjugateGradients:
        """Solve for the variances from ``point`` on; they depend on neither x nor the means."""
        sd = solve_variances(problem, point)
        return cls(sd, problem.prior_precision + problem.site.exact_information(point.site.kappa))

    def take(self, keep: Array) -> ConjugateGradients:
        """Return the memory of the chosen observations."""
        chosen = ConjugateGradients(take_rows(self.sd, keep), take_rows(self.precision, keep))
        chosen.steps = self.steps
        if self.direction is not None and self.squared_norm is not None:
            chosen.direction, chosen.squared_norm = self.direction[keep], self.squared_norm[keep]
        return chosen

    def forget(self, which: Array) -> None:
        """Start again from the gradient in the observations where a proposal was refused."""
        if self.direction is not None and self.squared_norm is not None:
            self.direction[which] = 0
            self.squared_norm[which] = 0

    def propose(self, problem: Problem, point: Point) -> Proposal:
        """Return the exact maximiser along the next conjugate direction."""
        direction = self._next_direction(point.gradient)
        shift = problem.site.layer.weights.forward(direction)
        curvature = dot(shift, shift * point.site.kappa) + dot(direction, direction * problem.prior_precision)
        length = ratio(dot(point.gradient, direction), curvature)
        mean = point.q.mean + length * direction
        self.steps += 1
        eta = None if self.steps % REFRESH == 0 else point.site.eta + length * shift
        return Proposal(GaussianFactors(mean, self.sd), 1, problem.size, eta)

    def _next_direction(self, gradient: Array) -> Array:
        preconditioned = gradient / self.precision
        squared_norm = dot(gradient, preconditioned)
        if self.direction is None or self.squared_norm is None:
            direction = preconditioned
        else:
            direction = preconditioned + ratio(squared_norm, self.squared_norm) * self.direction
        self.direction, self.squared_norm = direction, squared_norm
        return direction


def solve_variances(problem: Problem, point: Point) -> Array:
    """Return the standard deviations at the optimum, (N or 1, m).

    Objective "elbo" has them in closed form. For "fm" they solve ``sigma_j (A sigma)_j = 1`` with the nonnegative
    matrix ``A = diag(1 / sigma0^2) + |W|^T diag(kappa) |W|``. The paper's update ``sigma <- sqrt(sigma / (A sigma))``
    converges at a rate of at most 1/2 whatever W is: in the logarithm its slope at the solution is ``(I - P) / 2``,
    with ``P = diag(sigma) A diag(sigma)`` stochastic and positive semidefinite, so with eigenvalues in [0, 1].
    """
    sd, information = point.q.sd, point.site.information
    halvings = int(-np.log2(np.finfo(sd.dtype).eps))
    for _ in range(4 * halvings):  # far starts take some steps before the rate holds
        new = settled((problem.prior_precision + information) ** -0.5, sd)
        if new is sd:
            break
        sd = new
        if problem.site.objective == "fm":
            information = problem.site.curvature(sd, point.site.kappa)
    return sd


def dot(first: Array, second: Array) -> Array:
    """Return the inner product of each observation, (N, 1)."""
    return np.sum(first * second, axis=-1, keepdims=True)


def ratio(numerator: Array, denominator: Array) -> Array:
    """Return the quotient, 0 where the denominator is 0: there is nothing left to gain in that direction."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
