"""The terms of a few rows at a time, whose means and spreads are known: what ``rows.row_terms`` has for one.

Where all rows are of one family, apart from those that are missing, Bernoulli and Poisson rows are computed in vectors.
"""

from __future__ import annotations

import math

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.elementary import FUSED, exponential, exponential_minus_one, logarithm
from forestmix.engines.compiled.rows import BERNOULLI, GAUSSIAN, MISSING, POISSON, gaussian_terms, of_row, row_terms
from forestmix.engines.compiled.scratch import ERROR, KAPPA, MEAN, SPREAD, VALUE, WIDTH, filled_up, line, new_scratch
from forestmix.engines.compiled.softplus import fill_expectations
from forestmix.engines.compiled.terms import FAST

#: What spread enters the row terms: none where curvature is constant, else that of the objective.
NO_SPREAD, ABSOLUTE_SPREAD, SQUARED_SPREAD = 0, 1, 2
SPREADS = {None: NO_SPREAD, "fm": ABSOLUTE_SPREAD, "elbo": SQUARED_SPREAD}
#: Rows of several families.
_SEVERAL = -1


@njit(nogil=True)
def settle_sums(start, count, sums, spread, bias, kind, x, scale, constant, eta, error, kappa, scratch, totals):  # type: ignore[no-untyped-def]
    """Turn the sums of ``count`` rows from ``start`` on into their terms, and add up value and magnitude.

    ``sums`` has a column for each row: its mean without the bias, ``sum_j |w_ij| sigma_j`` and, in its last row,
    ``sum_j w_ij^2 sigma_j^2``, of the last two what ``spread`` needs. Other arguments are those of ``settle``.
    """
    mean, width, squared = line(scratch, MEAN), line(scratch, SPREAD), sums.shape[0] - 1
    for first in range(0, count, WIDTH):
        number = min(WIDTH, count - first)
        for k in range(number):
            i = start + first + k
            eta[i] = sums[0, first + k] + of_row(bias, i)
            mean[k], width[k] = eta[i], 0.0
            if spread == ABSOLUTE_SPREAD:
                width[k] = sums[1, first + k]
            elif spread == SQUARED_SPREAD:
                width[k] = math.sqrt(sums[squared, first + k])
        settle(start + first, number, bias, kind, x, scale, constant, error, kappa, scratch, totals)


@njit(nogil=True, inline="always")
def settle(start, count, bias, kind, x, scale, constant, error, kappa, scratch, totals):  # type: ignore[no-untyped-def]
    """Write ``e`` and ``kappa`` of ``count`` rows from ``start`` on, and add up their terms and the size of these.

    Arguments are those of ``fill_terms``; ``bias`` too may have one entry that serves all rows.
    """
    fill_terms(start, count, kind, x, scale, constant, scratch)
    e, curvature = line(scratch, ERROR), line(scratch, KAPPA)
    for k in range(count):
        error[start + k], kappa[start + k] = e[k], curvature[k]
    _add_up(start, count, bias, scratch, totals)


@njit(nogil=True, inline="always")
def fill_terms(start, count, kind, x, scale, constant, scratch):  # type: ignore[no-untyped-def]
    """Write the terms of ``count`` rows from ``start`` on into the scratch, where their means and spreads are.

    There are at most ``scratch.WIDTH`` of them. ``kind``, ``scale`` and ``constant`` may have one entry that serves all
    rows.
    """
    family = _family_of(start, count, kind)
    if family == GAUSSIAN:
        _settle_gaussian(start, count, x, scale, constant, scratch)
    elif family == BERNOULLI:
        _settle_bernoulli(start, count, x, scratch)
    elif family == POISSON:
        _settle_poisson(start, count, x, constant, scratch)
    else:
        _settle_each(start, count, kind, x, scale, constant, scratch)
    if kind.size > 1:
        value, error, kappa = line(scratch, VALUE), line(scratch, ERROR), line(scratch, KAPPA)
        for k in range(count):
            if kind[start + k] == MISSING:
                value[k], error[k], kappa[k] = 0.0, 0.0, 0.0


@njit(nogil=True, fastmath=FAST)
def _add_up(start, count, bias, scratch, totals):  # type: ignore[no-untyped-def]
    """Add up the terms of rows, and their size; as in ``kernels.vectors``, a loop that adds up writes nothing."""
    mean, value, e = line(scratch, MEAN), line(scratch, VALUE), line(scratch, ERROR)
    total, size = 0.0, 0.0
    for k in range(count):
        total += value[k]
        size += abs(value[k]) + abs(e[k]) * (abs(mean[k]) + abs(of_row(bias, start + k)))
    totals[0] += total
    totals[1] += size


