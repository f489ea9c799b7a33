"""Work on a matrix in blocks that fit a budget of memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import scipy

from forestmix.arrays import Array

#: Bytes of work arrays at a time: of right-hand sides, of rows of W made dense, of entries of a prediction.
MEMORY_BUDGET = 2**26


def blocks_of(count: int, bytes_each: int) -> Iterator[Array]:
    """Yield the numbers from 0 to ``count`` in blocks that fit the memory budget."""
    step = max(1, MEMORY_BUDGET // bytes_each)
    for start in range(0, count, step):
        yield np.arange(start, min(start + step, count))


def dense_gram(blocks: Iterable[Array], size: int) -> Array:
    """Return the lower triangle of ``sum_k B_k^T B_k`` of blocks of ``size`` columns, in Fortran order.

    What is above the diagonal has no meaning: half the products make one triangle, and LAPACK reads one.
    """
    gram = np.zeros((size, size), order="F")
    for block in blocks:
        gram = scipy.linalg.blas.dsyrk(1.0, block.T, beta=1.0, c=gram, lower=True, overwrite_c=True)
    return gram


def sparse_gram(W: scipy.sparse.csr_array, kappa: Array) -> Array:
    """Return the lower triangle of ``W^T diag(kappa) W`` likewise, by products of sparse matrices."""
    W = W.astype(np.float64, copy=False)
    weighted = scipy.sparse.csr_array(W.T)  # a copy: W.T is in CSC form
    weighted.data *= kappa[weighted.indices]
    size = W.shape[1]
    gram = np.zeros((size, size), order="F")
    for block in blocks_of(size, 24 * size):
        first, end = block[0], block[-1] + 1
        # The matrix is symmetric: what the product gives by rows are the columns of the triangle.
        gram[first:, first:end] = (weighted[first:end] @ W[:, first:]).toarray().T
    return gram
