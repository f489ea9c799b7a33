"""Factors of the precision matrix of the means, ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``, if it is small enough.

Or, if W has fewer rows than columns, of the smaller matrix that serves as well.
"""

from __future__ import annotations

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.weights.base import Weights

#: Up to this many latents a Cholesky factor is inverted: a product with few columns wakes no threads of BLAS, a
#: triangular solve always does, and on a busy machine that takes thousands of times longer than the work.
INVERTED = 128


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


class Root:
    """``A = D P^T L L^T P D`` with L lower triangular, D the ``scale`` of the latents and P their ``order``.

    Only a factor with pivots has an order. It is there for digits that products with its inverse would lose.
    """

    def __init__(self, L: Array, scale: Array, order: Array | None = None) -> None:
        self.L, self.scale, self.order = L, scale, slice(None) if order is None else order
        self._inverted = self._inverse() if len(scale) <= INVERTED and order is None else None

    def whiten(self, right: Array) -> Array:
        """Return ``L^-1 P D^-1 right``, (m,) or (m, K)."""
        scaled = (right.T / self.scale).T[self.order]
        if self._inverted is not None:
            return self._inverted @ scaled
        return scipy.linalg.solve_triangular(self.L, scaled, lower=True, check_finite=False)

    def color(self, right: Array) -> Array:
        """Return ``D^-1 P^T L^-T right``, (m,) or (m, K)."""
        found = np.empty_like(right)
        if self._inverted is not None:
            found[self.order] = self._inverted.T @ right
        else:
            found[self.order] = scipy.linalg.solve_triangular(self.L, right, lower=True, trans=1, check_finite=False)
        return (found.T / self.scale).T

    def inverse_diagonal(self) -> Array:
        """Return the diagonal of ``A^-1`` from the inverse of L, a third of the work of m solves."""
        inverse, found = self._inverse() if self._inverted is None else self._inverted, np.empty(len(self.scale))
        found[self.order] = np.einsum("ij,ij->j", inverse, inverse)
        return found / self.scale**2

    def log_determinant(self) -> float:
        """Return ``log det A``."""
        return 2 * float(np.sum(np.log(np.abs(np.diag(self.L)))) + np.sum(np.log(self.scale)))

    def _inverse(self) -> Array:
        return np.tril(scipy.linalg.lapack.dtrtri(self.L, lower=1)[0])


class OrthogonalFactor(Root):
    """``M = Q R`` and the root of ``M^T M`` it gives: the columns of M are scaled to length 1 and pivoted.

    Its largest rows come first. So ``M^T M`` is never formed, which would square the condition number, and rows keep
    their digits however differently they are scaled (Cox and Higham, *Stability of Householder QR factorization for
    weighted least squares problems*, 1998): a prior that is wider by twelve orders than what the rows say is not lost
    beside them.
    """

    def __init__(self, M: Array) -> None:
        scale = np.linalg.norm(M, axis=0)
        scale[scale == 0] = 1.0
        scaled = M / scale
        largest_first = np.argsort(-np.max(np.abs(scaled), axis=1), kind="stable")
        Q, R, order = scipy.linalg.qr(scaled[largest_first], mode="economic", pivoting=True, check_finite=False)
        self.Q = np.empty_like(Q)
        self.Q[largest_first] = Q
        # A direction that rounding has left without any curvature is left alone.
        lost = np.abs(np.diag(R)) <= np.finfo(np.float64).tiny
        R[np.diag_indices(len(R))] += lost
        super().__init__(R.T, scale, order)


def orthogonal_factor(weights: Weights, kappa: Array, scale: Array) -> OrthogonalFactor:
    """Return the factor of the weighted rows of W over ``diag(1 / sigma0)``.

    Many rows are first put together in parts, without the prior's: those are what a wide prior must not lose.
    """
    blocks = list(weights.weighted_rows(kappa))
    R = blocks[0]
    for part in blocks[1:]:
        R = scipy.linalg.qr(np.vstack([R, part]), mode="r", overwrite_a=True, check_finite=False)[0][: len(scale)]
    return OrthogonalFactor(np.vstack([R, np.diag(1 / scale)]))
