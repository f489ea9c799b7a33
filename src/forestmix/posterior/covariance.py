"""Covariances of a Gaussian posterior behind one interface: the diagonal of q, or a factor of the precision.

``iterative.py`` has the one for more latents than a factor can hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.weights import Weights
from forestmix.weights.blocks import blocks_of
from forestmix.weights.gram import Root, orthogonal_factor, precision_matrix

#: A Cholesky factor is used where rounding leaves its variances a relative error of at most this; else a QR factor.
CHOLESKY_ERROR = 1e-8


class Covariance(ABC):
    """The covariance ``Sigma`` of m latents. ``C`` are weights whose rows are vectors c, (K, m)."""

    #: What of the rows went into it: ``Sigma^-1 = diag(1 / sigma0^2) + W^T diag(kappa) W``; ``None`` for q's diagonal.
    kappa: Any = None
    #: ``1 / sigma0^2`` in it, where each component of a mixture over scales has its own.
    prior_precision: Any = None

    @abstractmethod
    def variance(self) -> Array:
        """Return the variance of each latent, (m,)."""

    def sd_error(self) -> Array | None:
        """Return the standard error of each standard deviation, (m,); ``None`` where they are exact."""
        return None

    @abstractmethod
    def quadratic(self, C: Weights) -> Array:
        """Return ``c^T Sigma c`` for each row c, (K,)."""

    @abstractmethod
    def covariance(self, C: Weights) -> Array:
        """Return ``C Sigma C^T``, (K, K)."""

    @abstractmethod
    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Return draws from ``N(0, Sigma)``, (size, m)."""

    @abstractmethod
    def solve(self, right: Array) -> Array:
        """Return ``Sigma r`` for each vector r of (K, m)."""

    def log_determinant(self) -> float | None:
        """Return ``log det Sigma``, or ``None`` where it is not known."""
        return None

    def squared_distance(self, y: Array) -> Array | None:
        """Return ``y^T Sigma^-1 y`` of each row of (K, m) where that is known without the rows of the model."""
        return None

    def left_out(self) -> float:
        """Return what the ELBO leaves out of the log evidence, where it is known."""
        return 0.0

    def unwidened(self) -> Covariance:
        """Return the covariance that ``kappa`` and the prior give, that of q."""
        return self

    def detached(self) -> Covariance:
        """Return the same without W, where its factor is all that is needed; itself where it is not."""
        return self


class DiagonalCovariance(Covariance):
    """Independent latents, as under the factorised q."""

    def __init__(self, variance: Array) -> None:
        self._variance = np.asarray(variance, np.float64)

    def variance(self) -> Array:
        """Return the variance of each latent."""
        return self._variance

    def quadratic(self, C: Weights) -> Array:
        """Return ``sum_j c_j^2 sigma_j^2``."""
        return C.square().forward(self._variance)

    def covariance(self, C: Weights) -> Array:
        """Return ``C diag(sigma^2) C^T``."""
        scaled = C.toarray() * np.sqrt(self._variance)
        return scaled @ scaled.T

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Return ``sigma_j z_j``."""
        return np.sqrt(self._variance) * rng.standard_normal((size, len(self._variance)))

    def solve(self, right: Array) -> Array:
        """Return ``sigma^2 r``."""
        return self._variance * right

    def log_determinant(self) -> float:
        """Return ``sum_j log sigma_j^2``."""
        return float(np.sum(np.log(self._variance)))


class FactoredCovariance(Covariance):
    """The inverse of ``A = diag(1 / scale^2) + W^T diag(kappa) W``, by a factor of A.

    A Cholesky factor, or where its pivots have lost too many digits a QR factor of the weighted rows, which never
    forms A.

    Args:
        weights: W, (n, m), in float64.
        kappa: the curvature of each row, (n,).
        scale: the prior's standard deviation of each latent, (m,); infinite where rows hold the prior.
        tol: relative error of a standard deviation by rounding at most, else an error is raised.
        keep: hold on to the factor; if not it is made anew at each call, for batches that would not fit.

    """

    def __init__(self, weights: Weights, kappa: Array, scale: Array, tol: float = 0.01, *, keep: bool = True) -> None:
        self.weights, self.kappa, self.scale, self.tol, self.keep = weights, kappa, scale, tol, keep
        self._root: Root | None = None
        self._variance: Array | None = None

    @property
    def root(self) -> Root:
        """A square root of A, made at its first use."""
        root = self._made() if self._root is None else self._root
        self._root = root if self.keep else None
        return root

    def _made(self) -> Root:
        return factor_root(self.weights, self.kappa, self.scale, self.tol)

    def variance(self) -> Array:
        """Return the diagonal of ``A^-1``."""
        if self._variance is None:
            self._variance = self.root.inverse_diagonal()
        return self._variance

    def quadratic(self, C: Weights) -> Array:
        """Return ``|R^-T c|^2`` with ``A = R^T R``, in blocks of rows."""
        return np.concatenate(C.over_rows(_squared_lengths, shared=(self.root,)))

    def covariance(self, C: Weights) -> Array:
        """Return ``(R^-T C^T)^T (R^-T C^T)``."""
        whitened = self.root.whiten(C.dense_rows(np.arange(C.shape[0])).T)
        return whitened.T @ whitened

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Return ``R^-1 z``."""
        return self.root.color(rng.standard_normal((size, len(self.scale))).T).T

    def solve(self, right: Array) -> Array:
        """Return ``A^-1 r``."""
        root = self.root
        return root.color(root.whiten(right.T)).T

    def log_determinant(self) -> float:
        """Return ``-log det A``."""
        return -self.root.log_determinant()


