"""The precision matrix of the means, ``A = diag(1 / sigma0^2) + W^T diag(kappa) W``, where it is small enough.

Or, where W has fewer rows than columns, the smaller matrix that serves as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy

from forestmix.arrays import Array, plain
from forestmix.weights import DenseWeights, SparseColumnWeights, Weights

#: Bytes of work arrays at a time: of right-hand sides, of rows of W made dense, of entries of a prediction.
MEMORY_BUDGET = 2**26
#: Below this density the product W^T diag(kappa) W is added up entry by entry, above it made of dense rows by BLAS.
SPARSE_DENSITY = 0.05


def precision_matrix(weights: Weights, kappa: Array, precision: Array) -> Array:
    """Return the lower triangle of ``A = diag(precision) + W^T diag(kappa) W``, in Fortran order and float64.

    What is above the diagonal has no meaning: LAPACK reads one triangle, and half the products make it.
    """
    A = _lower_product(by_rows(weights), kappa)
    A[np.diag_indices(len(A))] += precision
    return A


def row_matrix(weights: Weights, kappa: Array, precision: Array) -> Array:
    """Return the lower triangle of ``S = I + R R^T`` with ``R = diag(sqrt(kappa)) W diag(precision)^(-1/2)``, likewise.

    By the identity of Woodbury ``A^-1 = P^-1 - P^-1 W^T K^(1/2) S^-1 K^(1/2) W P^-1``, with P = diag(precision) and
    K = diag(kappa). No eigenvalue of S is below 1, whatever kappa is, and rows of ``kappa = 0`` take no part.
    """
    S, root = _lower_product(_transposed(weights), 1 / precision), np.sqrt(kappa)
    S *= root
    S *= root[:, None]
    S[np.diag_indices(len(S))] += 1
    return S


def _transposed(weights: Weights) -> Array | scipy.sparse.csr_array:
    """Return W^T as ``by_rows`` would; a copy, where one is made, is not kept with the weights."""
    if isinstance(weights, DenseWeights):
        return weights.array.T
    if isinstance(weights, SparseColumnWeights):
        return weights.columns().T
    return scipy.sparse.csr_array(weights.rows().T)


def _lower_product(W: Array | scipy.sparse.csr_array, kappa: Array) -> Array:
    """Return the lower triangle of ``W^T diag(kappa) W``."""
    n, m = W.shape
    A = np.zeros((m, m), order="F")
    if isinstance(W, scipy.sparse.csr_array) and W.nnz <= SPARSE_DENSITY * n * m:
        from forestmix.engines.compiled.gram import add_products

        ordered = W if W.has_sorted_indices else W.sorted_indices()
        add_products(ordered.indptr, ordered.indices, plain(ordered.data), plain(kappa), A.T)
        return A
    for part in weighted_rows(W, kappa):
        A = scipy.linalg.blas.dsyrk(1.0, part.T, beta=1.0, c=A, lower=True, overwrite_c=True)
    return A


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


def orthogonal_factor(W: Array | scipy.sparse.csr_array, kappa: Array, scale: Array) -> OrthogonalFactor:
    """Return the factor of the weighted rows of W over ``diag(1 / sigma0)``.

    Many rows are first put together in parts, without the prior's: those are what a wide prior must not lose.
    """
    blocks = list(weighted_rows(W, kappa))
    R = blocks[0]
    for part in blocks[1:]:
        R = scipy.linalg.qr(np.vstack([R, part]), mode="r", overwrite_a=True, check_finite=False)[0][: len(scale)]
    return OrthogonalFactor(np.vstack([R, np.diag(1 / scale)]))


def by_rows(weights: Weights) -> Array | scipy.sparse.csr_array:
    """Return W as an array or a sparse matrix whose rows can be chosen."""
    return weights.array if isinstance(weights, DenseWeights) else weights.rows()


def weighted_rows(W: Array | scipy.sparse.csr_array, kappa: Array) -> Iterator[Array]:
    """Yield ``diag(sqrt(kappa)) W`` in dense blocks of rows."""
    for block in blocks_of(W.shape[0], 24 * W.shape[1]):
        yield np.sqrt(kappa[block])[:, None] * dense_rows(W, block)


def dense_rows(matrix: Weights | Array | scipy.sparse.csr_array, chosen: Array) -> Array:
    """Return the chosen rows, neighbours or not, as a dense array in float64."""
    part = matrix.rows(chosen) if isinstance(matrix, Weights) else matrix[chosen]
    return (part.toarray() if isinstance(part, scipy.sparse.csr_array) else part).astype(np.float64, copy=False)


def blocks_of(count: int, bytes_each: int) -> Iterator[Array]:
    """Yield the numbers from 0 to ``count`` in blocks that fit the memory budget."""
    step = max(1, MEMORY_BUDGET // bytes_each)
    for start in range(0, count, step):
        yield np.arange(start, min(start + step, count))
