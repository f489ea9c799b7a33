"""Steps over a column-major W that read it once.

A pass has its row terms only after the last column, so it reads W twice. A step does better when it begins where the
last one left off, with the row terms known: a few columns are read from memory, give what the rows say about their
latents, the latents move, and while the columns are still in cache they are added up into the row sums of the point
that the step leads to. It is the mirror image of a pass over rows. A kernel works on a range of columns, given as rows
of the transpose.

``parts`` has a row for each sum that the next step needs::

    parts[0]   sum_j w_ij mu_j          always
    parts[1]   sum_j |w_ij| sigma_j     with ``absolute``
    parts[-1]  sum_j w_ij^2 sigma_j^2   with ``squared``
"""

from __future__ import annotations

import math

import numpy as np

from forestmix.arrays import Array
from forestmix.kernels.compiling import njit
from forestmix.kernels.dense import add_rows, project_rows
from forestmix.kernels.lines import ROWS
from forestmix.kernels.rows import GAUSSIAN, gaussian_terms, of_row, rows_of
from forestmix.kernels.scratch import new_scratch
from forestmix.kernels.settling import NO_SPREAD, settle_sums
from forestmix.kernels.terms import FAST
from forestmix.kernels.tiles import adjoint_mean, adjoint_spreads, ahead_of, following, forward_both, forward_mean, tile
from forestmix.kernels.vectors import AT_ONCE, total_of


@njit(cache=True, nogil=True)
def project_columns(
    first: int, last: int, transposed: Array, mean: Array, sd: Array, absolute: bool, squared: bool, parts: Array,
    totals: Array,
) -> None:  # fmt: skip
    """Add up the row sums of given latents; there is nothing for ``totals``."""
    parts[:] = 0
    factors = np.zeros((3, ROWS), transposed.dtype)
    ahead = following(transposed, transposed.shape[1])
    for j in range(first, last, ROWS):
        factors[:] = 0
        for lane in range(min(ROWS, last - j)):
            factors[0, lane], factors[1, lane], factors[2, lane] = mean[j + lane], sd[j + lane], sd[j + lane] ** 2
        add_columns(tile(transposed, j, last), ahead, factors, absolute, squared, parts)


@njit(cache=True, nogil=True)
def settle_parts(
    first: int, last: int, parts: Array, reach: Array, absolute: bool, bias: Array, kind: Array, x: Array,
    scale: Array, constant: Array, spread: int, eta: Array, error: Array, kappa: Array, weighted: Array, totals: Array,
) -> None:  # fmt: skip
    """Turn the sums of a range of rows, (threads, sums, n or more), into their terms; see ``settle_block``."""
    scratch, whole = new_scratch(), np.empty((parts.shape[1], AT_ONCE), parts.dtype)
    for start in range(first, last, AT_ONCE):
        stop = min(start + AT_ONCE, last)
        sums = whole[:, : stop - start]
        for k in range(sums.shape[0]):
            total_of(parts, False, reach, start, k, sums[k])
        settle_block(start, sums, bias, kind, x, scale, constant, spread, eta, error, kappa, scratch, totals[0])
        for i in range(start, stop):
            weighted[i] = sums[1, i - start] * kappa[i] if absolute else 0


@njit(nogil=True)
def settle_block(start, sums, bias, kind, x, scale, constant, spread, eta, error, kappa, scratch, totals):  # type: ignore[no-untyped-def]
    """Turn the sums of rows from ``start`` on, (sums, rows), into their terms, and add up value and magnitude.

    The sums are those of ``parts`` above.
    """
    if kind.size == 1 and kind[0] == GAUSSIAN and spread == NO_SPREAD:
        at = slice(start, start + sums.shape[1])
        _settle_gaussian(
            sums[0], rows_of(bias, at), x[at], rows_of(scale, at), rows_of(constant, at), eta[at], error[at],
            kappa[at], totals,
        )  # fmt: skip
        return
    count = sums.shape[1]
    settle_sums(start, count, sums, spread, bias, kind, x, scale, constant, eta, error, kappa, scratch, totals)


@njit(nogil=True, fastmath=FAST)
def _settle_gaussian(linear, bias, x, scale, constant, eta, error, kappa, totals):  # type: ignore[no-untyped-def]
    """Do the same for Gaussian rows in vectors; as in ``kernels.vectors``, a loop that adds up writes nothing."""
    for i in range(eta.size):
        eta[i] = linear[i] + of_row(bias, i)
        _, error[i], kappa[i] = gaussian_terms(float(x[i]), of_row(scale, i), 0.0, float(eta[i]), 0.0)
    total, size = 0.0, 0.0
    for i in range(eta.size):
        value, e, _ = gaussian_terms(float(x[i]), of_row(scale, i), of_row(constant, i), float(eta[i]), 0.0)
        total += value
        size += abs(value) + abs(e) * (abs(float(eta[i])) + abs(float(of_row(bias, i))))
    totals[0] += total
    totals[1] += size


