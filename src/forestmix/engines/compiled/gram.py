"""The product of a sparse matrix with its own transpose, as a dense one."""

from __future__ import annotations

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit


@njit(cache=True, nogil=True)
def add_products(starts: Array, columns: Array, values: Array, kappa: Array, transposed: Array) -> None:
    """Add the lower triangle of ``W^T diag(kappa) W`` to a matrix, given as its transpose, (m, m).

    W is in CSR form, the entries of each row in order.
    """
    for i in range(starts.size - 1):
        for p in range(starts[i], starts[i + 1]):
            below, factor = transposed[columns[p]], kappa[i] * values[p]
            for q in range(p, starts[i + 1]):
                below[columns[q]] += factor * values[q]
