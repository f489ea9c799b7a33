"""Products with a sparse W that lies by columns, and steps that read it once, as those of ``kernels.column_steps`` do.

The arrays are those of a CSC matrix. A kernel works on a range of columns, whose entries are in rows from ``low`` to
``high``; sums over a row are added up for these only. What belongs to a row lies side by side, as in ``kernels.csr``::

    terms    error and s kappa, (n, 2), or with ``squared`` kappa and a zero as well, (n, 4)
    parts    sum_j w_ij mu_j, sum_j |w_ij| sigma_j and sum_j w_ij^2 sigma_j^2, those asked for, (n, ``csr.stride``)
"""

from __future__ import annotations

import math

import numpy as np

from forestmix.arrays import Array
from forestmix.kernels.column_steps import differs, settle_block
from forestmix.kernels.compiling import njit
from forestmix.kernels.csr import ONE, TWO, mean_of, scatter, scatter_mean
from forestmix.kernels.gathers import gather_terms, gather_two
from forestmix.kernels.scratch import new_scratch
from forestmix.kernels.vectors import AT_ONCE, total_of


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


@njit(cache=True, nogil=True)
def settle_parts(
    first: int, last: int, parts: Array, reach: Array, absolute: bool, bias: Array, kind: Array, x: Array,
    scale: Array, constant: Array, spread: int, eta: Array, error: Array, kappa: Array, terms: Array, totals: Array,
) -> None:  # fmt: skip
    """Turn the sums of a range of rows, (threads, n, ``csr.stride``), into their terms; see ``settle_block``.

    A thread has sums for the rows from ``reach[t, 0]`` to ``reach[t, 1]``.
    """
    whole = np.empty((min(parts.shape[2], 3), AT_ONCE), parts.dtype)  # of four the last is not used
    scratch = new_scratch()
    for start in range(first, last, AT_ONCE):
        stop = min(start + AT_ONCE, last)
        sums = whole[:, : stop - start]
        for k in range(sums.shape[0]):
            total_of(parts, True, reach, start, k, sums[k])
        settle_block(start, sums, bias, kind, x, scale, constant, spread, eta, error, kappa, scratch, totals[0])
        for i in range(start, stop):
            terms[i, 0], terms[i, 1] = error[i], sums[1, i - start] * kappa[i] if absolute else 0
        if terms.shape[1] == 4:
            for i in range(start, stop):
                terms[i, 2], terms[i, 3] = kappa[i], 0


@njit(cache=True, nogil=True, error_model="numpy")
def step_columns(
    begin: int, end: int, low: int, high: int, starts: Array, rows: Array, values: Array, terms: Array, mean: Array,
    sd: Array, prior_mean: Array, precision: Array, unit: float, paper: bool, absolute: bool, squared: bool,
    next_absolute: bool, next_squared: bool, gradient: Array, slope: Array, curvature: Array, exact: Array,
    new_mean: Array, new_sd: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the forest mixture step (paper, Theorem 2), and add up the row sums where it leads.

    Arguments are those of ``column_steps.step_columns``.
    """
    parts[low:high] = 0
    flat, sums, zero = terms.reshape(-1), parts.reshape(-1), values.dtype.type(0)
    changed, spread_form, form = 0, 0.0, 0.0
    for j in range(begin, end):
        first, last = starts[j], starts[j + 1]
        if squared:
            gradient[j], spread, exact[j] = gather_terms(rows, values, first, last, flat)
        elif absolute:
            gradient[j], spread = gather_two(rows, values, first, last, flat)
        else:
            gradient[j], spread = mean_of(rows, values, first, last, flat, TWO), zero
        if absolute:
            curvature[j] = spread / sd[j]
        away = mean[j] - prior_mean[j]
        slope[j] = gradient[j] - away * precision[j]
        new_mean[j] = mean[j] + slope[j] / (precision[j] + curvature[j])
        information = curvature[j] if paper else exact[j]
        new_sd[j] = 1 / math.sqrt(precision[j] + information)
        changed += differs(new_sd[j], sd[j], unit)
        spread_form += float(sd[j]) ** 2 * float(information)
        form += float(away) ** 2 * float(precision[j])
        scatter(
            rows, values, first, last, new_mean[j], new_sd[j], new_sd[j] ** 2, next_absolute, next_squared, sums
        )  # fmt: skip
    totals[0], totals[1], totals[2] = changed, spread_form, form


@njit(cache=True, nogil=True)
def conjugate_columns(
    begin: int, end: int, low: int, high: int, starts: Array, rows: Array, values: Array, weighted: Array,
    length: float, direction: Array, precision: Array, inverse: Array, mean: Array, gradient: Array, new_mean: Array,
    new_gradient: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Go ``length`` along the direction p of conjugate gradients, and add up ``W P^-1 gradient`` at its end.

    Arguments are those of ``column_steps.conjugate_columns``.
    """
    parts[low:high] = 0
    sums, norm = parts.reshape(-1), 0.0
    for j in range(begin, end):
        first, last = starts[j], starts[j + 1]
        image = mean_of(rows, values, first, last, weighted, ONE) + precision[j] * direction[j]
        new_mean[j] = mean[j] + length * direction[j]
        new_gradient[j] = gradient[j] - length * image
        ahead = new_gradient[j] * inverse[j]
        norm += float(new_gradient[j]) * float(ahead)
        scatter_mean(rows, values, first, last, ahead, sums)
    totals[0] = norm
