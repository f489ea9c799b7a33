"""Newton's method in the means and the standard deviations together, with a line search of its own.

Small problems take a factored step (``dense_newton``) from the first iteration on; large ones come here when separate
steps of the means and the variances make no headway, and solve the same system by conjugate gradients.
"""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.inference.accelerate import dot, ratio
from forestmix.inference.base import Memory, Proposal
from forestmix.inference.dense_newton import AFFORDABLE, NewtonStep, cost, curvature_slopes, moved, newton_step
from forestmix.inference.problem import Point, Problem

#: Shorter steps that are tried, each a quarter of the last, and longer ones, each twice the last.
SHORTER, LONGER = 25, 12
#: The share of the gain that the slope promises which a step must bring.
ARMIJO = 1e-4
#: Beyond this decrement the objective is far from quadratic, and a longer step may do better than the whole one.
FAR = 3.0
#: Inner iterations at most, and the fraction of the slope at which they end.
INNER, FORCING = 200, 0.05


class JointNewton(Memory):
    """Newton steps, each as long as the line search makes it."""

    def propose(self, problem: Problem, point: Point) -> Proposal:
        """Return the point that the line search ends at."""
        step = newton_step(problem, point) if cost(problem) <= AFFORDABLE else iterated_step(problem, point)
        new, tries = _search(problem, point, step)
        return Proposal(new.q, tries, tries * problem.size, new)


def _search(problem: Problem, old: Point, step: NewtonStep) -> tuple[Point, int]:
    """Return the best of some lengths of the step for each observation, and how many were tried.

    First the whole step with straight precisions, and on from there; then, where that is refused, the whole step with
    straight variances, and shorter ones.
    """
    promised = step.decrement**2
    share = np.ones((len(promised), 1))

    def enough(new: Point) -> Array:
        gain = ARMIJO * share[:, 0] * promised
        return new.objective >= old.objective + np.where(gain > old.rounding, gain, -old.rounding)

    new, tries = problem.evaluate(moved(problem, old.q, step, share, straight="precision")), 1
    good = enough(new)
    if good.all():
        return _longer(problem, old, step, share, new, tries)
    first = new.q
    # A fast-growing ``a`` makes steps too long by orders of magnitude; this part of one is safe in the means.
    shift = problem.site.layer.weights.forward(step.mean.astype(problem.model.dtype))
    largest = np.maximum(np.max(np.abs(shift), axis=1, keepdims=True), 1e-300).astype(np.float64)
    for k in range(SHORTER):
        shorter = moved(problem, old.q, step, share, straight="variance")
        new, tries = problem.evaluate(first.where(good, shorter)), tries + 1
        fell = ~(enough(new) | good)
        if not fell.any():
            return _longer(problem, old, step, share, new, tries)
        share[fell] = np.minimum(np.log1p(largest) / largest, 0.5)[fell] if k == 0 else share[fell] / 4
    return problem.evaluate(old.q.where(fell, new.q)), tries + 1


def _longer(problem: Problem, old: Point, step: NewtonStep, share: Array, new: Point, tries: int) -> tuple[Point, int]:
    """Go on along a step from far away for as long as the objective rises: each time twice as far."""
    far = step.decrement > FAR
    if problem.site.layer.family.curvature_is_bounded:
        return new, tries
    for _ in range(LONGER):
        if not far.any():
            break
        further = moved(problem, old.q, step, 2 * share, straight="variance")
        longer, tries = problem.evaluate(further.where(far, new.q)), tries + 1
        better = far & (longer.objective > new.objective)
        share[better] *= 2
        new = longer if (better | ~far).all() else problem.evaluate(longer.q.where(better, new.q))
        far = better
    return new, tries


def iterated_step(problem: Problem, point: Point) -> NewtonStep:
    """Return the Newton step by conjugate gradients, whose products are those with W and with |W| or W∘W."""
    system = _System(problem, point)
    step = np.zeros_like(system.slope)
    residual = system.slope
    direction = preconditioned = residual / system.diagonal
    squared = dot(residual, preconditioned)
    goal = FORCING**2 * squared
    for _ in range(INNER):
        image = system.product(direction)
        curvature = dot(direction, image)
        length = ratio(squared, curvature)
        step, residual = step + length * direction, residual - length * image
        preconditioned = residual / system.diagonal
        before, squared = squared, dot(residual, preconditioned)
        if np.all((squared <= goal) | (curvature <= 0)):
            break
        direction = preconditioned + ratio(squared, before) * direction
    m = problem.size
    promised = np.maximum(dot(system.slope, step)[:, 0], 0.0)
    return NewtonStep(step[:, :m], step[:, m:], np.sqrt(promised))


class _System:
    """Slope and second derivatives in (p, u), as ``dense_newton`` has them, each (N, 2 m)."""

    def __init__(self, problem: Problem, point: Point) -> None:
        self.weights, self.prior, self.kappa = problem.site.layer.weights, problem.prior_precision, point.site.kappa
        self.f, self.h = curvature_slopes(problem, point)
        sd = np.broadcast_to(point.q.sd, point.gradient.shape).astype(np.float64)
        paper = problem.site.objective == "fm"
        self.entries, self.scale = (abs(self.weights), sd) if paper else (self.weights.square(), sd**2)
        precision = problem.precision(point)
        own = self.scale**2 * self.entries.square().adjoint(np.maximum(self.h, 0))
        safe = 1 + sd**2 * (self.prior if paper else np.maximum(precision, sd**-2.0))
        self.slope = np.concatenate([point.gradient, 1 - sd**2 * precision], axis=1).astype(np.float64)
        exact = np.broadcast_to(self.prior + problem.exact_information(point), sd.shape)
        self.diagonal = np.concatenate([exact, safe + own], axis=1)
        self.safe = safe

    def product(self, direction: Array) -> Array:
        """Return the image of a direction."""
        m = direction.shape[1] // 2
        p, u = direction[:, :m], direction[:, m:]
        means, spreads = self.weights.forward(p), self.entries.forward(self.scale * u)
        of_means = self.weights.adjoint(self.kappa * means + self.f * spreads) + self.prior * p
        of_spreads = self.scale * self.entries.adjoint(self.f * means + self.h * spreads) + self.safe * u
        return np.concatenate([of_means, of_spreads], axis=1)
