"""A covariance ``Sigma = (diag(precision) + W^T diag(kappa) W)^-1`` held as a factor, with one-hot columns eliminated.

Columns of W that share no row, such as the levels of a random intercept, make a diagonal block. With them first::

    A = [ D    B ]     S = C - B^T D^-1 B     U = D^-1 B     Sigma = [ D^-1 + U S^-1 U^T   -U S^-1 ]
        [ B^T  C ]                                                   [ -S^-1 U^T            S^-1   ]

so only S, of the p other columns, is dense. A vector ``c = (c_1, c_2)`` has ``c^T Sigma c = c_1^T D^-1 c_1 +
|L^-1 t|^2`` with ``t = c_2 - U^T c_1`` and ``S = L L^T``: for the n rows of W that takes O(n p^2), whatever the number
of levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array, generator, numbers
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.posterior.covariance import Covariance
from forestmix.weights import Weights

#: Columns that are left after elimination, at most: their matrix takes 8 p^2 bytes and its factor p^3 / 3 operations.
MOST_COLUMNS = 6000
#: Bytes of rows made dense at a time.
MEMORY_BUDGET = 2**26
#: Above this share of nonzero entries a matrix is held as a dense array.
DENSE_FROM = 0.2


class Split(NamedTuple):
    """Vectors as rows, their entries parted: ``first`` (K, |block|), ``rest`` (K, p); dense or sparse by rows."""

    first: Any
    rest: Any


class Columns:
    """The columns of W, parted into a ``block`` of those that share no row and the ``rest``, as positions."""

    def __init__(self, weights: Weights) -> None:
        self.shape = weights.shape
        matrix = _stored(weights)
        self.block = disjoint_columns(matrix.tocsc()) if _is_sparse(matrix) else np.empty(0, np.int64)
        self.rest = np.setdiff1d(np.arange(self.shape[1]), self.block)
        if len(self.rest) > MOST_COLUMNS:
            raise ArgumentError(
                f"model must have at most {MOST_COLUMNS} latents for a full covariance, besides those of one-hot "
                f"columns that share no row; got {len(self.rest)} besides {len(self.block)}. Use the factorised q."
            )
        self.rows = self.split(matrix)

    def split(self, vectors: Any) -> Split:
        """Return vectors, (K, m), with their entries parted."""
        if not len(self.block):
            return Split(vectors[:, :0], vectors)
        first, rest = vectors[:, self.block], vectors[:, self.rest]
        if _is_sparse(rest) and rest.nnz > DENSE_FROM * rest.shape[0] * rest.shape[1]:
            rest = rest.toarray()
        return Split(first, rest)

    @cached_property
    def squared_block(self) -> Any:
        """The squares of the block's entries, (|block|, n)."""
        return (self.rows.first.multiply(self.rows.first)).T.tocsr() if len(self.block) else self.rows.first.T

    @cached_property
    def block_adjoint(self) -> Any:
        """The block's columns as rows, (|block|, n)."""
        return self.rows.first.T.tocsr() if len(self.block) else self.rows.first.T


class _Parts(NamedTuple):
    """D, (|block|,); U, (|block|, p), dense or sparse; and L, (p, p), of the formulas above."""

    diagonal: Array
    U: Any
    L: Array

    def half(self, t: Array) -> Array:
        """Return ``L^-1 t`` for each row t of (K, p), as columns (p, K)."""
        return scipy.linalg.solve_triangular(self.L, t.T, lower=True, check_finite=False)

    def squared_norms(self, t: Array) -> Array:
        """Return ``|L^-1 t|^2`` for each row t."""
        half = self.half(t)
        return np.einsum("pk,pk->k", half, half)


