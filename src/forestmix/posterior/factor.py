"""A covariance ``Sigma = (diag(precision) + W^T diag(kappa) W)^-1`` held as a factor, with one-hot columns eliminated.

Columns of W that share no row, such as the levels of a random intercept, make a diagonal block. With them first::

    A = [ D    B ]     S = C - B^T D^-1 B     U = D^-1 B     Sigma = [ D^-1 + U S^-1 U^T   -U S^-1 ]
        [ B^T  C ]                                                   [ -S^-1 U^T            S^-1   ]

so only S, of the p other columns, is dense. A vector ``c = (c_1, c_2)`` has ``c^T Sigma c = c_1^T D^-1 c_1 +
|L^-1 t|^2`` with ``t = c_2 - U^T c_1`` and ``S = L L^T``: for the n rows of W that takes O(n p^2), whatever the number
of levels.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array, generator
from forestmix.errors import ForestmixError
from forestmix.posterior.columns import (
    DENSE_FROM,
    Columns,
    Split,
    dense,
    is_sparse,
    over_chunks,
    scaled,
    stored,
)  # fmt: skip
from forestmix.posterior.covariance import Covariance
from forestmix.weights.blocks import blocks_of
from forestmix.weights.convert import functionals

if TYPE_CHECKING:
    from forestmix.posterior.remainder import Remainder


class RowCoordinates(NamedTuple):
    """The rows in independent standard coordinates z of the latents: ``w_i . y = block_i z_column(i) + rest_i . z_2``.

    ``block`` (n,): 0 with ``column`` -1 for a row with none of the ``groups`` columns of the block; ``rest`` (p, n).
    """

    column: Array
    block: Array
    groups: int
    rest: Array


@dataclass(frozen=True)
class _Parts:
    """D, (|block|,); U, (|block|, p), dense or sparse; and L, (p, p), of the formulas above."""

    diagonal: Array
    U: Any
    L: Array

    @cached_property
    def inverse(self) -> Array:
        """``L^-1``."""
        return self.half(np.eye(len(self.L)))

    def half(self, t: Array) -> Array:
        """Return ``L^-1 t`` for each row t of (K, p), as columns (p, K)."""
        # Of LAPACK's solve_triangular the threads cost more than a small system, by far on a busy machine.
        return scipy.linalg.blas.dtrsm(1.0, self.L, t.T, lower=1)

    def squared_norms(self, t: Any) -> Array:
        """Return ``|L^-1 t|^2`` for each row t, some rows at a time where they are many; sparse ones stay so."""
        values = np.empty(t.shape[0])
        for block in blocks_of(len(values), 8 * max(1, t.shape[1])):
            part = slice(block[0], block[-1] + 1)
            own = t[part]
            half = self.inverse @ own.T if is_sparse(t) else self.half(own)
            values[part] = np.einsum("pk,pk->k", half, half)
        return values


class BlockFactor(Covariance):
    """The covariance ``Sigma`` of the formulas above; its inverse is A. Vectors are (m,), or rows of (K, m).

    Args:
        columns: the columns of W.
        kappa: weight of each row, (n,), not negative; kept as an attribute.
        precision: what is added to the diagonal, (m,): one over the prior's variances.
        parts: the factor, where it is known; neither W nor kappa is needed then.

    """

    def __init__(self, columns: Columns, kappa: Array, precision: Array, parts: _Parts | None = None) -> None:
        self.columns, self.kappa, self.prior_precision = columns, kappa, precision
        self._wider: Remainder | None = None
        self._held: _Parts | None = self._factored() if parts is None else parts

    @property
    def size(self) -> int:
        """Number of latents, m."""
        return self.columns.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the factor, those of a sparse U as if it were dense."""
        return 8 * len(self.columns.rest) * self.size

    def released(self) -> BlockFactor:
        """Return the same covariance without its factor, which each call makes anew, where many would not fit."""
        return self._with(_held=None)

    def detached(self) -> BlockFactor:
        """Return the same covariance with its factor alone, without W."""
        return self._with(_held=self._parts, columns=self.columns.places(), kappa=np.empty(0))

    def solve(self, right: Array) -> Array:
        """Return ``Sigma r``, the solution of ``A y = r``, for each vector r of (..., m)."""
        parts = self._parts
        first, rest = right[..., self.columns.block], right[..., self.columns.rest]
        lower = scipy.linalg.cho_solve((parts.L, True), (rest - first @ parts.U).T, check_finite=False).T
        return self._joined(first / parts.diagonal - lower @ parts.U.T, lower)

    def variance(self) -> Array:
        """Return the diagonal of ``Sigma``, (m,)."""
        parts = self._parts
        upper = 1 / parts.diagonal + parts.squared_norms(parts.U)
        return self._joined(upper, np.sum(parts.inverse**2, axis=0))

    def quadratic(self, C: Any) -> Array:
        """Return ``c^T Sigma c`` for each row c of (K, m), which is weights or what can be."""
        return over_chunks(functionals(C, self.size)[0], _quadratic, self._parts, self.columns.block, self.columns.rest)

    def row_variances(self) -> Array:
        """Return ``v_i = w_i^T Sigma w_i`` for each row of W, (n,)."""
        return self.columns.each_row(_quadratic, self._parts)

    def covariance(self, C: Any = None) -> Array:
        """Return ``C Sigma C^T`` for the rows of C, (K, m); ``Sigma`` itself, (m, m), when left out."""
        first, rest = self.columns.split(stored(functionals(C, self.size)[0]))
        parts = self._parts
        half = parts.half(dense(_reduced(parts, Split(first, rest))))
        return dense(first @ scaled(first.T, 1 / parts.diagonal)) + half.T @ half

    def sample(self, size: int, rng: Any = None) -> Array:
        """Draw from ``N(0, Sigma)``, (size, m): ``y_2 = L^-T z_2`` and ``y_1 = D^(-1/2) z_1 - U y_2``."""
        rng, parts = generator(rng), self._parts
        noise = rng.standard_normal((len(parts.L), size))
        lower = scipy.linalg.solve_triangular(parts.L, noise, lower=True, trans=1, check_finite=False).T
        upper = rng.standard_normal((size, len(parts.diagonal))) / np.sqrt(parts.diagonal)
        return self._joined(upper - lower @ parts.U.T, lower)

    def log_determinant(self) -> float:
        """Return ``log |Sigma|``."""
        parts = self._parts
        return float(-np.sum(np.log(parts.diagonal)) - 2 * np.sum(np.log(np.diag(parts.L))))

    def row_coordinates(self, *, rest: bool) -> RowCoordinates:
        """Return the rows of W in coordinates ``z_1 = D^(1/2) (y_1 + U y_2)`` and ``z_2 = L^T y_2``.

        ``rest``: whether the latter are wanted; without them p = 0.
        """
        parts, (column, entry) = self._parts, self.columns.column_of_row
        scale = np.append(parts.diagonal**-0.5, 0.0)
        others = self.columns.each_row(_whitened, parts) if rest else np.empty((0, self.columns.shape[0]))
        return RowCoordinates(column, entry * scale[column], len(parts.diagonal), others)

    def widened(self, remainder: Remainder) -> BlockFactor:
        """Return the covariance with the variances of ``z_1`` and the covariance of ``z_2`` that a remainder has."""
        chosen = self._with(_wider=remainder)
        return chosen._with(_held=None if self._held is None else chosen._widened(self._held))

    def _widened(self, parts: _Parts) -> _Parts:
        """Return D, U and L of it: ``D / block`` and ``L L^T <- L rest^-1 L^T``."""
        if self._wider is None:
            return parts
        _, block, rest = self._wider
        diagonal = parts.diagonal / block
        if not len(rest):
            return _Parts(diagonal, parts.U, parts.L)
        inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(rest, lower=True), parts.L.T)
        return _Parts(diagonal, parts.U, _cholesky(parts.L @ inverse))

    def squared_distance(self, y: Array) -> Array:
        """Return ``y^T A y`` of each row of (K, m): ``|D^(1/2) (y_1 + U y_2)|^2 + |L^T y_2|^2``."""
        parts, first, rest = self._parts, y[:, self.columns.block], y[:, self.columns.rest]
        upper = first + rest @ parts.U.T
        return upper**2 @ parts.diagonal + np.sum((rest @ parts.L) ** 2, axis=1)

    def left_out(self) -> float:
        """Return what the ELBO leaves out of the log evidence, where it is known."""
        return 0.0 if self._wider is None else self._wider.evidence

    def unwidened(self) -> BlockFactor:
        """Return the covariance that ``kappa`` and the prior give."""
        return self if self._wider is None else self._with(_wider=None, _held=self._held and self._factored())

    def _with(self, **changes: Any) -> BlockFactor:
        """Return a copy with some attributes changed."""
        chosen = copy(self)
        vars(chosen).update(changes)
        return chosen

    @property
    def _parts(self) -> _Parts:
        return self._widened(self._factored()) if self._held is None else self._held

    def _factored(self) -> _Parts:
        """Return D, U and the factor of S."""
        columns = self.columns
        normal = columns.normal(self.kappa)
        diagonal = self.prior_precision[columns.block] + normal.diagonal
        S, U = normal.rest.copy(), scaled(normal.cross, 1 / diagonal)
        S[np.diag_indices(len(S))] += self.prior_precision[columns.rest]
        if len(columns.block):
            S -= dense(U.T @ scaled(U, diagonal))
        return _Parts(diagonal, U, _cholesky(S))

    def _joined(self, first: Array, rest: Array) -> Array:
        """Return the entries of both parts in the order of the columns of W."""
        whole = np.empty((*rest.shape[:-1], self.size))
        whole[..., self.columns.block], whole[..., self.columns.rest] = first, rest
        return whole