def _squared_lengths(C: Weights, root: Root) -> Array:
    """Return ``|R^-T c|^2`` of all rows c, some at a time."""
    found = np.empty(C.shape[0])
    for block in blocks_of(len(found), 32 * C.shape[1]):
        found[block] = np.sum(root.whiten(C.dense_rows(block).T) ** 2, axis=0)
    return found


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


def _checked_orthogonal(W: Weights, kappa: Array, scale: Array, tol: float) -> Root:
    """Return a QR root, or raise where rounding leaves standard deviations a relative error of more than ``tol``.

    That is seen by a second factor, of rows whose last digit has been changed at random.
    """
    shaken = kappa * (1 + np.finfo(np.float64).eps * np.random.default_rng(0).choice([-4, 4], kappa.shape))
    root, other = (orthogonal_factor(W, rows, scale) for rows in (kappa, shaken))
    variance = root.inverse_diagonal()
    worst = float(np.max(np.abs(other.inverse_diagonal() - variance) / variance))
    if worst > 2 * tol:
        raise ForestmixError(
            f"Rounding leaves a relative error of about {worst:.1e} in these variances, more than 2 tol={2 * tol:g}. "
            "Raise tol, or bring the prior's sd nearer to the scale of the posterior."
        )
    return root


class CovarianceBatch:
    """The covariance of each of N observations, where many may share one: the same methods, with a leading axis (N,).

    Args:
        distinct: the covariances that there are.
        which: for each observation the place of its own among them, (N,).

    """

    def __init__(self, distinct: Sequence[Covariance], which: Any) -> None:
        self.distinct, self.which = tuple(distinct), np.asarray(which)

    def __len__(self) -> int:
        return len(self.which)

    def detached(self) -> CovarianceBatch:
        """Return the same without W, where a factor is all that is needed, to be sent elsewhere."""
        return CovarianceBatch([one.detached() for one in self.distinct], self.which)

    def take(self, keep: Array) -> CovarianceBatch:
        """Return those of the chosen observations."""
        return CovarianceBatch(self.distinct, self.which[keep])

    def unwidened(self) -> CovarianceBatch:
        """Return those that ``kappa`` and the prior give."""
        return CovarianceBatch([one.unwidened() for one in self.distinct], self.which)

    def left_out(self) -> Array:
        """Return what the ELBO of each observation leaves out of its log evidence, (N,)."""
        return self._each(lambda one: one.left_out())

    def variance(self) -> Array:
        """Return the variances of the latents, (N, m)."""
        return self._each(lambda one: one.variance())

    def sd_error(self) -> Array | None:
        """Return the standard errors of the standard deviations, (N, m), or ``None`` where they are exact."""
        return self._each(lambda one: one.sd_error())

    def quadratic(self, C: Weights) -> Array:
        """Return ``c^T Sigma c``, (N, K)."""
        return self._each(lambda one: one.quadratic(C))

    def covariance(self, C: Weights) -> Array:
        """Return ``C Sigma C^T``, (N, K, K)."""
        return self._each(lambda one: one.covariance(C))

    def kappa(self) -> Array | None:
        """Return the curvatures that went into them, (N, n); ``None`` where there are none."""
        return self._each(lambda one: one.kappa)

    def log_determinant(self) -> Array | None:
        """Return ``log det Sigma``, (N,), or ``None`` where it is not known."""
        return self._each(lambda one: one.log_determinant())

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Return zero-mean draws, (size, N, m)."""
        groups = [(self.distinct[k], np.flatnonzero(self.which == k)) for k in np.unique(self.which)]
        drawn = [one.sample(size * len(places), rng).reshape(size, len(places), -1) for one, places in groups]
        order = np.argsort(np.concatenate([places for _, places in groups]))
        return drawn[0] if len(drawn) == 1 else np.concatenate(drawn, axis=1)[:, order]

    def solve(self, right: Array) -> Array:
        """Return ``Sigma r`` with each observation's own r, (N, m)."""
        found = np.empty_like(right)
        for k in np.unique(self.which):
            places = np.flatnonzero(self.which == k)
            found[places] = self.distinct[k].solve(right[places])
        return found

    def _each(self, value: Callable[[Covariance], Any]) -> Any:
        """Return a value of each observation, computed once where it is shared; ``None`` where there is none."""
        used, position = np.unique(self.which, return_inverse=True)
        found = [value(self.distinct[k]) for k in used]
        return None if found[0] is None else np.stack(found)[position]
