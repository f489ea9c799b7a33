"""The covariance of more latents than a factor can hold, from draws that conjugate gradients solve for.

A draw from ``N(0, A^-1)`` is the solution of one linear system (Papandreou and Yuille 2010)::

    A y = sigma0^-1 z1 + W^T sqrt(kappa) z2        z1, z2 standard normal, A as in ``system.py``

Variances come from S draws by Rao-Blackwell (Siden et al., *Efficient covariance approximations for large sparse
precision matrices*, 2018): given the others, latent j has variance ``1 / A_jj`` and mean ``c_j``::

    c_j = y_j - (A y)_j / A_jj        Var_j = 1 / A_jj + mean_s c_js^2

Only the second part is estimated. ``c_j`` is normal, so the standard error of that part is ``sqrt(2 / S)`` of itself.

For a vector c conjugate gradients raise ``J(x) = 2 c^T x - x^T A x`` to its maximum ``c^T C c``, with ``C = A^-1``. For
every x, also a rounded one, with ``r = c - A x``::

    c^T C c - J(x) = r^T C r,  between 0 and  r^T diag(sigma0^2) r,  since  C <= diag(sigma0^2), the prior's covariance

so the variance of a functional comes from below, and with a bound on its error that is computed and held to. The same
bound says when a draw is solved for well enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array, generator
from forestmix.errors import ForestmixError
from forestmix.inference.progress import NoProgress, ProgressBar
from forestmix.posterior.covariance import Covariance
from forestmix.problem.conjugate import Last, conjugate_step, dot
from forestmix.weights import Weights
from forestmix.weights.blocks import blocks_of

#: Draws of the first batch, from which the number of all is foreseen, and the most that are made.
FIRST_DRAWS, MOST_DRAWS = 16, 1024
#: The error of a draw, in the norm of A, relative to the draw's own: a thousandth of a standard deviation on average.
DRAW_ERROR = 1e-3
#: Up to this many functionals are solved for one by one, to this relative error of their variances; more are estimated
#: from at least so many draws, with a standard error of ``1 / sqrt(2 S)`` of each standard deviation.
MANY_FUNCTIONALS, FUNCTIONAL_ERROR, FUNCTIONAL_DRAWS = 256, 1e-4, 256
#: A residual recomputed from x that is not this much better than the last one is at the limit of rounding.
LEAST_GAIN = 0.25
#: Iterations of conjugate gradients tried for one latent, beside a hundred, and at most.
ITERATIONS, MOST_ITERATIONS = 10, 20_000


class IterativeCovariance(Covariance):
    """The inverse of ``A = diag(1 / scale^2) + W^T diag(kappa) W``, by products with W alone.

    Args:
        weights: W, (n, m), in float64.
        kappa: the curvature of each row, (n,).
        scale: the prior's standard deviation of each latent, (m,).
        prior_variance: gives the variance of ``c^T y`` under the prior, which bounds that under the posterior.
        tol: draws are made until the median over latents of the relative standard error of an sd is at most this.
        rng: a generator, or a seed, for the draws behind the variances.
        progress: show a progress bar.

    """

    def __init__(
        self, weights: Weights, kappa: Array, scale: Array, prior_variance: Callable[[Array], Array],
        tol: float = 0.01, rng: Any = 0, *, progress: bool = False,
    ) -> None:  # fmt: skip
        self.system = PrecisionSystem(weights, kappa, scale, prior_variance)
        self.kappa, self.tol, self.progress = kappa, tol, progress
        self._rng = generator(rng)
        #: How many draws were made, the mean of their ``c_j^2``, and the first of them, for functionals.
        self._count, self._moment, self._draws = 0, np.zeros(len(scale)), np.empty((0, len(scale)))

    def variance(self) -> Array:
        """Return the variance of each latent, drawing until ``tol`` is met."""
        while self._missing_draws() > 0:
            self._draw_more(self._missing_draws())
        return self._estimate()

    def sd_error(self) -> Array:
        """Return the standard error of each standard deviation."""
        sd = np.sqrt(self.variance())
        return self._moment * np.sqrt(2 / self._count) / (2 * sd)

    def quadratic(self, C: Weights) -> Array:
        """Return ``c^T A^-1 c``: few to a relative error of 1e-4 that is certified, many from draws."""
        if C.shape[0] <= MANY_FUNCTIONALS:
            return certified_variances(self.system, C, FUNCTIONAL_ERROR)
        self._draw_more(FUNCTIONAL_DRAWS - self._count)
        total = np.zeros(C.shape[0])
        for block in blocks_of(len(self._draws), 8 * sum(C.shape)):
            total += np.sum(C.forward(self._draws[block]) ** 2, axis=0)
        return total / len(self._draws)

    def covariance(self, C: Weights) -> Array:
        """Return ``C A^-1 C^T``, from one solve for each row."""
        if C.shape[0] > 16 * MANY_FUNCTIONALS:
            raise ForestmixError(
                f"C has {C.shape[0]} rows, too many for a matrix of all their covariances with {C.shape[1]} latents. "
                "Use variance(C), or sample()."
            )
        rows = C.toarray()
        found = rows @ self.solve(rows).T
        return 0.5 * (found + found.T)

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Return new draws, one system to solve for each."""
        return self._solved_draws(size, rng)[0]

    def solve(self, right: Array) -> Array:
        """Return ``A^-1 r`` to a relative error of 1e-6 in the norm of A."""
        # The prior's bound on r^T A^-1 r is the scale that each error is relative to.
        scale = self.system.prior_variance(right)
        parts = [solutions(self.system, one[None], 1e-12 * size)[0] for one, size in zip(right, scale, strict=True)]
        return np.concatenate(parts)

    def _estimate(self) -> Array:
        return 1 / self.system.diagonal + self._moment

    def _missing_draws(self) -> int:
        """Return how many draws the median error still needs: it falls with the square root of their number."""
        if self._count < FIRST_DRAWS:
            return FIRST_DRAWS - self._count
        share = float(np.median(self._moment / self._estimate()))
        needed = min(0.5 * (share / self.tol) ** 2, MOST_DRAWS)
        # A few more than foreseen, so that the second batch is nearly always the last.
        return int(np.ceil(min(1.1 * needed, MOST_DRAWS))) - self._count if self._count < needed else 0

    def _draw_more(self, count: int) -> None:
        """Add draws, and what they say of the variances."""
        if count <= 0:
            return
        draws, squares = self._solved_draws(count, self._rng)
        self._draws = np.concatenate([self._draws, draws[: FUNCTIONAL_DRAWS - len(self._draws)]])
        self._moment = (self._count * self._moment + squares) / (self._count + count)
        self._count += count

    def _solved_draws(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return draws, and ``sum_s c_s^2`` of their conditional means."""
        system = self.system
        n, m = system.weights.shape
        draws, squares = np.empty((count, m)), np.zeros(m)
        with ProgressBar("posterior draws", 1.0) if self.progress else NoProgress() as meter:
            for block in blocks_of(count, 8 * (10 * m + 4 * n)):
                noise = rng.standard_normal((len(block), n)) * np.sqrt(system.kappa)
                right = rng.standard_normal((len(block), m)) / system.scale + system.weights.adjoint(noise)
                draws[block], residual = solutions(system, right, DRAW_ERROR**2 * m)
                squares += np.sum((draws[block] - (right - residual) / system.diagonal) ** 2, axis=0)
                done = int(block[-1]) + 1
                meter.share(f"{done} of {count}", done / count)
        return draws, squares


class PrecisionSystem:
    """The matrix ``A = diag(1 / scale^2) + W^T diag(kappa) W``: products with it, and its diagonal."""

    def __init__(self, weights: Weights, kappa: Array, scale: Array, prior_variance: Callable[[Array], Array]) -> None:
        self.weights, self.kappa, self.scale, self.prior_variance = weights, kappa, scale, prior_variance
        self.diagonal = scale**-2.0 + weights.square().adjoint(kappa)

    def product(self, x: Array) -> tuple[Array, Array]:
        """Return ``A x`` and ``x^T A x``, (N, 1), the latter as a sum of squares, in which nothing cancels."""
        shift = self.weights.forward(x)
        image = self.weights.adjoint(self.kappa * shift)
        image += x * self.scale**-2.0
        squares = np.sum(self.kappa * shift**2, axis=-1) + np.sum((x / self.scale) ** 2, axis=-1)
        return image, squares[:, None]


def certified_variances(system: PrecisionSystem, C: Weights, tol: float) -> Array:
    """Return ``c^T A^-1 c`` of each row c of C, from below and within a relative error of ``tol``."""
    n, m = system.weights.shape
    found = np.empty(C.shape[0])
    # Six vectors of each right-hand side stay, the others come and go within a step.
    for numbers in blocks_of(len(found), 8 * (10 * m + 4 * n)):
        end = _solved(system, C.dense_rows(numbers), lambda value: tol * value)
        if end.reason:
            error = end.bound[end.active] / np.maximum(end.value[end.active], np.finfo(np.float64).tiny)
            worst = int(np.argmax(error))
            raise ForestmixError(
                f"Conjugate gradients did not reach tol={tol:g} {end.reason} for {len(error)} functionals; the worst, "
                f"number {numbers[end.active[worst]]}, has a relative error of up to {error[worst]:.1e}. Raise tol, or "
                "bring the prior's sd nearer to the scale of the posterior."
            )
        found[numbers] = end.value
    return found


def solutions(system: PrecisionSystem, right: Array, error: float) -> tuple[Array, Array]:
    """Return x and residuals for each right-hand side c, with ``(x - A^-1 c)^T A (x - A^-1 c) <= error``."""
    end = _solved(system, right, lambda value: np.full(len(value), error))
    if end.reason:
        raise ForestmixError(
            f"Conjugate gradients did not solve for {len(end.active)} draws {end.reason}: the prior is too wide beside "
            "what the rows say. Bring the prior's sd nearer to the scale of the posterior."
        )
    return end.x, end.residual


class _End(NamedTuple):
    """Where right-hand sides ended: x and ``c - A x``, J and the bound on its error; those that did not, and why."""

    x: Array
    residual: Array
    value: Array
    bound: Array
    active: Array
    reason: str


def _solved(system: PrecisionSystem, c: Array, target: Callable[[Array], Array]) -> _End:
    """Iterate until each right-hand side has its bound within a target for J, by a residual computed anew."""
    x, residual, value, bound = np.zeros_like(c), c.copy(), np.zeros(len(c)), np.full(len(c), np.inf)
    active, limit = np.arange(len(c)), min(ITERATIONS * c.shape[1] + 100, MOST_ITERATIONS)
    left, reason = limit, ""
    while len(active) and not reason:
        step, left = _conjugate_steps(system, residual[active], value[active], target, left)
        x[active] += step
        image, curvature = system.product(x[active])
        residual[active] = c[active] - image
        value[active] = 2 * np.sum(c[active] * x[active], axis=-1) - curvature[:, 0]
        last, bound[active] = bound[active], system.prior_variance(residual[active])
        open_ = bound[active] > target(value[active])
        if (open_ & (bound[active] > LEAST_GAIN * last)).any():
            reason = "before rounding set a limit"
        elif open_.any() and not left:
            reason = f"within {limit} iterations"
        active = active[open_]
    return _End(x, residual, value, bound, active, reason)


def _conjugate_steps(
    system: PrecisionSystem, residual: Array, value: Array, target: Callable[[Array], Array], left: int
) -> tuple[Array, int]:
    """Return what to add to x so that all bounds are within half of the target, and how many iterations are left.

    Half of it leaves room for what rounding adds between the residual carried along and a new one.
    """
    last: Last | None = None
    total = np.zeros_like(residual)
    while left and not (system.prior_variance(residual) <= 0.5 * target(value)).all():
        preconditioned = residual / system.diagonal
        squared = dot(residual, preconditioned)
        step = conjugate_step(residual, preconditioned, squared, last, system.product)
        last = step.direction, squared
        total, residual = total + step.length * step.direction, residual - step.length * step.image
        value, left = value + (step.length * squared)[:, 0], left - 1
    return total, left
