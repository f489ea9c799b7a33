"""The covariance of many latents under few rows, by a factor with a side for each row.

With ``P = diag(1 / sigma0^2)`` and ``R = diag(sqrt(kappa)) W P^(-1/2)`` the identity of Woodbury gives::

    Sigma = P^(-1/2) (I - R^T S^-1 R) P^(-1/2)        S = I + R R^T, n by n

No eigenvalue of S is below 1, so its Cholesky factor keeps all digits.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.posterior.covariance import FactoredCovariance
from forestmix.weights import SparseWeights, Weights, as_weights
from forestmix.weights.blocks import blocks_of
from forestmix.weights.gram import Root

#: A variance that is a smaller share of the prior's is computed as a sum of squares, where nothing cancels.
LEAST_SHARE = 1e-6


class RowFactoredCovariance(FactoredCovariance):
    """The inverse of ``A = diag(1 / scale^2) + W^T diag(kappa) W`` by a factor of S; ``scale`` must be finite."""

    def _made(self) -> Root:
        """Return a square root of S."""
        S = np.sqrt(self.kappa)[:, None] * self.prior_rows * np.sqrt(self.kappa) + np.eye(len(self.kappa))
        return Root(scipy.linalg.cholesky(S, lower=True, overwrite_a=True), np.ones(len(S)))

    @cached_property
    def prior_rows(self) -> Array:
        """The covariance of the rows' natural parameters under the prior, ``W P^-1 W^T``."""
        lower = np.tril(self.weights.row_gram(self.scale**2), -1)
        return lower + lower.T + np.diag(self.weights.square().forward(self.scale**2))

    def variance(self) -> Array:
        """Return ``sigma0_j^2 (1 - |L^-1 R_j|^2)`` with ``S = L L^T``, a block of rows of ``L^-1`` at a time."""
        if self._variance is None:
            inverse, share = self.root.whiten(np.eye(len(self.kappa))), np.ones(len(self.scale))
            for block in blocks_of(len(inverse), 32 * len(share)):
                share -= np.sum(self._columns(inverse[block]) ** 2, axis=0)
            small = np.flatnonzero(share < LEAST_SHARE)
            self._variance = self.scale**2 * share
            if len(small):
                chosen = scipy.sparse.eye_array(len(share), format="csr")[small]
                self._variance[small] = self.quadratic(SparseWeights(chosen))
        return self._variance

    def quadratic(self, C: Weights) -> Array:
        """Return ``|g|^2 + |a|^2`` with ``u = P^(-1/2) c``, ``a = S^-1 R u`` and ``g = u - R^T a``."""
        return self._own_rows() if C is self.weights else self._sums_of_squares(C)

    def _own_rows(self) -> Array:
        """Return ``w_i^T Sigma w_i`` as ``M_ii - |L^-1 diag(sqrt(kappa)) M_i|^2`` with ``M = W P^-1 W^T``."""
        M = self.prior_rows
        found = np.diag(M) - np.sum(self.root.whiten(np.sqrt(self.kappa)[:, None] * M) ** 2, axis=0)
        small = np.flatnonzero(found < LEAST_SHARE * np.diag(M))
        if len(small):
            found[small] = self._sums_of_squares(as_weights(self.weights.dense_rows(small)))
        return found

    def _sums_of_squares(self, C: Weights) -> Array:
        found = np.empty(C.shape[0])
        for block in blocks_of(len(found), 48 * C.shape[1]):
            u = C.dense_rows(block) * self.scale
            a, g = self._parts(u)
            found[block] = np.sum(g**2, axis=1) + np.sum(a**2, axis=1)
        return found

    def covariance(self, C: Weights) -> Array:
        """Return ``G G^T + A A^T`` with the g and a of all rows."""
        a, g = self._parts(C.dense_rows(np.arange(C.shape[0])) * self.scale)
        return g @ g.T + a @ a.T

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Return ``P^(-1/2) (z1 + R^T S^-1 (z2 - R z1))``: a draw from the prior, moved to the rows (Matheron)."""
        n, m = self.weights.shape
        drawn = np.empty((size, m))
        for block in blocks_of(size, 48 * m):
            z = rng.standard_normal((len(block), m))
            residual = rng.standard_normal((len(block), n)) - self._rows(z)
            drawn[block] = (z + self._columns(super().solve(residual))) * self.scale
        return drawn

    def solve(self, right: Array) -> Array:
        """Return ``P^(-1/2) g`` with ``u = P^(-1/2) r``."""
        return self._parts(right * self.scale)[1] * self.scale

    def log_determinant(self) -> float:
        """Return ``log det P^-1 - log det S``."""
        return 2 * float(np.sum(np.log(self.scale))) - self.root.log_determinant()

    def _parts(self, u: Array) -> tuple[Array, Array]:
        """Return ``a = S^-1 R u`` and ``g = u - R^T a`` of each row u."""
        a = super().solve(self._rows(u))
        return a, u - self._columns(a)

    def _rows(self, u: Array) -> Array:
        """Return ``R u``."""
        return self.weights.forward(u * self.scale) * np.sqrt(self.kappa)

    def _columns(self, a: Array) -> Array:
        """Return ``R^T a``."""
        return self.weights.adjoint(a * np.sqrt(self.kappa)) * self.scale
