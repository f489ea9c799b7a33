"""One pass over a dense W: row means and spreads, row terms, gradient and curvatures.

A few rows are read from memory, give their ``m_i``, ``s_i`` and ``v_i``, and while they are still in cache are added up
into the gradient and the curvatures. A column-major W is read block by block, each block forth and back. A kernel works
on a range of rows; ``kernels.threaded`` gives each thread one.

A pass is told which curvatures to add up; ``parts`` has a row for each sum::

    parts[0]   sum_i w_ij e_i              always
    parts[1]   sum_i |w_ij| s_i kappa_i    with ``absolute``: D_j sigma_j
    parts[-1]  sum_i w_ij^2 kappa_i        with ``squared``: H_j
"""

from __future__ import annotations

import math

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.lines import ROWS
from forestmix.engines.compiled.rows import of_row, row_terms
from forestmix.engines.compiled.scratch import WIDTH, new_scratch
from forestmix.engines.compiled.settling import ABSOLUTE_SPREAD, NO_SPREAD, SQUARED_SPREAD, settle_sums
from forestmix.engines.compiled.tiles import (
    adjoint_absolute,
    adjoint_both,
    adjoint_mean,
    adjoint_squared,
    ahead_of,
    cut,
    following,
    forward_absolute,
    forward_both,
    forward_mean,
    forward_spreads,
    forward_squared,
    tile,
)  # fmt: skip

#: Rows of a column-major matrix that are worked on together, at most: columns are read in runs long enough to stream.
BLOCK = 8192
#: Where so many bytes are at least ``SHORTEST`` rows, a block has no more, so that its second reading finds it in the
#: last-level cache. Shorter runs of a column cost more than that saves.
CACHED, SHORTEST = 2**22, 512
#: Bytes of tiles that the second-level cache keeps until they are added up.
KEPT = 2**17


@njit(forceinline=True, nogil=True)
def settle_rows(top, count, products, spread, bias, kind, x, scale, constant, eta, error, kappa, totals):  # type: ignore[no-untyped-def]
    """Turn the products of ``count`` rows from ``top`` on into their terms.

    ``e``, ``s kappa`` and ``kappa`` take the place of the products. Lanes past the last row become 0.
    """
    value_total, size_total = 0.0, 0.0
    for lane in range(count):
        i = top + lane
        b = of_row(bias, i)
        m, s = products[0, lane] + b, products[1, lane]
        r = 0.0
        if spread == ABSOLUTE_SPREAD:
            r = float(s)
        elif spread == SQUARED_SPREAD:
            r = math.sqrt(products[2, lane])
        value, e, k = row_terms(of_row(kind, i), x[i], of_row(scale, i), of_row(constant, i), m, r)
        eta[i], error[i], kappa[i] = m, e, k
        products[0, lane], products[1, lane], products[2, lane] = e, s * k, k
        value_total += value
        size_total += abs(value) + abs(e) * (abs(m) + abs(b))
    products[:, count:] = 0
    totals[0] += value_total
    totals[1] += size_total


@njit(forceinline=True, nogil=True)
def replace_products(top, count, error, kappa, products):  # type: ignore[no-untyped-def]
    """Write ``e``, ``s kappa`` and ``kappa`` of rows from ``top`` on in the place of their products; 0 past them."""
    for lane in range(count):
        e, k = error[top + lane], kappa[top + lane]
        products[0, lane], products[1, lane], products[2, lane] = e, products[1, lane] * k, k
    products[:, count:] = 0


@njit(forceinline=True, nogil=True)
def project_rows(rows, ahead, mean, sd, variance, absolute, squared, products):  # type: ignore[no-untyped-def]
    """Multiply the rows of a tile with the mean and with the spreads that are asked for; ``variance`` is ``sd^2``.

    Meanwhile what is ``ahead`` is fetched.
    """
    if absolute and squared:
        forward_spreads(rows, ahead, mean, sd, products)
    elif absolute:
        forward_absolute(rows, ahead, mean, sd, products)
    elif squared:
        forward_squared(rows, ahead, mean, variance, products)
    else:
        forward_mean(rows, ahead, mean, products)


