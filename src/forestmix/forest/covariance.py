"""The covariance that a forest with Gaussian leaves implies: a matrix of low rank plus a diagonal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array, finite, numbers
from forestmix.errors import ArgumentError


@dataclass(frozen=True)
class LowRankPlusDiagonal:
    """The symmetric positive definite matrix ``factors @ factors.T + diag(diagonal)``, never formed unless asked for.

    ``factors`` is (n, m), dense or ``scipy.sparse``; ``diagonal`` is (n,) and positive.
    """

    factors: Any
    diagonal: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix, (n, n)."""
        return self.diagonal.size, self.diagonal.size

    def logdet(self) -> float:
        """Return the logarithm of the determinant: ``sum log d + log det(I + F^T D^-1 F)``, in O(n m^2)."""
        return float(np.sum(np.log(self.diagonal)) + 2 * np.sum(np.log(np.diag(self._cholesky()))))

    def solve(self, v: npt.ArrayLike) -> Array:
        """Return the inverse times v, (n,) or (n, k), by Woodbury's identity."""
        right = self._fits(v)
        scaled = (right.T / self.diagonal).T
        inner = scipy.linalg.cho_solve((self._cholesky(), True), self.factors.T @ scaled)
        return np.asarray(scaled - ((self.factors @ inner).T / self.diagonal).T)

    def __matmul__(self, v: npt.ArrayLike) -> Array:
        right = self._fits(v)
        return np.asarray(self.factors @ (self.factors.T @ right) + (right.T * self.diagonal).T)

    def toarray(self) -> Array:
        """Return the matrix as an n x n array."""
        return dense(self.factors @ self.factors.T) + np.diag(self.diagonal)

    def _cholesky(self) -> Array:
        """Return the lower factor of ``I + F^T D^-1 F``, m x m."""
        scaled = scipy.sparse.diags_array(1 / np.sqrt(self.diagonal)) @ self.factors
        inner = dense(scaled.T @ scaled)
        return np.asarray(scipy.linalg.cholesky(inner + np.eye(inner.shape[0]), lower=True))

    def _fits(self, v: npt.ArrayLike) -> Array:
        array = finite("v", numbers("v", v))
        if array.ndim not in (1, 2) or array.shape[0] != self.diagonal.size:
            n = self.diagonal.size
            raise ArgumentError(f"v must have shape ({n},) or ({n}, k) for this matrix; got {array.shape}.")
        return array


def dense(matrix: Any) -> Array:
    """Return a matrix, sparse or not, as an array."""
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix)
