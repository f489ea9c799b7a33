"""Products with a sparse W that lies by columns, in one reading of its entries.

The arrays are those of a CSC matrix. A kernel works on a range of columns, whose entries are in rows from ``low`` to
``high``; sums over a row are added up for these only. What belongs to a row lies side by side, as in ``kernels.csr``:
``sum_j w_ij mu_j``, ``sum_j |w_ij| sigma_j`` and ``sum_j w_ij^2 sigma_j^2``, those asked for, (n, ``csr.stride``).
"""

from __future__ import annotations

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.csr import scatter


@njit(cache=True, nogil=True)
def project_columns(
    begin: int, end: int, low: int, high: int, starts: Array, rows: Array, values: Array, linear: Array,
    absolute: Array, squared: Array, with_absolute: bool, with_squared: bool, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Add up ``W linear``, ``|W| absolute`` and ``(W∘W) squared``, the last two where they are asked for.

    There is nothing for ``totals``.
    """
    parts[low:high] = 0
    sums = parts.reshape(-1)
    for j in range(begin, end):
        scatter(
            rows, values, starts[j], starts[j + 1], linear[j], absolute[j], squared[j], with_absolute, with_squared,
            sums,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def collect_columns(
    begin: int, end: int, starts: Array, rows: Array, values: Array, error: Array, absolute: Array, squared: Array,
    first: Array, second: Array, third: Array,
) -> None:  # fmt: skip
    """Write ``W^T error``, ``|W|^T absolute`` and ``(W∘W)^T squared``; factors are (n, N), sums (m, N)."""
    for j in range(begin, end):
        first[j], second[j], third[j] = 0, 0, 0
        for p in range(starts[j], starts[j + 1]):
            i, w = rows[p], values[p]
            for k in range(error.shape[1]):
                first[j, k] += w * error[i, k]
            for k in range(absolute.shape[1]):
                second[j, k] += abs(w) * absolute[i, k]
            for k in range(squared.shape[1]):
                third[j, k] += w * w * squared[i, k]