def _quadratic(parts: _Parts, vectors: Split) -> Array:
    """Return ``c_1^T D^-1 c_1 + |L^-1 (c_2 - U^T c_1)|^2`` of each row."""
    return np.asarray(vectors.first**2 @ (1 / parts.diagonal)) + parts.squared_norms(_reduced(parts, vectors))


def _whitened(parts: _Parts, vectors: Split) -> Array:
    """Return ``L^-1 (c_2 - U^T c_1)`` of each row, as columns."""
    return parts.half(dense(_reduced(parts, vectors)))


def _reduced(parts: _Parts, vectors: Split) -> Any:
    """Return ``c_2 - U^T c_1`` of each row, sparse where all of it is and few entries are there."""
    first, rest = vectors.first @ parts.U, vectors.rest
    if is_sparse(first) and is_sparse(rest):
        found = (rest - first).tocsr()
        return found if found.nnz <= DENSE_FROM * found.shape[0] * found.shape[1] else found.toarray()
    return dense(rest) - dense(first)


def _cholesky(S: Array) -> Array:
    try:
        return scipy.linalg.cholesky(S, lower=True, overwrite_a=True, check_finite=True)
    except (scipy.linalg.LinAlgError, ValueError) as error:
        raise ForestmixError(
            "The precision of the latents is not positive definite in double precision: columns of W are nearly "
            "dependent and the prior is too wide to tell them apart. Use a narrower prior, or rescale the columns."
        ) from error
