"""Square roots of a precision ``A = diag(1 / sigma0^2) + W^T diag(kappa) W`` of at most some thousand latents."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.weights import Weights
from forestmix.weights.gram import orthogonal_factor, precision_matrix

#: A Cholesky factor is used where rounding leaves its variances a relative error of at most this; else a QR factor.
CHOLESKY_ERROR = 1e-8
#: Up to this many latents a Cholesky factor is inverted: a product with few columns wakes no threads of BLAS, a
#: triangular solve always does, and on a busy machine that takes thousands of times longer than the work.
INVERTED = 128


class Root:
    """``A = D P^T L L^T P D`` with L lower triangular, D the ``scale`` of the latents and P their ``order``.

    Only a factor with pivots has an order. It is there for digits that products with its inverse would lose.
    """

    def __init__(self, L: Array, scale: Array, order: Array | None = None) -> None:
        self.L, self.scale, self.order = L, scale, slice(None) if order is None else order
        self.inverse = self._inverse() if len(scale) <= INVERTED and order is None else None

    def whiten(self, right: Array) -> Array:
        """Return ``L^-1 P D^-1 right``, (m, K)."""
        scaled = (right / self.scale[:, None])[self.order]
        if self.inverse is not None:
            return self.inverse @ scaled
        return scipy.linalg.solve_triangular(self.L, scaled, lower=True, check_finite=False)

    def color(self, right: Array) -> Array:
        """Return ``D^-1 P^T L^-T right``, (m, K)."""
        found = np.empty_like(right)
        if self.inverse is not None:
            found[self.order] = self.inverse.T @ right
        else:
            found[self.order] = scipy.linalg.solve_triangular(self.L, right, lower=True, trans=1, check_finite=False)
        return found / self.scale[:, None]

    def inverse_diagonal(self) -> Array:
        """Return the diagonal of ``A^-1`` from the inverse of L, a third of the work of m solves."""
        inverse, found = self._inverse() if self.inverse is None else self.inverse, np.empty(len(self.scale))
        found[self.order] = np.einsum("ij,ij->j", inverse, inverse)
        return found / self.scale**2

    def log_determinant(self) -> float:
        """Return ``log det A``."""
        return 2 * float(np.sum(np.log(np.abs(np.diag(self.L)))) + np.sum(np.log(self.scale)))

    def _inverse(self) -> Array:
        return np.tril(scipy.linalg.lapack.dtrtri(self.L, lower=1)[0])


def factor_root(weights: Weights, kappa: Array, scale: Array, tol: float) -> Root:
    """Return a Cholesky root where it keeps its digits, else one that never forms A."""
    A = precision_matrix(weights, kappa, scale**-2.0)
    D = np.sqrt(np.diag(A))
    A /= D
    A /= D[:, None]
    try:
        L = scipy.linalg.cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        # A pivot is what is left after subtractions from 1, so it has lost that much of the digits.
        lost = float(len(D) * np.finfo(np.float64).eps / np.min(np.diag(L)) ** 2)
    except scipy.linalg.LinAlgError:
        lost = np.inf
    if lost <= CHOLESKY_ERROR:
        return Root(L, D)
    return _checked_orthogonal(weights, kappa, scale, tol)


def _checked_orthogonal(W: Any, kappa: Array, scale: Array, tol: float) -> Root:
    """Return a QR root, or raise where rounding leaves standard deviations a relative error of more than ``tol``.

    That is seen by a second factor, of rows whose last digit has been changed at random.
    """
    shaken = kappa * (1 + np.finfo(np.float64).eps * np.random.default_rng(0).choice([-4, 4], kappa.shape))
    factors = (orthogonal_factor(W, rows, scale) for rows in (kappa, shaken))
    root, other = (Root(one.R.T, one.scale, one.order) for one in factors)
    variance = root.inverse_diagonal()
    worst = float(np.max(np.abs(other.inverse_diagonal() - variance) / variance))
    if worst > 2 * tol:
        raise ForestmixError(
            f"Rounding leaves a relative error of about {worst:.1e} in these variances, more than 2 tol={2 * tol:g}. "
            "Raise tol, or bring the prior's sd nearer to the scale of the posterior."
        )
    return root
