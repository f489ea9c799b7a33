"""Factors of the precision matrix of the means, ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``, if it is small enough.

Or, if W has fewer rows than columns, of the smaller matrix that serves as well.
"""

from __future__ import annotations

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.weights.base import Weights


def precision_matrix(weights: Weights, kappa: Array, precision: Array) -> Array:
    """Return the lower triangle of ``A = diag(precision) + W^T diag(kappa) W``, in Fortran order and float64.

    What is above the diagonal has no meaning: LAPACK reads one triangle, and half the products make it.
    """
    A = weights.gram(kappa)
    A[np.diag_indices(len(A))] += precision
    return A


def row_matrix(weights: Weights, kappa: Array, precision: Array) -> Array:
    """Return the lower triangle of ``S = I + R R^T`` with ``R = diag(sqrt(kappa)) W diag(precision)^(-1/2)``, likewise.

    By the identity of Woodbury ``A^-1 = P^-1 - P^-1 W^T K^(1/2) S^-1 K^(1/2) W P^-1``, with P = diag(precision) and
    K = diag(kappa). No eigenvalue of S is below 1, whatever kappa is, and rows of ``kappa = 0`` take no part.
    """
    S, root = weights.row_gram(1 / precision), np.sqrt(kappa)
    S *= root
    S *= root[:, None]
    S[np.diag_indices(len(S))] += 1
    return S


class OrthogonalFactor:
    """``M = Q R``, the columns of M scaled to length 1 and pivoted, and its largest rows first.

    So ``M^T M`` is never formed, which would square the condition number, and rows keep their digits however
    differently they are scaled (Cox and Higham, *Stability of Householder QR factorization for weighted least squares
    problems*, 1998): a prior that is wider by twelve orders than what the rows say is not lost beside them.
    """

    def __init__(self, M: Array) -> None:
        self.scale = np.linalg.norm(M, axis=0)
        self.scale[self.scale == 0] = 1.0
        scaled = M / self.scale
        largest_first = np.argsort(-np.max(np.abs(scaled), axis=1), kind="stable")
        Q, self.R, self.order = scipy.linalg.qr(
            scaled[largest_first], mode="economic", pivoting=True, check_finite=False
        )
        self.Q = np.empty_like(Q)
        self.Q[largest_first] = Q
        # A direction that rounding has left without any curvature is left alone.
        lost = np.abs(np.diag(self.R)) <= np.finfo(np.float64).tiny
        self.R[np.diag_indices(len(self.R))] += lost

    def solve(self, right: Array) -> Array:
        """Return ``R^-1 right`` in the order and scale of the columns of M."""
        found = np.empty_like(right)
        found[self.order] = scipy.linalg.solve_triangular(self.R, right, check_finite=False)
        return found / self.scale

    def solve_transposed(self, right: Array) -> Array:
        """Return ``R^-T right``, with ``right`` in that order and scale, (m,) or (m, K)."""
        ordered = (right.T / self.scale).T[self.order]
        return scipy.linalg.solve_triangular(self.R, ordered, trans=1, check_finite=False)


def orthogonal_factor(weights: Weights, kappa: Array, scale: Array) -> OrthogonalFactor:
    """Return the factor of the weighted rows of W over ``diag(1 / sigma0)``.

    Many rows are first put together in parts, without the prior's: those are what a wide prior must not lose.
    """
    blocks = list(weights.weighted_rows(kappa))
    R = blocks[0]
    for part in blocks[1:]:
        R = scipy.linalg.qr(np.vstack([R, part]), mode="r", overwrite_a=True, check_finite=False)[0][: len(scale)]
    return OrthogonalFactor(np.vstack([R, np.diag(1 / scale)]))
