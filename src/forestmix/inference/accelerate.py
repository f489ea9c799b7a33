"""Acceleration of the means for rows of constant curvature, where the objective is quadratic in them.

The mean solves ``A mu = c`` with ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``, positive definite; the gradient of the
objective is the residual ``c - A mu``. Conjugate gradients, preconditioned with the diagonal of A (the precision of the
exact coordinate update), raise the objective in every step. A step is one pass over W, which gives ``W p`` and
``W^T diag(kappa) W p`` for its direction p; row means and gradient follow from the last ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.inference import direct
from forestmix.inference.base import Memory, Proposal
from forestmix.inference.problem import Point, Problem
from forestmix.inference.rules import settled
from forestmix.passes import normal_product
from forestmix.posterior import GaussianFactors, take_rows

#: After this many steps row means and gradient are computed anew from the means, so that rounding does not build up.
REFRESH = 50
#: A factor that costs less than this many steps is made at once: few problems are solved in as many.
LEAST_PATIENCE = 20


class ConjugateGradients(Memory):
    """The last direction and gradient of each observation, and the variances, which are solved beforehand.

    ``patience`` is the number of steps after which a factor of the matrix takes over, ``factor`` that factor.
    """

    def __init__(self, sd: Array, precision: Array, patience: float) -> None:
        self.sd, self.precision, self.patience = sd, precision, patience
        self.direction: Array | None = None
        self.squared_norm: Array | None = None
        self.factor: Any = None
        self.steps = 0

    @classmethod
    def at(cls, problem: Problem, point: Point, method: str = "auto") -> ConjugateGradients:
        """Solve for the variances from ``point`` on; they depend on neither x nor the means.

        Args:
            problem: the problem.
            point: the start.
            method: "cg" for conjugate gradients alone, "direct" for a factor at once, "auto" for what costs less.

        """
        sd = solve_variances(problem, point)
        patience = np.inf
        if method != "cg" and direct.has_factor(point):
            patience = 0.0 if method == "direct" else direct.price(problem, point)
        if patience < LEAST_PATIENCE:
            patience = 0.0
        return cls(sd, problem.prior_precision + problem.exact_information(point), patience)

    def take(self, keep: Array) -> ConjugateGradients:
        """Return the memory of the chosen observations."""
        chosen = ConjugateGradients(take_rows(self.sd, keep), take_rows(self.precision, keep), self.patience)
        chosen.steps, chosen.factor = self.steps, self.factor
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
            self.factor = direct.factor(problem, point)
            self.patience = np.inf
        if self.factor is not None:
            mean = point.q.mean + direct.solve(self.factor, point.gradient)
            return Proposal(GaussianFactors(mean, self.sd), 1, problem.size)
        direction = self._next_direction(point.gradient)
        shift, image = normal_product(problem.site.layer.weights, direction, point.site.kappa)
        curvature = dot(direction, image) + problem.prior_form(direction)[:, np.newaxis]
        length = ratio(dot(point.gradient, direction), curvature)
        q = GaussianFactors(moved(point.q.mean, length, direction), self.sd)
        self.steps += 1
        if self.steps % REFRESH == 0:
            return Proposal(q, 1, problem.size)
        eta, gradient = moved(point.site.eta, length, shift), moved(point.site.gradient, -length, image)
        return Proposal(q, 1, problem.size, eta, gradient)

    def _next_direction(self, gradient: Array) -> Array:
        preconditioned = gradient / self.precision
        squared_norm = dot(gradient, preconditioned)
        if self.direction is None or self.squared_norm is None:
            direction = preconditioned
        else:
            direction = moved(preconditioned, ratio(squared_norm, self.squared_norm), self.direction)
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
        new = settled(1 / np.sqrt(problem.prior_precision + information), sd)
        if new is sd:
            break
        sd = new
        if problem.site.objective == "fm":
            information = problem.curvature_at(sd, point)
    return sd


def moved(start: Array, length: Array, direction: Array) -> Array:
    """Return ``start + length * direction`` of each observation; new memory is what costs here, so only once."""
    result = length * direction
    result += start
    return result


def dot(first: Array, second: Array) -> Array:
    """Return the inner product of each observation, (N, 1)."""
    return np.einsum("kj,kj->k", first, second)[:, np.newaxis]


def ratio(numerator: Array, denominator: Array) -> Array:
    """Return the quotient, 0 where the denominator is 0: there is nothing left to gain in that direction."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
