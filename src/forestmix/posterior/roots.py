"""Square roots of a precision ``A = diag(1 / sigma0^2) + W^T diag(kappa) W`` of at most some thousand latents."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.weights import Weights
from forestmix.weights.blocks import blocks_of
from forestmix.weights.gram import OrthogonalFactor, orthogonal_factor, precision_matrix

#: A Cholesky factor is used where rounding leaves its variances a relative error of at most this; else a QR factor.
CHOLESKY_ERROR = 1e-8
#: Up to this many latents a Cholesky factor is inverted: a product with few columns wakes no threads of BLAS, a
#: triangular solve always does, and on a busy machine that takes thousands of times longer than the work.
INVERTED = 128


class CholeskyRoot:
    """``A = D L L^T D``; D makes the diagonal of ``L L^T`` one."""

    def __init__(self, L: Array, D: Array) -> None:
        self.L, self.D = L, D
        self.inverse = self._inverse() if len(D) <= INVERTED else None

    def whiten(self, right: Array) -> Array:
        """Return ``L^-1 D^-1 right``, (m, K)."""
        scaled = right / self.D[:, None]
        if self.inverse is not None:
            return self.inverse @ scaled
        return scipy.linalg.solve_triangular(self.L, scaled, lower=True, check_finite=False)

    def color(self, right: Array) -> Array:
        """Return ``D^-1 L^-T right``, (m, K)."""
        if self.inverse is not None:
            return (self.inverse.T @ right) / self.D[:, None]
        solved = scipy.linalg.solve_triangular(self.L, right, lower=True, trans=1, check_finite=False)
        return solved / self.D[:, None]

    def inverse_diagonal(self) -> Array:
        """Return the diagonal of ``A^-1`` from the inverse of L, a third of the work of m solves."""
        inverse = self._inverse() if self.inverse is None else self.inverse
        return np.einsum("ij,ij->j", inverse, inverse) / self.D**2

    def log_determinant(self) -> float:
        """Return ``log det A``."""
        return 2 * float(np.sum(np.log(np.diag(self.L))) + np.sum(np.log(self.D)))

    def _inverse(self) -> Array:
        return np.tril(scipy.linalg.lapack.dtrtri(self.L, lower=1)[0])


class OrthogonalRoot:
    """A root from a QR factor of the weighted rows over ``diag(1 / sigma0)``."""

    def __init__(self, factor: OrthogonalFactor) -> None:
        self.factor = factor

    def whiten(self, right: Array) -> Array:
        """Return ``R^-T right``, (m, K)."""
        return self.factor.solve_transposed(right)

    def color(self, right: Array) -> Array:
        """Return ``R^-1 right``, (m, K)."""
        found = np.empty_like(right)
        found[self.factor.order] = scipy.linalg.solve_triangular(self.factor.R, right, check_finite=False)
        return found / self.factor.scale[:, None]

    def inverse_diagonal(self) -> Array:
        """Return the diagonal of ``A^-1``."""
        m = len(self.factor.scale)
        parts = [np.sum(self.whiten(np.eye(m)[:, block]) ** 2, axis=0) for block in blocks_of(m, 64 * m)]
        return np.concatenate(parts)

    def log_determinant(self) -> float:
        """Return ``log det A``."""
        return 2 * float(np.sum(np.log(np.abs(np.diag(self.factor.R)))) + np.sum(np.log(self.factor.scale)))


#: A matrix R with ``A = R^T R``, whatever its form.
Root = CholeskyRoot | OrthogonalRoot


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
        return CholeskyRoot(L, D)
    return _checked_orthogonal(weights, kappa, scale, tol)


def _checked_orthogonal(W: Any, kappa: Array, scale: Array, tol: float) -> OrthogonalRoot:
    """Return a QR root, or raise where rounding leaves standard deviations a relative error of more than ``tol``.

    That is seen by a second factor, of rows whose last digit has been changed at random.
    """
    shaken = kappa * (1 + np.finfo(np.float64).eps * np.random.default_rng(0).choice([-4, 4], kappa.shape))
    root, other = (OrthogonalRoot(orthogonal_factor(W, rows, scale)) for rows in (kappa, shaken))
    variance = root.inverse_diagonal()
    worst = float(np.max(np.abs(other.inverse_diagonal() - variance) / variance))
    if worst > 2 * tol:
        raise ForestmixError(
            f"Rounding leaves a relative error of about {worst:.1e} in these variances, more than 2 tol={2 * tol:g}. "
            "Raise tol, or bring the prior's sd nearer to the scale of the posterior."
        )
    return root