@njit(forceinline=True, nogil=True)
def add_rows(rows, ahead, products, absolute, squared, parts):  # type: ignore[no-untyped-def]
    """Add the rows of a tile to the sums that were asked for, while what is ``ahead`` is fetched."""
    if absolute and squared:
        adjoint_both(rows, ahead, products, parts[0], parts[1], parts[2])
    elif absolute:
        adjoint_absolute(rows, ahead, products, parts[0], parts[1])
    elif squared:
        adjoint_squared(rows, ahead, products, parts[0], parts[1])
    else:
        adjoint_mean(rows, ahead, products, parts[0])


@njit(cache=True, nogil=True)
def pass_rows(
    first: int, last: int, W: Array, bias: Array, kind: Array, x: Array, scale: Array, constant: Array, mean: Array,
    sd: Array, spread: int, absolute: bool, squared: bool,
    eta: Array, error: Array, kappa: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the pass over rows ``first`` to ``last`` of a row-major W, tile by tile."""
    parts[:] = 0
    products = np.zeros((3, ROWS), W.dtype)
    by_sum, by_square = absolute or spread == ABSOLUTE_SPREAD, spread == SQUARED_SPREAD
    variance = sd**2 if by_square else sd
    soon, later = ahead_of(W, 1)
    for i in range(first, last, ROWS):
        rows = tile(W, i, last)
        project_rows(rows, soon, mean, sd, variance, by_sum, by_square, products)
        settle_rows(
            i, min(ROWS, last - i), products, spread, bias, kind, x, scale, constant, eta, error, kappa, totals
        )  # fmt: skip
        add_rows(rows, later, products, absolute, squared, parts)


@njit(cache=True, nogil=True)
def pass_together(
    first: int, last: int, W: Array, bias: Array, kind: Array, x: Array, scale: Array, constant: Array, mean: Array,
    sd: Array, spread: int, absolute: bool, squared: bool,
    eta: Array, error: Array, kappa: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the same pass with terms that are taken in vectors, those of several tiles at once.

    There are as many tiles as stay in the cache between the two times that they are gone over. For terms that take less
    than those of Bernoulli rows, the detour is longer than what it saves.
    """
    parts[:] = 0
    tiles, scratch = tiles_together(W), new_scratch()
    products, sums = np.zeros((tiles, 3, ROWS), W.dtype), np.zeros((3, WIDTH), W.dtype)
    by_sum, by_square = absolute or spread == ABSOLUTE_SPREAD, spread == SQUARED_SPREAD
    variance = sd**2 if by_square else sd
    soon, later = ahead_of(W, tiles)
    for top in range(first, last, tiles * ROWS):
        stop = min(top + tiles * ROWS, last)
        for i in range(top, stop, ROWS):
            found = products[(i - top) // ROWS]
            project_rows(tile(W, i, last), soon, mean, sd, variance, by_sum, by_square, found)
            for lane in range(ROWS):
                at = i - top + lane
                sums[0, at], sums[1, at], sums[2, at] = found[0, lane], found[1, lane], found[2, lane]
        settle_sums(top, stop - top, sums, spread, bias, kind, x, scale, constant, eta, error, kappa, scratch, totals)
        for i in range(top, stop, ROWS):
            found = products[(i - top) // ROWS]
            replace_products(i, min(ROWS, last - i), error, kappa, found)
            add_rows(tile(W, i, last), later, found, absolute, squared, parts)


@njit(nogil=True)
def tiles_together(W):  # type: ignore[no-untyped-def]
    """Return how many tiles are multiplied before they are added up."""
    return max(1, min(WIDTH // ROWS, KEPT // (ROWS * W.shape[1] * W.itemsize)))


@njit(cache=True, nogil=True)
def pass_columns(
    first: int, last: int, transposed: Array, bias: Array, kind: Array, x: Array, scale: Array, constant: Array,
    mean: Array, sd: Array, spread: int, absolute: bool, squared: bool,
    eta: Array, error: Array, kappa: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the pass over the same rows of a column-major W, given as its row-major transpose, block after block."""
    parts[:] = 0
    step, scratch = block_rows(transposed), new_scratch()
    for top in range(first, last, step):
        rows = slice(top, min(top + step, last))
        sums = np.zeros((3, rows.stop - rows.start), transposed.dtype)
        _project_block(transposed, rows, mean, sd, absolute or spread != NO_SPREAD, sums)
        count = rows.stop - top
        settle_sums(top, count, sums, spread, bias, kind, x, scale, constant, eta, error, kappa, scratch, totals)
        replace_products(top, count, error, kappa, sums)
        _collect_block(transposed, rows, sums, absolute, squared, parts)


@njit(nogil=True)
def block_rows(transposed):  # type: ignore[no-untyped-def]
    """Return how many rows of a column-major W are worked on together."""
    fitting = CACHED // (transposed.shape[0] * transposed.itemsize)
    return fitting if SHORTEST <= fitting < BLOCK else BLOCK


@njit(cache=True, nogil=True)
def _project_block(transposed, rows, mean, sd, spreads, sums):  # type: ignore[no-untyped-def]
    m = transposed.shape[0]
    factor = np.zeros((3, ROWS), transposed.dtype)
    ahead = following(transposed, rows.stop - rows.start)
    for j in range(0, m, ROWS):
        factor[:] = 0
        for lane in range(min(ROWS, m - j)):
            factor[0, lane], factor[1, lane], factor[2, lane] = mean[j + lane], sd[j + lane], sd[j + lane] ** 2
        columns = cut(tile(transposed, j, m), rows)
        if spreads:
            adjoint_both(columns, ahead, factor, sums[0], sums[1], sums[2])
        else:
            adjoint_mean(columns, ahead, factor, sums[0])


@njit(cache=True, nogil=True)
def _collect_block(transposed, rows, sums, absolute, squared, parts):  # type: ignore[no-untyped-def]
    m, out = transposed.shape[0], np.zeros((3, ROWS), transposed.dtype)
    ahead = following(transposed, rows.stop - rows.start)
    for j in range(0, m, ROWS):
        columns = cut(tile(transposed, j, m), rows)
        if absolute or squared:
            forward_both(columns, ahead, sums[0], sums[1], sums[2], out)
        else:
            forward_mean(columns, ahead, sums[0], out)
        for lane in range(min(ROWS, m - j)):
            parts[0, j + lane] += out[0, lane]
            if absolute:
                parts[1, j + lane] += out[1, lane]
            if squared:
                parts[parts.shape[0] - 1, j + lane] += out[2, lane]


@njit(cache=True, nogil=True)
def normal_rows(first: int, last: int, W: Array, direction: Array, kappa: Array, parts: Array, totals: Array) -> None:
    """Add up ``W^T diag(kappa) W p`` and ``(W p)^T diag(kappa) W p`` over a range of rows of a row-major W."""
    parts[:] = 0
    form, products = 0.0, np.zeros((1, ROWS), W.dtype)
    soon, later = ahead_of(W, 1)
    for i in range(first, last, ROWS):
        rows = tile(W, i, last)
        forward_mean(rows, soon, direction, products)
        for lane in range(ROWS):
            image = products[0, lane]
            products[0, lane] = image * kappa[i + lane] if i + lane < last else 0
            form += float(image) * float(products[0, lane])
        adjoint_mean(rows, later, products, parts[0])
    totals[0] = form


@njit(cache=True, nogil=True)
def normal_columns(
    first: int, last: int, transposed: Array, direction: Array, kappa: Array, parts: Array, totals: Array
) -> None:
    """Do the same for a column-major W, given as its row-major transpose."""
    parts[:] = 0
    form = 0.0
    step = block_rows(transposed)
    for top in range(first, last, step):
        rows = slice(top, min(top + step, last))
        sums = np.zeros((3, rows.stop - rows.start), transposed.dtype)
        _project_block(transposed, rows, direction, direction, False, sums)
        for i in range(rows.start, rows.stop):
            image = sums[0, i - top]
            sums[0, i - top] = image * kappa[i]
            form += float(image) * float(sums[0, i - top])
        _collect_block(transposed, rows, sums, False, False, parts)
    totals[0] = form
