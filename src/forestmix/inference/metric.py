"""Newton's steps with a quasi-Newton metric, for rows of varying curvature and large W: their inner products are kept.

The means take Newton steps, ``(diag(1 / sigma0^2) + W^T diag(kappa) W) step = gradient``, solved roughly by conjugate
gradients; the variances take their fixed point ``1 / sigma_j^2 = 1 / sigma0_j^2 + information_j`` along with them. An
inner iteration is one pass over W that needs no one-dimensional expectations.

Every inner iteration leaves a pair (direction, its image), which is exact curvature. The last few pairs make a
limited-memory quasi-Newton metric (Morales and Nocedal, *Automatic preconditioning by limited memory quasi-Newton
updating*, SIAM J. Optim. 10, 2000), with the diagonal of the matrix as its start. It preconditions the next inner
solve; and as long as a step from the metric alone still cuts the gradient by enough, no inner solve is made at all. So
easy problems are solved by quasi-Newton steps of one pass each, and ill-conditioned ones, on which those stall, by
Newton's: each time that a step from the metric is refused, twice as many solves are made before the next is tried.
``python -m benchmarks passes`` measures it beside Newton-CG and L-BFGS.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.inference.base import Proposal
from forestmix.inference.newton import JointNewton, newton_proposal, safe_share
from forestmix.problem import newton_system
from forestmix.problem.conjugate import conjugate_gradients, dot, quotient
from forestmix.problem.interfaces.gaussian_latents import GaussianLatents
from forestmix.problem.points import LayeredFactors, Point
from forestmix.problem.problem import Problem

#: Pairs that the metric keeps, each two vectors of length m.
PAIRS = 40
#: An inner solve ends when the residual, in the metric of q's precision, is this fraction of the gradient.
FORCING = 0.3
#: Inner iterations at most.
INNER = 100
#: A step that cut the gradient to this fraction is followed by one from the metric alone.
ENOUGH = 0.8
#: A step is a setback if it is refused, or leaves the variances' error at more than this fraction and above a limit.
STUCK, ENOUGH_OF_VARIANCES = 0.5, 1e-4
#: Setbacks after which means and variances step together.
SETBACKS = 8
#: How often a refused step is halved before the plain step takes its place.
SHORTER_STEPS = 4


class MetricNewton(JointNewton):
    """The pairs of the metric for each observation, and whether the last step cut the gradient by enough.

    A pair is a direction s and its image y, (N, m), and ``1 / s^T y``, 0 where there is no such pair, (N, 1).
    ``from_metric``: whether the last step was made without a solve; ``solves``: how many are made before the next such
    step is tried, and ``pause``: how many there were the last time.
    """

    def __init__(self, n_observations: int) -> None:
        super().__init__()
        self.pairs: list[tuple[Array, Array, Array]] = []
        self.last: tuple[Array, Array, Array] | None = None
        self.trusted = np.zeros(n_observations, bool)
        self.from_metric, self.solves, self.pause = False, 0, 0
        self.setbacks, self.last_variances = 0, np.inf

    def forget(self, which: Array) -> None:
        """Do not step from the metric alone where it has just led astray, and wait longer each time that it does."""
        self.setbacks += 1
        if self.last is not None:
            self.last[2][which] = 0
        if self.from_metric:
            self.solves = self.pause = 2 * self.pause + 1

    def propose(self, problem: Problem, point: Point) -> Proposal:
        """Return the next step of the means, and the variances' fixed point at the current rows.

        Where the rows tie the two together, so that neither gets anywhere by itself, joint steps take over.
        """
        rows, at = problem.rows, point.rows
        if self._is_tied(rows, at):
            return super().propose(problem, point)
        precision = rows.prior.precision + rows.exact_information(at)
        norm = np.sqrt(dot(at.gradient, at.gradient / precision))
        self._learn(at, norm)
        self.from_metric = bool(self.pairs) and self.solves == 0 and bool(self.trusted.all())
        if self.from_metric:
            step, inner = self._metric(at.gradient, precision / self._share_of_diagonal(precision)), 0
        else:
            step, inner = self._solve(rows, at, precision, norm)
            self.solves = max(0, self.solves - 1)
        self.last = (at.q.mean, at.gradient, norm)
        whole = point.q.moved((at.q.mean + step).astype(step.dtype), 1 / np.sqrt(rows.precision(at)))
        return newton_proposal(problem, point, _shorter(problem, point.q, whole), inner)

    def _is_tied(self, rows: GaussianLatents, at: Any) -> bool:
        """Count the steps that were refused or left the variances' error as it was; return whether they are many."""
        variances = float(np.max(rows.variance_norm(at)))
        if variances > max(STUCK * self.last_variances, ENOUGH_OF_VARIANCES):
            self.setbacks += 1
        self.last_variances = variances
        return self.setbacks > SETBACKS and rows.joint

    def _learn(self, at: Any, norm: Array) -> None:
        """Judge the last step by the gradient that it left, and keep it as a pair."""
        if self.last is None:
            return
        mean, gradient, before = self.last
        self.trusted = (norm < ENOUGH * before)[:, 0]
        change, fall = at.q.mean - mean, gradient - at.gradient
        usable = dot(change, fall) > 1e-8 * np.sqrt(dot(change, change) * dot(fall, fall))
        if usable.any():
            self._keep(np.where(usable, change, 0), np.where(usable, fall, 0))

    def _keep(self, direction: Array, image: Array) -> None:
        product = dot(direction, image)
        self.pairs = [*self.pairs, (direction, image, quotient(np.ones_like(product), product))][-PAIRS:]

    def _share_of_diagonal(self, precision: Array) -> Array:
        """Return ``s^T y / y^T P^-1 y`` of the last pair, at most 1, (N, 1): how far to go where no pair has been.

        The diagonal P alone would go too far: it knows nothing of latents that share their rows.
        """
        direction, image, _ = self.pairs[-1]
        share = quotient(dot(direction, image), dot(image, image / precision))
        return np.where((share > 0) & (share < 1), share, 1)

    def _metric(self, gradient: Array, precision: Array) -> Array:
        """Apply the two-loop recursion, with the diagonal as the first metric; a pair of zeros changes nothing."""
        rest, shares = gradient.copy(), []
        for direction, image, inverse in reversed(self.pairs):
            shares.append((dot(direction, rest) * inverse).astype(gradient.dtype))
            rest -= shares[-1] * image
        step = (rest / precision).astype(gradient.dtype)
        for direction, image, inverse in self.pairs:
            step += (shares.pop() - dot(image, step) * inverse).astype(gradient.dtype) * direction
        return step

    def _solve(self, rows: GaussianLatents, at: Any, precision: Array, norm: Array) -> tuple[Array, int]:
        """Solve for the Newton step by conjugate gradients, to FORCING; return it and the number of iterations."""
        new_pairs: list[tuple[Array, Array]] = []

        def enough(residual: Array, squared: Array) -> Array:
            # All observations go on until the last one is there: a pass costs as much for one as for some.
            return np.full_like(norm, (np.sqrt(dot(residual, residual / precision)) <= FORCING * norm).all(), bool)

        def product(direction: Array) -> tuple[Array, Array]:
            return rows.normal_image(direction, at.kappa)

        metric = partial(self._metric, precision=precision)
        step = conjugate_gradients(at.gradient, product, metric, enough, INNER, lambda *pair: new_pairs.append(pair)).x
        # Not before the solve has ended: conjugate gradients need one and the same metric throughout.
        for pair in new_pairs:
            self._keep(*pair)
        return step, len(new_pairs)


def _shorter(problem: Problem, old: LayeredFactors, whole: LayeredFactors) -> Iterator[LayeredFactors]:
    """Yield a step and parts of it, straight in the means and in the precisions."""
    yield whole
    share: Any = 1.0
    if not problem.rows.layer.family.curvature_is_bounded:
        # Where a grows like an exponential, a step too long by far is the rule, and halving it would take long.
        share = safe_share(problem.rows, whole.mean - old.mean)
        yield problem.shorter(old, whole, share)
    for halvings in range(1, SHORTER_STEPS + 1):
        yield problem.shorter(old, whole, 0.5**halvings * share)


def newton(problem: Problem, point: Point, method: str) -> JointNewton:
    """Return joint steps where the system is cheap to factor, or has no host arrays, and else separate ones."""
    rows = problem.rows
    jointly = not rows.on_host or (rows.joint and newton_system.cost(rows) <= newton_system.CHEAP)
    return JointNewton() if jointly else MetricNewton(len(point.objective))
