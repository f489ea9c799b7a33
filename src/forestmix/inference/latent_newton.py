"""Acceleration for latents of any family under Gaussian rows: Newton steps in the tilts of the factors.

Every factor is ``q_j(y) ∝ p(y) exp(-H_j y^2 / 2 + h_j y)``, and in its mean the ELBO has the slope (docs/latents.md)::

    g_j = sum_i w_ij e_i + H_j mu_j - h_j          which is 0 at an optimum
    d mu_j = Var_j d h_j                           so (1 / Var + A) d mu = g,  d h = g - A d mu,  A = W^T kappa W - H

In ``s = d mu / Std`` the matrix is ``I + Std A Std``: latents that are all but certain drop out of it by themselves. It
is solved by conjugate gradients, which stop where the curvature is not positive, for the ELBO has more than one
optimum. The loop refuses a step that would lower the ELBO; then come shorter ones, and the plain step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from forestmix.arrays import Array
from forestmix.inference.accelerate import dot, ratio
from forestmix.inference.base import Memory, Proposal
from forestmix.inference.latent_problem import LatentPoint, LatentProblem
from forestmix.inference.latent_steps import step_latents
from forestmix.interfaces import Above, GaussianRows, LayeredFactors
from forestmix.latents import GaussianFactors

#: Plain steps before the first Newton step: they choose the basin, and Newton's method the way down it.
PLAIN = 10
#: Inner iterations at most; an inner solve ends when the residual is this fraction of the slope.
INNER, FORCING = 50, 0.1
#: Shorter steps that are tried before the plain one.
SHORTER = 4


def newton_applies(problem: LatentProblem) -> bool:
    """Whether there is one latent layer, under Gaussian rows, and the ELBO is climbed."""
    lowest = problem.stack.interfaces[0]
    return problem.stack.depth == 1 and isinstance(lowest, GaussianRows) and lowest.objective == "elbo"


class LatentNewton(Memory):
    """The last step, so that a shorter part of it can be tried."""

    def __init__(self) -> None:
        self.steps = 0
        self.last: tuple[Array, Array] | None = None

    def take(self, keep: Array) -> LatentNewton:
        """Return the memory of the chosen observations; a step is looked at only in the iteration that made it."""
        return self

    def propose(self, problem: LatentProblem, point: LatentPoint) -> Proposal:
        """Return plain steps first, and Newton steps then."""
        self.steps += 1
        self.last = None
        if self.steps <= PLAIN:
            return Proposal(step_latents(problem, point, "red-black"), 1, problem.size)
        rows, q = problem.stack.interfaces[0], point.q.layers[0]
        above, seen = problem.stack.above(point.q, 0), problem.stack.seen(point.q, 0)
        H = rows.information[0]
        tilt = q.tilt(above.family, above.eta, H)
        slope = rows.slope(seen, q) + H * q.mean - tilt
        step, inner = _solve(rows, slope, q.sd, H)
        self.last = (tilt, slope - _product(rows, step, H))
        return Proposal(self._at(problem, point, 1.0), 1 + inner, (1 + inner) * problem.size)

    def retreats(self, problem: LatentProblem, point: LatentPoint) -> Iterator[LayeredFactors]:
        """Yield shorter parts of the last step, then the plain step, then none."""
        if self.last is not None:
            for k in range(1, SHORTER + 1):
                yield self._at(problem, point, 0.25**k)
            yield step_latents(problem, point, "red-black")
        yield point.q

    def _at(self, problem: LatentProblem, point: LatentPoint, share: float) -> LayeredFactors:
        assert self.last is not None
        rows: GaussianRows = problem.stack.interfaces[0]
        above: Above = problem.stack.above(point.q, 0)
        tilt, change = self.last
        q = rows.kind.tilted(above.family, above.eta, rows.information[0], tilt + share * change)
        if isinstance(q, GaussianFactors):
            q = GaussianFactors(q.mean, np.broadcast_to(q.sd, q.mean.shape))
        return point.q.replace(0, q)


def _product(rows: GaussianRows, step: Array, H: Array) -> Array:
    """Return ``(W^T kappa W - H) step``."""
    weights = rows.layer.weights
    return weights.adjoint(rows.kappa * weights.forward(step)).astype(np.float64) - H * step


def _solve(rows: GaussianRows, slope: Array, sd: Array, H: Array) -> tuple[Array, int]:
    """Return the step of the means, and the number of iterations that it took."""
    residual = sd * slope
    s, direction = np.zeros_like(residual), residual
    squared = dot(residual, residual)
    goal = FORCING**2 * squared
    inner = 0
    for inner in range(1, INNER + 1):
        image = direction + sd * _product(rows, sd * direction, H)
        curvature = dot(direction, image)
        # Not positive: this observation stays where it is, at the gradient if it has gone nowhere yet.
        if inner == 1:
            s = np.where(curvature > 0, s, direction)
        length = ratio(squared, curvature)
        s, residual = s + length * direction, residual - length * image
        before, squared = squared, dot(residual, residual)
        direction = np.where(curvature > 0, residual + ratio(squared, before) * direction, 0.0)
        if np.all((squared <= goal) | (curvature <= 0)):
            break
    return sd * s, inner