@njit(cache=True, nogil=True, error_model="numpy")
def step_columns(
    first: int, last: int, transposed: Array, error: Array, weighted: Array, kappa: Array, mean: Array, sd: Array,
    prior_mean: Array, precision: Array, unit: float, paper: bool, absolute: bool, squared: bool,
    next_absolute: bool, next_squared: bool, gradient: Array, slope: Array, curvature: Array, exact: Array,
    new_mean: Array, new_sd: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the forest mixture step (paper, Theorem 2), and add up the row sums where it leads.

    ``error`` is e, ``weighted`` ``s kappa``. With ``absolute`` and ``squared`` D and H are written, else they are
    taken as they are; ``paper`` says that D is what q's precision gains, as it is in the paper's bound, else H.
    ``gradient`` is what the rows say, ``slope`` that of the objective. ``totals`` gets the number of spreads that
    change by more than ``unit``, relative to what they were, and, with D or H as information, where the step begins
    ``sum_j sigma_j^2 information_j`` and ``sum_j (mu_j - prior_mean_j)^2 precision_j``.
    """
    parts[:] = 0
    products = np.zeros((3, ROWS), transposed.dtype)
    soon, later = ahead_of(transposed, 1)
    for j in range(first, last, ROWS):
        columns = tile(transposed, j, last)
        collect_columns(columns, soon, error, weighted, kappa, absolute, squared, products)
        for lane in range(min(ROWS, last - j)):
            k = j + lane
            gradient[k] = products[0, lane]
            if absolute:
                curvature[k] = products[1, lane] / sd[k]
            if squared:
                exact[k] = products[2, lane]
        move_latents(
            j, min(ROWS, last - j), mean, sd, prior_mean, precision, unit, gradient, slope, curvature,
            curvature if paper else exact, new_mean, new_sd, products, totals,
        )  # fmt: skip
        add_columns(columns, later, products, next_absolute, next_squared, parts)


@njit(forceinline=True, nogil=True)
def collect_columns(columns, ahead, error, weighted, kappa, absolute, squared, products):  # type: ignore[no-untyped-def]
    """Multiply the columns of a tile with the row terms that are asked for, while what is ``ahead`` is fetched."""
    if absolute and squared:
        forward_both(columns, ahead, error, weighted, kappa, products)
    else:
        project_rows(columns, ahead, error, weighted, kappa, absolute, squared, products)


@njit(forceinline=True, nogil=True)
def add_columns(columns, ahead, products, absolute, squared, parts):  # type: ignore[no-untyped-def]
    """Add the columns of a tile to the row sums that were asked for, while what is ``ahead`` is fetched."""
    if absolute and squared:
        adjoint_spreads(columns, ahead, products, parts[0], parts[1], parts[2])
    else:
        add_rows(columns, ahead, products, absolute, squared, parts)


@njit(forceinline=True, nogil=True, error_model="numpy")
def move_latents(  # type: ignore[no-untyped-def]
    j, count, mean, sd, prior_mean, precision, unit, gradient, slope, curvature, information, new_mean, new_sd,
    products, totals,
):  # fmt: skip
    """Move ``count`` latents from ``j`` on, and put what the row sums need of them into ``products``."""
    products[:] = 0
    for lane in range(count):
        k = j + lane
        away = mean[k] - prior_mean[k]
        slope[k] = gradient[k] - away * precision[k]
        new_mean[k] = mean[k] + slope[k] / (precision[k] + curvature[k])
        new_sd[k] = 1 / math.sqrt(precision[k] + information[k])
        totals[0] += differs(new_sd[k], sd[k], unit)
        totals[1] += float(sd[k]) ** 2 * float(information[k])
        totals[2] += float(away) ** 2 * float(precision[k])
        products[0, lane], products[1, lane], products[2, lane] = new_mean[k], new_sd[k], new_sd[k] ** 2


@njit(forceinline=True, nogil=True)
def differs(new, old, unit):  # type: ignore[no-untyped-def]
    """Return whether a spread has changed by more than ``unit`` of what it was; NaN counts as a change."""
    return not abs(new - old) <= unit * old


@njit(cache=True, nogil=True)
def conjugate_columns(
    first: int, last: int, transposed: Array, weighted: Array, length: float, direction: Array, precision: Array,
    inverse: Array, mean: Array, gradient: Array, new_mean: Array, new_gradient: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Go ``length`` along the direction p of conjugate gradients, and add up ``W P^-1 gradient`` at its end.

    ``weighted`` is ``K W p``, ``inverse`` P^-1; ``totals`` gets ``gradient^T P^-1 gradient`` at the end.
    """
    parts[:] = 0
    norm, products = 0.0, np.zeros((1, ROWS), transposed.dtype)
    soon, later = ahead_of(transposed, 1)
    for j in range(first, last, ROWS):
        columns = tile(transposed, j, last)
        forward_mean(columns, soon, weighted, products)
        for lane in range(ROWS):
            k = j + lane
            if k >= last:
                products[0, lane] = 0
                continue
            image = products[0, lane] + precision[k] * direction[k]
            new_mean[k] = mean[k] + length * direction[k]
            new_gradient[k] = gradient[k] - length * image
            products[0, lane] = new_gradient[k] * inverse[k]
            norm += float(new_gradient[k]) * float(products[0, lane])
        adjoint_mean(columns, later, products, parts[0])
    totals[0] = norm
