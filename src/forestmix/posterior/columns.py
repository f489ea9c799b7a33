"""The columns of W, parted into those that share no row, such as the levels of a random intercept, and the rest.

A W in chunks of rows is parted chunk by chunk, wherever the chunks are: its sums are sums over chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.weights import Weights

#: Columns that are left after elimination, at most: their matrix takes 8 p^2 bytes and its factor p^3 / 3 operations.
MOST_COLUMNS = 6000
#: Above this share of nonzero entries a matrix is held as a dense array.
DENSE_FROM = 0.2
#: How far the ratio of curvatures may vary over rows, relative to itself, where one is taken for a multiple of another.
PROPORTIONAL = 1e-14
#: Products with a matrix of up to so many entries, times the columns that are left, are faster by dense arrays.
SMALL = 5e5


class Split(NamedTuple):
    """Vectors as rows, their entries parted: ``first`` (K, |block|), ``rest`` (K, p); dense or sparse by rows."""

    first: Any
    rest: Any


@dataclass(frozen=True)
class Normal:
    """The parts of ``W^T diag(kappa) W``: the block's diagonal, (|block|,), block by rest, and the rest's, (p, p)."""

    diagonal: Array
    cross: Any
    rest: Array

    def __add__(self, other: Normal) -> Normal:
        return Normal(self.diagonal + other.diagonal, self.cross + other.cross, self.rest + other.rest)

    def scaled(self, factor: float) -> Normal:
        """Return the same for curvatures that are larger by a factor."""
        return Normal(factor * self.diagonal, factor * self.cross, factor * self.rest)


class Columns:
    """The columns of W, parted into a ``block`` of those that share no row and the ``rest``, as positions."""

    def __init__(self, weights: Weights) -> None:
        self.shape = weights.shape
        self._weights = weights if weights.chunked else None
        self._last: tuple[Array, Normal] | None = None
        matrix = None if weights.chunked else stored(weights)
        self.block = _block(weights, matrix)
        self.rest = np.setdiff1d(np.arange(self.shape[1]), self.block)
        if len(self.rest) > MOST_COLUMNS:
            raise ArgumentError(
                f"model must have at most {MOST_COLUMNS} latents for a full covariance, besides those of one-hot "
                f"columns that share no row; got {len(self.rest)} besides {len(self.block)}. Use the factorised q."
            )
        if matrix is not None and is_sparse(matrix) and self.shape[0] * self.shape[1] * (1 + len(self.rest)) <= SMALL:
            matrix = matrix.toarray()
        self._rows = None if matrix is None else self.split(matrix)

    def places(self) -> Columns:
        """Return which column is where, without W."""
        chosen = copy(self)
        chosen._weights, chosen._rows, chosen._last = None, None, None
        vars(chosen).pop("column_of_row", None)
        return chosen

    def split(self, vectors: Any) -> Split:
        """Return vectors, (K, m), with their entries parted."""
        return _split(vectors, self.block, self.rest)

    def normal(self, kappa: Array) -> Normal:
        """Return the parts of ``W^T diag(kappa) W``; curvatures that are a multiple of the last ones read no chunk."""
        if self._rows is not None:
            return _normal(self._rows, kappa)
        if self._last is not None and (factor := _ratio(kappa, self._last[0])) is not None:
            return self._last[1].scaled(factor)
        assert self._weights is not None
        found: Normal = self._weights.sum_over_rows(_normal_of_chunk, kappa, shared=(self.block, self.rest))
        self._last = (kappa, found)
        return found

    def each_row(self, function: Callable[[Any, Split], Array], shared: Any) -> Array:
        """Return ``function(shared, rows)`` of all rows of W, which are its last axis."""
        if self._rows is not None:
            return function(shared, self._rows)
        assert self._weights is not None
        return over_chunks(self._weights, function, shared, self.block, self.rest)

    @cached_property
    def column_of_row(self) -> tuple[Array, Array]:
        """For each row the one column of the block that it has, and its entry there; -1 and 0 if there is none."""
        column, entry = self.each_row(_column_of_row, None)
        return column.astype(int), entry


def over_chunks(weights: Weights, function: Any, shared: Any, block: Array, rest: Array) -> Array:
    """Return ``function(shared, rows)`` of all rows of some weights, chunk by chunk."""
    return np.concatenate(weights.over_rows(_each_row_of_chunk, shared=(function, shared, block, rest)), axis=-1)


def _each_row_of_chunk(
    weights: Weights, function: Callable[[Any, Split], Array], shared: Any, block: Array, rest: Array
) -> Array:
    return function(shared, _split(stored(weights), block, rest))


def _normal_of_chunk(weights: Weights, kappa: Array, block: Array, rest: Array) -> Normal:
    return _normal(_split(stored(weights), block, rest), kappa)


def _normal(rows: Split, kappa: Array) -> Normal:
    weighted = scaled(rows.rest, kappa)
    return Normal(kappa @ rows.first**2, rows.first.T @ weighted, dense(rows.rest.T @ weighted))


def _ratio(kappa: Array, known: Array) -> float | None:
    """Return c where ``kappa = c known``, ``None`` where there is none."""
    place = int(np.argmax(known))
    factor = float(kappa[place] / known[place]) if known[place] > 0 else 0.0
    return factor if factor > 0 and np.allclose(kappa, factor * known, rtol=PROPORTIONAL, atol=0) else None


def _column_of_row(_: Any, rows: Split) -> Array:
    """Return for each row its column of the block, or -1, and its entry there, (2, n)."""
    found = scipy.sparse.coo_array(rows.first)
    result = np.stack([np.full(rows.first.shape[0], -1.0), np.zeros(rows.first.shape[0])])
    there = found.data != 0
    result[:, found.row[there]] = found.col[there], found.data[there]
    return result


def _split(vectors: Any, block: Array, rest: Array) -> Split:
    if not len(block):
        return Split(vectors[:, :0], vectors)
    first, others = vectors[:, block], vectors[:, rest]
    if is_sparse(others) and others.nnz > DENSE_FROM * others.shape[0] * others.shape[1]:
        others = others.toarray()
    return Split(first, others)


def _disjoint_over_chunks(weights: Weights) -> Array:
    """Return the columns of ``disjoint_columns`` for a W in chunks, by the pairs that share a row of some chunk."""
    n, m = weights.shape
    if weights.nnz > DENSE_FROM * n * m:
        return np.empty(0, np.int64)
    shared = scipy.sparse.csr_array(weights.sum_over_rows(_shared_rows))
    chosen, taken = [], np.zeros(m, bool)
    for j in np.argsort(shared.diagonal(), kind="stable").tolist():
        if not taken[shared.indices[shared.indptr[j] : shared.indptr[j + 1]]].any():
            taken[j] = True
            chosen.append(j)
    return np.sort(np.array(chosen if len(chosen) > 1 else [], np.int64))


def _shared_rows(weights: Weights) -> Any:
    """Return how many rows each pair of columns shares."""
    matrix = weights.rows()
    ones = scipy.sparse.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), matrix.shape)
    return ones.T @ ones


def fits_factor(weights: Weights) -> bool:
    """Whether W has few enough columns for a factor, after elimination."""
    m = weights.shape[1]
    return m <= MOST_COLUMNS or m - len(_block(weights, None if weights.chunked else stored(weights))) <= MOST_COLUMNS


def _block(weights: Weights, matrix: Any) -> Array:
    """Return the columns that are eliminated; ``matrix``: W as it is stored, ``None`` where that is in chunks."""
    if matrix is None:
        return _disjoint_over_chunks(weights)
    return disjoint_columns(matrix.tocsc()) if is_sparse(matrix) else np.empty(0, np.int64)


def stored(weights: Weights) -> Any:
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


def is_sparse(matrix: Any) -> bool:
    """Whether a matrix is one of SciPy's sparse ones."""
    return bool(scipy.sparse.issparse(matrix))


def scaled(matrix: Any, factors: Array) -> Any:
    """Return ``diag(factors) matrix``."""
    return scipy.sparse.diags_array(factors) @ matrix if is_sparse(matrix) else factors[:, None] * matrix


def dense(matrix: Any) -> Array:
    """Return a matrix as a dense array."""
    return matrix.toarray() if is_sparse(matrix) else np.asarray(matrix)