class BlockFactor(Covariance):
    """The covariance ``Sigma`` of the formulas above; its inverse is A. Vectors are (m,), or rows of (K, m).

    Args:
        columns: the columns of W.
        kappa: weight of each row, (n,), not negative; kept as an attribute.
        precision: what is added to the diagonal, (m,): one over the prior's variances.

    """

    def __init__(self, columns: Columns, kappa: Array, precision: Array) -> None:
        self.columns, self.kappa, self._precision = columns, kappa, precision
        self._held: _Parts | None = self._factored()

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
        chosen = copy(self)
        chosen._held = None
        return chosen

    def solve(self, right: Array) -> Array:
        """Return ``Sigma r``, the solution of ``A y = r``, for each vector r of (..., m)."""
        diagonal, U, L = self._parts
        first, rest = right[..., self.columns.block], right[..., self.columns.rest]
        lower = scipy.linalg.cho_solve((L, True), (rest - first @ U).T, check_finite=False).T
        return self._joined(first / diagonal - lower @ U.T, lower)

    def variance(self) -> Array:
        """Return the diagonal of ``Sigma``, (m,)."""
        parts = self._parts
        upper = 1 / parts.diagonal
        for part, rows in _blocks(parts.U):
            upper[part] += parts.squared_norms(rows)
        return self._joined(upper, np.sum(parts.half(np.eye(len(parts.L))) ** 2, axis=0))

    def quadratic(self, C: Any) -> Array:
        """Return ``c^T Sigma c`` for each row c of (K, m), dense, sparse or ``Weights``; a number for (m,)."""
        vectors, one = as_rows(C, self.size)
        values = _quadratic(self._parts, self.columns.split(vectors))
        return values[0] if one else values

    def row_variances(self) -> Array:
        """Return ``v_i = w_i^T Sigma w_i`` for each row of W, (n,)."""
        return _quadratic(self._parts, self.columns.rows)

    def covariance(self, C: Any = None) -> Array:
        """Return ``C Sigma C^T`` for the rows of C, (K, m); ``Sigma`` itself, (m, m), when left out."""
        given = scipy.sparse.eye_array(self.size, format="csr") if C is None else C
        first, rest = self.columns.split(as_rows(given, self.size)[0])
        parts = self._parts
        half = parts.half(_dense(rest) - _dense(first @ parts.U))
        return _dense(first @ _scaled(first.T, 1 / parts.diagonal)) + half.T @ half

    def sample(self, size: int, rng: Any = None) -> Array:
        """Draw from ``N(0, Sigma)``, (size, m): ``y_2 = L^-T z_2`` and ``y_1 = D^(-1/2) z_1 - U y_2``."""
        rng, (diagonal, U, L) = generator(rng), self._parts
        noise = rng.standard_normal((len(L), size))
        lower = scipy.linalg.solve_triangular(L, noise, lower=True, trans=1, check_finite=False).T
        upper = rng.standard_normal((size, len(diagonal))) / np.sqrt(diagonal)
        return self._joined(upper - lower @ U.T, lower)

    def log_determinant(self) -> float:
        """Return ``log |Sigma|``."""
        diagonal, _, L = self._parts
        return float(-np.sum(np.log(diagonal)) - 2 * np.sum(np.log(np.diag(L))))

    @property
    def _parts(self) -> _Parts:
        return self._factored() if self._held is None else self._held

    def _factored(self) -> _Parts:
        """Return D, U and the factor of S."""
        columns, rest = self.columns, self.columns.rows.rest
        diagonal = self._precision[columns.block] + columns.squared_block @ self.kappa
        weighted = _scaled(rest, self.kappa)
        S = _dense(rest.T @ weighted)
        S[np.diag_indices(len(S))] += self._precision[columns.rest]
        U = _scaled(columns.block_adjoint @ weighted, 1 / diagonal)
        if len(columns.block):
            S -= _dense(U.T @ _scaled(U, diagonal))
        return _Parts(diagonal, U, _cholesky(S))

    def _joined(self, first: Array, rest: Array) -> Array:
        """Return the entries of both parts in the order of the columns of W."""
        whole = np.empty((*rest.shape[:-1], self.size))
        whole[..., self.columns.block], whole[..., self.columns.rest] = first, rest
        return whole


