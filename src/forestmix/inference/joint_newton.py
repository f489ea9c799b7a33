"""Newton's method in the means and the standard deviations together, with a line search of its own.

Small problems take a factored step (``dense_newton``) from the first iteration on; large ones come here when separate
steps of the means and the variances make no headway, and solve the same system by conjugate gradients. So do models in
arrays of other libraries: whatever has m entries is an array of the library that the problem is in, and only what each
observation decides is on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import array_api_compat
import numpy as np

from forestmix.arrays import Array, host
from forestmix.inference.backtracking import backtrack, plain_retreats
from forestmix.inference.base import Accelerator, Proposal
from forestmix.problem.conjugate import conjugate_gradients, dot
from forestmix.problem.factored import NewtonStep, affordable, newton_step

#: Shorter steps that are tried, each a quarter of the last, and longer ones, each twice the last.
SHORTER, LONGER = 25, 12
#: The share of the gain that the slope promises which a step must bring.
ARMIJO = 1e-4
#: Beyond this decrement the objective is far from quadratic, and a longer step may do better than the whole one.
FAR = 3.0
#: Inner iterations at most, and the fraction of the slope at which they end.
INNER, FORCING = 200, 0.05
#: The factor by which a step raises a precision at most: from far away its goal may be beyond all numbers.
MOST_NARROWED = 1e6


class JointNewton(Accelerator):
    """Newton steps, each as long as the line search makes it."""

    def propose(self, problem: Any, point: Any) -> Proposal:
        """Return the point that the line search ends at."""
        step = newton_step(problem, point) if affordable(problem) else iterated_step(problem, point)
        new, tries = _search(problem, point, step)
        return Proposal(new.q, tries, tries * problem.size, new)

    def retreats(self, problem: Any, point: Any, refused: Any) -> Iterator[Any]:
        """Yield the plain step, shorter parts of it, and no step."""
        yield from plain_retreats(problem, point)


def moved(problem: Any, q: Any, step: NewtonStep, share: Array, *, straight: Literal["precision", "variance"]) -> Any:
    """Return the factors that go the fraction ``share``, (N, 1), of a step.

    Where the precisions ``1 / sigma^2`` go straight, a step without coupling ends at the variances' fixed point. Where
    growing variances go straight, ``m_i + v_i / 2`` does too, which is what the rate of a Poisson row depends on. No
    variance exceeds the prior's at the optimum, so none does on the way.
    """
    xp = array_api_compat.array_namespace(q.mean)
    far = xp.asarray(share, dtype=step.mean.dtype, device=array_api_compat.device(q.mean))
    mean = xp.astype(q.mean + far * step.mean, q.mean.dtype)
    prior, change = problem.prior.precision, 2 * far * step.log_sd
    precision = xp.astype(q.sd, change.dtype) ** -2.0
    least = xp.maximum(prior + 0 * precision, 1e-2 * precision * xp.astype(prior == 0, precision.dtype))
    factor = xp.minimum(1 - change, xp.full_like(change, MOST_NARROWED))
    if straight == "variance":
        factor = xp.where(change > 0, 1 / (1 + xp.abs(change)), factor)
    return type(q)(mean, xp.astype(xp.maximum(precision * factor, least) ** -0.5, q.sd.dtype))


def _search(problem: Any, old: Any, step: NewtonStep) -> tuple[Any, int]:
    """Return the best of some lengths of the step for each observation, and how many were tried.

    First the whole step with straight precisions, and on from there; then, where that is refused, the whole step with
    straight variances, and shorter ones.
    """
    promised, whole = step.decrement**2, np.ones((len(step.decrement), 1))

    def refused(new: Any, share: Array) -> Array:
        gain = ARMIJO * share[:, 0] * promised
        return ~(new.objective >= old.objective + np.where(gain > old.rounding, gain, -old.rounding))

    first = problem.evaluate(moved(problem, old.q, step, whole, straight="precision"))
    bad = refused(first, whole)
    if not bad.any():
        return _longer(problem, old, step, whole, first, 1)

    def shorter(share: Array) -> Any:
        return moved(problem, old.q, step, share, straight="variance").where(bad, first.q)

    def still_refused(new: Any, share: Array) -> Array:
        return refused(new, share) & bad

    second = problem.evaluate(shorter(whole))
    bad_again = still_refused(second, whole)
    if not bad_again.any():
        return _longer(problem, old, step, whole, second, 2)
    shares = np.where(bad_again[:, None], _safe_share(problem, step), 1.0)
    new, shares, tries = backtrack(
        problem, old, shorter, refused=still_refused, limit=SHORTER, shrink=0.25, first=shares
    )  # fmt: skip
    return _longer(problem, old, step, shares, new, tries + 2)


def _safe_share(problem: Any, step: NewtonStep) -> Array:
    """Return the part of a step that is safe in the means, (N, 1), at most a half.

    A fast-growing ``a`` makes steps too long by orders of magnitude.
    """
    shift = problem.weights.forward(step.mean)
    xp = array_api_compat.array_namespace(shift)
    largest = np.maximum(host(xp.max(xp.abs(shift), axis=1)).astype(np.float64), 1e-300)[:, None]
    return np.minimum(np.log1p(largest) / largest, 0.5)


def _longer(problem: Any, old: Any, step: NewtonStep, share: Array, new: Any, tries: int) -> tuple[Any, int]:
    """Go on along a step from far away for as long as the objective rises: each time twice as far."""
    far, share = (step.decrement > FAR) & (share[:, 0] > 0), share.copy()
    if problem.family.curvature_is_bounded:
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


def iterated_step(problem: Any, point: Any) -> NewtonStep:
    """Return the Newton step by conjugate gradients, whose products are those with W and with |W| or W∘W."""
    system = _System(problem, point)
    first = dot(system.slope, system.slope / system.diagonal)
    step = conjugate_gradients(
        system.slope,
        system.product,
        lambda residual: residual / system.diagonal,
        lambda residual, squared: squared <= FORCING**2 * first,
        INNER,
    ).x
    m = problem.size
    promised = np.maximum(host(dot(system.slope, step))[:, 0].astype(np.float64), 0.0)
    return NewtonStep(step[:, :m], step[:, m:], np.sqrt(promised))


class _System:
    """Slope and second derivatives in (p, u), as ``dense_newton`` has them, each (N, 2 m)."""

    def __init__(self, problem: Any, point: Any) -> None:
        self.xp = xp = array_api_compat.array_namespace(point.gradient)
        self.weights, self.prior, self.kappa = problem.weights, problem.prior.precision, point.terms.kappa
        self.f, self.h = problem.curvature_slopes(point)
        sd, precision = point.q.sd + 0 * point.gradient, problem.precision(point)
        paper = problem.objective_name == "fm"
        self.entries, self.scale = (abs(self.weights), sd) if paper else (self.weights.square(), sd**2)
        own = self.scale**2 * self.entries.square().adjoint(xp.maximum(self.h, xp.zeros_like(self.h)))
        self.safe = 1 + sd**2 * (self.prior if paper else xp.maximum(precision + 0 * sd, sd**-2.0))
        self.slope = xp.concat([point.gradient, 1 - sd**2 * precision], axis=1)
        exact = self.prior + problem.exact_information(point) + 0 * sd
        self.diagonal = xp.concat([exact, self.safe + own], axis=1)

    def product(self, direction: Any) -> tuple[Any, Any]:
        """Return the image of a direction, and the curvature along it."""
        m = direction.shape[1] // 2
        p, u = direction[:, :m], direction[:, m:]
        means, spreads = self.weights.forward(p), self.entries.forward(self.scale * u)
        of_means = self.weights.adjoint(self.kappa * means + self.f * spreads) + self.prior * p
        of_spreads = self.scale * self.entries.adjoint(self.f * means + self.h * spreads) + self.safe * u
        image = self.xp.concat([of_means, of_spreads], axis=1)
        return image, dot(direction, image)
