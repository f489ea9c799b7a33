"""Variances of linear functionals by conjugate gradients, each with a bound on its error.

For a vector c conjugate gradients raise ``J(x) = 2 c^T x - x^T A x`` to its maximum ``c^T C c``, with ``C = A^-1``. For
every x, also a rounded one, with ``r = c - A x``::

    c^T C c - J(x) = r^T C r,  between 0 and  r^T diag(sigma0^2) r,  since  C <= diag(sigma0^2), the prior's covariance

so each variance comes from below, and with a bound on its error that is computed and held to. The same bound says when
a draw is solved for well enough (``iterative.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.weights import Weights
from forestmix.weights.blocks import blocks_of

#: A residual recomputed from x that is not this much better than the last one is at the limit of rounding.
LEAST_GAIN = 0.25
#: Iterations tried at most.
MOST_ITERATIONS = 20_000


class PrecisionSystem:
    """The matrix ``A = diag(1 / scale^2) + W^T diag(kappa) W``: products with it, and its diagonal."""

    def __init__(self, weights: Weights, kappa: Array, scale: Array, prior_variance: Callable[[Array], Array]) -> None:
        self.weights, self.kappa, self.scale, self.prior_variance = weights, kappa, scale, prior_variance
        self.diagonal = scale**-2.0 + weights.square().adjoint(kappa)

    def product(self, x: Array) -> tuple[Array, Array]:
        """Return ``A x`` and ``x^T A x``, the latter as a sum of squares, in which nothing cancels."""
        shift = self.weights.forward(x)
        image = self.weights.adjoint(self.kappa * shift)
        image += x * self.scale**-2.0
        return image, np.sum(self.kappa * shift**2, axis=-1) + np.sum((x / self.scale) ** 2, axis=-1)


class ConjugateGradients:
    """Right-hand sides c with their conjugate gradients under way; those that are done leave."""

    def __init__(self, system: PrecisionSystem, c: Array) -> None:
        self.system, self.c = system, c
        self.x, self.r, self.direction = np.zeros_like(c), c, np.zeros_like(c)
        self.squared_norm, self.estimate = np.zeros(len(c)), np.zeros(len(c))
        self.bound = system.prior_variance(c)

    def take(self, chosen: Array) -> ConjugateGradients:
        """Return the chosen right-hand sides."""
        part = copy(self)
        for name in ("c", "x", "r", "direction", "squared_norm", "estimate", "bound"):
            setattr(part, name, getattr(self, name)[chosen])
        return part

    def put(self, chosen: Array, part: ConjugateGradients) -> None:
        """Write how far the chosen right-hand sides have come."""
        for name in ("x", "r", "estimate", "bound"):
            getattr(self, name)[chosen] = getattr(part, name)

    def step(self) -> None:
        """Move each x to the maximum of J along its next conjugate direction; J rises by ``length * squared_norm``."""
        preconditioned = self.r / self.system.diagonal
        squared_norm = np.sum(self.r * preconditioned, axis=-1)
        self.direction = preconditioned + _quotient(squared_norm, self.squared_norm)[:, None] * self.direction
        image, curvature = self.system.product(self.direction)
        length = _quotient(squared_norm, curvature)
        self.x, self.r = self.x + length[:, None] * self.direction, self.r - length[:, None] * image
        self.squared_norm, self.estimate = squared_norm, self.estimate + length * squared_norm
        self.bound = self.system.prior_variance(self.r)

    def restart(self) -> None:
        """Compute residual, estimate and bound anew from x, free of what rounding added up, and go on from there."""
        image, curvature = self.system.product(self.x)
        self.r = self.c - image
        self.estimate = 2 * np.sum(self.c * self.x, axis=-1) - curvature
        self.bound = self.system.prior_variance(self.r)
        self.squared_norm, self.direction = np.zeros_like(self.squared_norm), np.zeros_like(self.direction)


def certified_variances(system: PrecisionSystem, C: Weights, tol: float) -> Array:
    """Return ``c^T A^-1 c`` of each row c of C, from below and within a relative error of ``tol``."""
    n, m = system.weights.shape
    found = np.empty(C.shape[0])
    # Six vectors of each right-hand side stay, the others come and go within a step.
    for numbers in blocks_of(len(found), 8 * (10 * m + 4 * n)):
        end = _solved(ConjugateGradients(system, C.dense_rows(numbers)), lambda block: tol * block.estimate)
        if end.reason:
            raise _not_reached(end, numbers, tol)
        found[numbers] = end.block.estimate
    return found


def solutions(system: PrecisionSystem, right: Array, error: float) -> tuple[Array, Array]:
    """Return x and residuals for each right-hand side c, with ``(x - A^-1 c)^T A (x - A^-1 c) <= error``."""
    end = _solved(ConjugateGradients(system, right), lambda block: np.full(len(block.c), error))
    if end.reason:
        raise ForestmixError(
            f"Conjugate gradients did not solve for {len(end.active)} draws {end.reason}: the prior is too wide beside "
            "what the rows say. Bring the prior's sd nearer to the scale of the posterior."
        )
    return end.block.x, end.block.r


class _End(NamedTuple):
    """All right-hand sides as they ended, those that did not get there, and why."""

    block: ConjugateGradients
    active: Array
    reason: str


def _solved(whole: ConjugateGradients, target: Callable[[ConjugateGradients], Array]) -> _End:
    """Iterate until each right-hand side has its ``bound`` within ``target``, by a residual computed anew."""
    block, active = whole, np.arange(len(whole.c))
    last, limit = np.full(len(active), np.inf), iteration_limit(whole.c.shape[1])
    whole = whole.take(active)
    for _ in range(limit):
        # Half of the target leaves room for what rounding adds between the residual carried along and a new one.
        if (block.bound <= 0.5 * target(block)).all():
            block.restart()
            whole.put(active, block)
            done = block.bound <= target(block)
            if (~done & (block.bound > LEAST_GAIN * last)).any():
                return _End(whole, active[~done], "before rounding set a limit")
            keep = np.flatnonzero(~done)
            block, active, last = block.take(keep), active[keep], block.bound[keep]
            if not len(active):
                return _End(whole, active, "")
        block.step()
    whole.put(active, block)
    return _End(whole, active, f"within {limit} iterations")


def iteration_limit(m: int) -> int:
    """Return how many iterations are tried for m latents."""
    return min(10 * m + 100, MOST_ITERATIONS)


def _not_reached(end: _End, numbers: Array, tol: float) -> ForestmixError:
    """Return the error that says how many functionals are not there yet, which is the worst, and what to try."""
    error = _quotient(end.block.bound, end.block.estimate)[end.active]
    worst = int(np.argmax(error))
    return ForestmixError(
        f"Conjugate gradients did not reach tol={tol:g} {end.reason} for {len(error)} functionals; the worst, "
        f"number {numbers[end.active[worst]]}, has a relative error of up to {error[worst]:.1e}. Raise tol, or bring "
        "the prior's sd nearer to the scale of the posterior."
    )


def _quotient(numerator: Array, denominator: Array) -> Array:
    """Return the quotient, 0 where the denominator is 0: a new start, or nothing left to gain."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
