"""Solving for the means at once, where a factor of their precision matrix costs less than the steps it saves.

For rows of constant curvature the means solve ``A mu = c`` with ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``.
Conjugate gradients take as many passes as the problem is hard, which nobody knows beforehand; a Cholesky factor has a
price that is known. So conjugate gradients go first, and once they have spent that price the factor is made: whatever
the problem, this takes at most twice the time of the better of the two (the argument of renting skis until they could
have been bought). Where the price is below a few passes, nothing is rented.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.gram import precision_matrix
from forestmix.inference.problem import Point, Problem
from forestmix.weights import DenseWeights

#: Latents at most: a factor then takes 200 MB.
LARGEST = 5000
#: Multiplications of matrix products that take as long as one entry of W in a pass, which waits for memory.
PER_ENTRY = 30
#: Entries of W that could be read in the time which a step takes besides its pass.
STEP_ENTRIES = 2_000_000


def has_factor(point: Point) -> bool:
    """Return whether one matrix serves all observations: not where each misses entries of its own."""
    return len(point.site.kappa) == 1


def price(problem: Problem, point: Point) -> float:
    """Return after how many conjugate gradient steps a factor would have cost less; infinite where it is too large."""
    (n, m), weights = problem.site.layer.weights.shape, problem.site.layer.weights
    if m > LARGEST:
        return np.inf
    if isinstance(weights, DenseWeights):
        entries, products = n * m, n * m * m / PER_ENTRY
    else:
        entries = weights.nnz
        # Products of sparse rows go entry by entry; full rows would make them those of a dense matrix.
        products = min(entries**2 / n + m * m, n * m * m / PER_ENTRY)
    step = entries * max(1.0, 4 * len(point.objective) / PER_ENTRY) + STEP_ENTRIES
    return (products + m**3 / (3 * PER_ENTRY)) / step


def factor(problem: Problem, point: Point) -> Any:
    """Return a Cholesky factor of the precision matrix, or ``None`` where rounding leaves it with a negative pivot."""
    kappa, precision = point.site.kappa[0].astype(np.float64), problem.prior_precision.astype(np.float64)
    matrix = precision_matrix(problem.site.layer.weights, kappa, precision)
    try:
        return scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None


def solve(made: Any, gradient: Array) -> Array:
    """Return ``A^-1 gradient`` of each observation; repeated steps refine the means to rounding."""
    step = scipy.linalg.cho_solve(made, gradient.T.astype(np.float64), check_finite=False).T
    return np.ascontiguousarray(step, gradient.dtype)
