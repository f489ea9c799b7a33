"""Solving for the means at once, where a factor of their precision matrix costs less than the steps it saves.

For rows of constant curvature the means solve ``A mu = c`` with ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``.
Conjugate gradients take as many passes as the problem is hard, which nobody knows beforehand; a Cholesky factor has a
price that is known. So conjugate gradients go first, and once they have spent that price the factor is made: whatever
the problem, this takes at most twice the time of the better of the two (the argument of renting skis until they could
have been bought). Where the price is below a few passes, nothing is rented.

The factor is of A, or, where there are fewer rows than latents, of a matrix of the rows (``gram.row_matrix``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.problem.interfaces.gaussian_latents import GaussianLatents
from forestmix.problem.newton_system import affordable, newton_step
from forestmix.weights import Weights
from forestmix.weights.gram import precision_matrix, row_matrix

#: Latents at most, or rows: a factor then takes 200 MB.
LARGEST = 5000
#: A factor that costs less than this many steps is made at once: few problems are solved in as many.
LEAST_PATIENCE = 20
#: Multiplications of matrix products that take as long as one entry of W in a pass, which waits for memory.
PER_ENTRY = 30
#: Entries of W that could be read in the time which a step takes besides its pass.
STEP_ENTRIES = 2_000_000
#: The largest part of a solution that may be lost to rounding, cautiously: the next step finds that part again.
MOST_LOST = 1e-4
#: The same for a factor of A, which is a square.
MOST_LOST_SQUARED = MOST_LOST**2


#: Gives ``A^-1 gradient`` of each observation, (N, m), at a point; repeated steps refine the means to rounding.
Factor = Callable[[GaussianLatents, Any], Array]


def factor_of_latents(weights: Weights, kappa: Array, precision: Array) -> Factor:
    """Return the solution by a Cholesky factor of A."""
    solve = _cholesky(precision_matrix(weights, kappa, precision))
    return lambda _, at: solve(at.gradient)


def factor_of_rows(weights: Weights, kappa: Array, precision: Array) -> Factor:
    """Return the solution by a Cholesky factor of the matrix of the rows, S, see ``gram.row_matrix``."""
    root, inverse = np.sqrt(kappa), 1 / precision
    solve = _cholesky(row_matrix(weights, kappa, precision))

    def step(_: GaussianLatents, at: Any) -> Array:
        """Return ``P^-1 (gradient - W^T K^(1/2) S^-1 K^(1/2) W P^-1 gradient)``."""
        dtype, gradient = weights.dtype, at.gradient
        image = root * weights.forward((gradient * inverse).astype(dtype))
        back = weights.adjoint((root * solve(image)).astype(dtype))
        return np.ascontiguousarray(inverse * (gradient - back), gradient.dtype)

    return step


def orthogonal_step(rows: GaussianLatents, at: Any) -> Array:
    """Return the solution by QR of the weighted rows, made anew, which takes their errors and not the sum of these."""
    if at.carried:  # whose rows are those of another point
        _, at = rows.look(at.q, at)
    return newton_step(rows, at).mean.astype(at.gradient.dtype)


def needs_orthogonal(rows: GaussianLatents, at: Any, diagonal: Array) -> bool:
    """Return whether Cholesky's factor would lose too much or would not serve all, and QR is affordable."""
    unit = float(np.finfo(np.float64).eps)  # in which factors are made, whatever the weights' precision
    lossy = bool(np.any(unit * diagonal > MOST_LOST_SQUARED * rows.prior.precision))
    return (lossy or _differ(at)) and affordable(rows)


def _differ(at: Any) -> bool:
    """Return whether observations miss entries of their own, so that no one matrix serves them all."""
    return len(at.kappa) > 1


def fewer_rows(rows: GaussianLatents, diagonal: Array) -> bool:
    """Return whether a factor of the rows is smaller, and loses little to rounding.

    Its solution is a difference, in which as many digits cancel as A is larger than the prior's precision.
    ``diagonal`` is that of A, (1, m).
    """
    weights = rows.weights
    (n, m), unit = weights.shape, float(np.finfo(weights.dtype).eps)
    return n < m and bool(np.all(unit * diagonal <= MOST_LOST * rows.prior.precision))


def patience(rows: GaussianLatents, at: Any, diagonal: Array, method: str) -> float:
    """Return after how many conjugate gradient steps a factor takes over; ``method`` is that of ``ConjugateSteps``."""
    if method == "cg" or not rows.on_host:
        return np.inf
    if needs_orthogonal(rows, at, diagonal):
        return 0.0
    if _differ(at):
        return np.inf
    steps = price(rows, at, diagonal)
    return steps if method == "auto" and steps >= LEAST_PATIENCE else 0.0


def price(rows: GaussianLatents, at: Any, diagonal: Array) -> float:
    """Return after how many conjugate gradient steps a factor would have cost less; infinite where it is too large."""
    weights = rows.weights
    size, others = weights.shape if fewer_rows(rows, diagonal) else weights.shape[::-1]
    if size > LARGEST:
        return np.inf
    entries = weights.stored
    # Products of sparse rows go entry by entry; full rows make them those of a dense matrix.
    products = min(entries**2 / others + size * size, size * size * others / PER_ENTRY)
    step = entries * max(1.0, 4 * rows.n_observations / PER_ENTRY) + STEP_ENTRIES
    return (products + size**3 / (3 * PER_ENTRY)) / step


def factor(rows: GaussianLatents, at: Any, diagonal: Array) -> Factor | None:
    """Return the smaller factor, or ``None`` where rounding leaves it with a negative pivot."""
    if needs_orthogonal(rows, at, diagonal):
        return orthogonal_step
    kappa, precision = at.kappa[0].astype(np.float64), rows.prior.precision.astype(np.float64)
    make = factor_of_rows if fewer_rows(rows, diagonal) else factor_of_latents
    try:
        return make(rows.weights, kappa, precision)
    except scipy.linalg.LinAlgError:
        return None


def _cholesky(matrix: Array) -> Callable[[Array], Array]:
    """Return what solves for each row of a right-hand side; raises where rounding leaves a negative pivot."""
    made = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

    def solve(right: Array) -> Array:
        solved = scipy.linalg.cho_solve(made, right.T.astype(np.float64), check_finite=False).T
        return np.ascontiguousarray(solved, right.dtype)

    return solve