def fits_factor(weights: Weights) -> bool:
    """Whether W has few enough columns for a factor, after elimination."""
    if weights.shape[1] <= MOST_COLUMNS:
        return True
    matrix = _stored(weights)
    return _is_sparse(matrix) and weights.shape[1] - len(disjoint_columns(matrix.tocsc())) <= MOST_COLUMNS


def _stored(weights: Weights) -> Any:
    """Return W in float64, sparse by rows where it has few entries, else dense."""
    n, m = weights.shape
    if weights.nnz > DENSE_FROM * n * m:
        return weights.toarray().astype(np.float64, copy=False)
    return weights.rows().astype(np.float64)


def disjoint_columns(matrix: scipy.sparse.csc_array) -> Array:
    """Return many columns that share no row, in order; none if there are not at least two.

    Greedy, from the columns of fewest entries on: levels of the group with the most levels go first.
    """
    counts = np.diff(matrix.indptr)
    taken, chosen = np.zeros(matrix.shape[0], bool), []
    bounds, rows = matrix.indptr.tolist(), matrix.indices
    for j in np.argsort(counts, kind="stable").tolist():
        own = rows[bounds[j] : bounds[j + 1]]
        if not taken[own].any():
            taken[own] = True
            chosen.append(j)
    return np.sort(np.array(chosen if len(chosen) > 1 else [], np.int64))


def as_rows(given: Any, size: int) -> tuple[Any, bool]:
    """Return vectors as the rows of a dense or sparse matrix in float64, and whether it was one without an axis."""
    if isinstance(given, Weights):
        given = given.rows()
    array = given.tocsr() if _is_sparse(given) else numbers("C", given)
    if array.ndim not in (1, 2) or array.shape[-1] != size:
        raise ArgumentError(f"C must have shape ({size},) or (K, {size}); got {array.shape}.")
    return array.astype(np.float64).reshape(-1, size), array.ndim == 1


def _quadratic(parts: _Parts, vectors: Split) -> Array:
    """Return ``c_1^T D^-1 c_1 + |L^-1 (c_2 - U^T c_1)|^2`` of each row, some rows at a time."""
    first = vectors.first.multiply(vectors.first) if _is_sparse(vectors.first) else vectors.first**2
    values = np.asarray(first @ (1 / parts.diagonal))
    for part, rest in _blocks(vectors.rest):
        values[part] += parts.squared_norms(rest - _dense(vectors.first[part] @ parts.U))
    return values


def _cholesky(S: Array) -> Array:
    try:
        return scipy.linalg.cholesky(S, lower=True, overwrite_a=True, check_finite=True)
    except (scipy.linalg.LinAlgError, ValueError) as error:
        raise ForestmixError(
            "The precision of the latents is not positive definite in double precision: columns of W are nearly "
            "dependent and the prior is too wide to tell them apart. Use a narrower prior, or rescale the columns."
        ) from error


def _is_sparse(matrix: Any) -> bool:
    return bool(scipy.sparse.issparse(matrix))


def _scaled(matrix: Any, factors: Array) -> Any:
    """Return ``diag(factors) matrix``."""
    return scipy.sparse.diags_array(factors) @ matrix if _is_sparse(matrix) else factors[:, None] * matrix


def _dense(matrix: Any) -> Array:
    return matrix.toarray() if _is_sparse(matrix) else np.asarray(matrix)


def _blocks(matrix: Any) -> Iterator[tuple[slice, Array]]:
    """Yield parts of the rows, and these made dense, within the memory budget."""
    step = max(1, MEMORY_BUDGET // (8 * max(1, matrix.shape[1])))
    for start in range(0, matrix.shape[0], step):
        part = slice(start, min(start + step, matrix.shape[0]))
        yield part, _dense(matrix[part])