@njit(nogil=True)
def _family_of(start, count, kind):  # type: ignore[no-untyped-def]
    """Return the family of all rows that are there, or ``_SEVERAL``."""
    if kind.size == 1:
        return kind[0]
    family = MISSING
    for k in range(count):
        one = kind[start + k]
        if one != MISSING and one != family:
            if family != MISSING:
                return _SEVERAL
            family = one
    return family


@njit(nogil=True, fastmath=FUSED)
def _settle_gaussian(start, count, x, scale, constant, scratch):  # type: ignore[no-untyped-def]
    mean, spread = line(scratch, MEAN), line(scratch, SPREAD)
    value, error, kappa = line(scratch, VALUE), line(scratch, ERROR), line(scratch, KAPPA)
    for k in range(count):
        value[k], error[k], kappa[k] = gaussian_terms(
            x[start + k], of_row(scale, start + k), of_row(constant, start + k), mean[k], spread[k]
        )


@njit(nogil=True, inline="always")
def _settle_each(start, count, kind, x, scale, constant, scratch):  # type: ignore[no-untyped-def]
    mean, spread = line(scratch, MEAN), line(scratch, SPREAD)
    value, error, kappa = line(scratch, VALUE), line(scratch, ERROR), line(scratch, KAPPA)
    for k in range(count):
        i = start + k
        value[k], error[k], kappa[k] = row_terms(
            of_row(kind, i), x[i], of_row(scale, i), of_row(constant, i), mean[k], spread[k]
        )


@njit(nogil=True, inline="always")
def _settle_bernoulli(start, count, x, scratch):  # type: ignore[no-untyped-def]
    fill_expectations(count, scratch)
    mean, value, error = line(scratch, MEAN), line(scratch, VALUE), line(scratch, ERROR)
    for k in range(count):
        m, y, slope = mean[k], float(x[start + k]), error[k]
        # E sigma(eta) and E sigma(-eta), neither as the difference of numbers near one.
        success, failure = (1 - slope, slope) if m > 0 else (slope, 1 - slope)
        above, below = value[k] + max(m, 0.0), value[k] + max(-m, 0.0)
        value[k] = -(y * below + (1 - y) * above)
        error[k] = y * failure - (1 - y) * success


@njit(nogil=True, fastmath=FUSED)
def _settle_poisson(start, count, x, constant, scratch):  # type: ignore[no-untyped-def]
    """Write the terms relative to the count, as ``rows`` does."""
    mean, spread = line(scratch, MEAN), line(scratch, SPREAD)
    value, error, kappa = line(scratch, VALUE), line(scratch, ERROR), line(scratch, KAPPA)
    for k in range(count):
        value[k] = x[start + k]
        error[k] = of_row(constant, start + k)
    for k in range(count, filled_up(count)):
        mean[k], spread[k], value[k], error[k] = 0.0, 0.0, 0.0, 0.0
    for k in range(filled_up(count)):
        y, growth = value[k], 0.5 * spread[k] * spread[k]
        log_rate = mean[k] + growth
        rate = exponential(log_rate)
        # Past 1000 the exponential is infinite anyway; a finite d keeps infinity minus infinity away.
        d = log_rate - logarithm(y if y > 0 else 1.0)
        d = 1000.0 if d > 1000.0 else d
        jump = exponential_minus_one(d)
        term = -y * ((jump - d) + growth) - error[k]
        value[k], error[k], kappa[k] = (-rate if y == 0 else term), (-rate if y == 0 else -y * jump), rate


@njit(cache=True, nogil=True)
def settle_rows(
    first: int, last: int, kind: Array, x: Array, scale: Array, constant: Array, bias: Array, eta: Array,
    spread: Array, error: Array, kappa: Array, totals: Array,
) -> None:  # fmt: skip
    """Write ``e`` and ``kappa`` of a range of rows, and add up their log-likelihoods and the size of the terms.

    For all observations of a batch: ``kind``, ``constant`` and ``spread`` may have one row that serves all, and
    ``spread`` none where curvature is constant. ``totals`` is (N, 2), of zeros.
    """
    scratch = new_scratch()
    mean, width = line(scratch, MEAN), line(scratch, SPREAD)
    for k in range(eta.shape[0]):
        kinds, constants = kind[k if kind.shape[0] > 1 else 0], constant[k if constant.shape[0] > 1 else 0]
        for start in range(first, last, WIDTH):
            count = min(WIDTH, last - start)
            for i in range(count):
                mean[i] = eta[k, start + i]
                width[i] = spread[k if spread.shape[0] > 1 else 0, start + i] if spread.shape[0] else 0.0
            settle(start, count, bias, kinds, x[k], scale, constants, error[k], kappa[k], scratch, totals[k])
