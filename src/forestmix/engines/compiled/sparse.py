"""One pass over a sparse W by rows, as ``compiled.dense`` makes it over a dense one, and products by columns.

What belongs to one latent, its mean and sd or all of its sums, lies side by side in memory: one line of the cache for
an entry, and one vector of two numbers (``compiling.PairedNumbers``). Indices are read as unsigned, which spares a test
for negative ones. Entries are gathered and scattered one by one: vector instructions for that are slower, so only
``contract`` of ``fastmath`` is allowed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.elementary import FUSED
from forestmix.engines.compiled.rows import SQUARED_SPREAD, Table, finish_rows, new_workspace, of_row
from forestmix.engines.compiled.softplus import WIDTH

#: Entries of W that are gathered before they are scattered, at most, unless they are all of one row.
TOGETHER = 4096


@njit(cache=True, nogil=True)
def pass_rows(
    first: int, last: int, starts: Array, columns: Array, values: Array, table: Table, factors: Array,
    spreads: bool, spread: int, found: tuple[Array, Array, Array], terms: Any, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the pass over a range of rows.

    ``factors`` is (m, 2), mean and sd; ``parts`` is (m, 0 to 3), how many of the sums are asked for.
    """
    work, products = new_workspace(), np.zeros((3, WIDTH), values.dtype)
    pairs, sums = factors.reshape(-1), parts.reshape(-1)
    sums[:] = 0
    top = first
    while top < last:
        stop = min(top + WIDTH, last)
        while stop > top + 1 and starts[stop] - starts[top] > TOGETHER:
            stop = top + (stop - top) // 2
        for k in range(stop - top):
            low, high = starts[top + k], starts[top + k + 1]
            if spread == SQUARED_SPREAD:
                products[0, k], products[1, k], products[2, k] = _gather(columns, values, low, high, pairs)
            elif spreads:
                products[0, k], products[1, k], _ = _gather(columns, values, low, high, pairs)
            else:
                products[0, k], _, _ = _gather(columns, values, low, high, pairs)
        finish_rows(top, stop - top, table, products, 0, spread, found, terms, work, totals)
        for k in range(stop - top):
            low, high = starts[top + k], starts[top + k + 1]
            _scatter(columns, values, low, high, products[0, k], products[1, k], products[2, k], parts.shape[1], sums)
        top = stop


@njit(cache=True, nogil=True)
def normal_rows(
    first: int, last: int, starts: Array, columns: Array, values: Array, kappa: Array, p: Array, sums: Array,
    totals: Array,
) -> None:  # fmt: skip
    """Write the part of a range of rows in ``W^T K W p``, (m,), and in ``p^T W^T K W p``; ``kappa`` is (n or 1).

    It is the pass of quadratic rows without the table of these, which takes long beside a short row.
    """
    sums[:] = 0
    totals[0] = 0
    for i in range(first, last):
        image = _dot(columns, values, starts[i], starts[i + 1], p)
        weighted = of_row(kappa, i) * image
        _scatter(columns, values, starts[i], starts[i + 1], weighted, weighted, weighted, 1, sums)
        totals[0] += image * weighted


@njit(cache=True, nogil=True)
def project_columns(
    first: int, last: int, starts: Array, rows: Array, values: Array, factors: Array, parts: Array
) -> None:
    """Add the products of a range of columns with ``factors``, (m, 3), to ``parts``, (n, 1 or 3)."""
    sums = parts.reshape(-1)
    for j in range(first, last):
        given = factors[j, 0], factors[j, 1], factors[j, 2]
        _scatter(rows, values, starts[j], starts[j + 1], *given, parts.shape[1], sums)


@njit(cache=True, nogil=True)
def collect_columns(
    first: int, last: int, starts: Array, rows: Array, values: Array, factors: Array, parts: Array
) -> None:
    """Write the sums over rows of a range of columns into ``parts``, (m, 1 or 3); ``factors`` are (n, 3)."""
    for j in range(first, last):
        e = s = h = values.dtype.type(0)
        for p in range(starts[j], starts[j + 1]):
            w, i = values[p], np.uint64(rows[p])
            e += w * factors[i, 0]
            if parts.shape[1] > 1:
                s += abs(w) * factors[i, 1]
                h += w * w * factors[i, 2]
        parts[j, 0] = e
        if parts.shape[1] > 1:
            parts[j, 1], parts[j, 2] = s, h


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def _dot(columns, values, first, last, p):  # type: ignore[no-untyped-def]
    """Return ``w . p``, four sums side by side, as in ``_gather``."""
    m0 = m1 = m2 = m3 = values.dtype.type(0)
    k, end = np.uint64(first), np.uint64(last)
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    while k + four <= end:
        m0 += values[k] * p[np.uint64(columns[k])]
        m1 += values[k + one] * p[np.uint64(columns[k + one])]
        m2 += values[k + two] * p[np.uint64(columns[k + two])]
        m3 += values[k + three] * p[np.uint64(columns[k + three])]
        k += four
    while k < end:
        m0 += values[k] * p[np.uint64(columns[k])]
        k += one
    return (m0 + m1) + (m2 + m3)


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def _gather(columns, values, first, last, pairs):  # type: ignore[no-untyped-def]
    """Return ``w . mean``, ``|w| . sd`` and ``w^2 . sd^2``; the compiler drops those that the caller does not use.

    Four sums of each go side by side, since each addition waits for the one before.
    """
    m0 = m1 = m2 = m3 = s0 = s1 = s2 = s3 = v0 = v1 = v2 = v3 = values.dtype.type(0)
    p, end = np.uint64(first), np.uint64(last)
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    while p + four <= end:
        i, j = two * np.uint64(columns[p]), two * np.uint64(columns[p + one])
        k, n = two * np.uint64(columns[p + two]), two * np.uint64(columns[p + three])
        a, b = abs(values[p]) * pairs[i + one], abs(values[p + one]) * pairs[j + one]
        c, d = abs(values[p + two]) * pairs[k + one], abs(values[p + three]) * pairs[n + one]
        m0, m1 = m0 + values[p] * pairs[i], m1 + values[p + one] * pairs[j]
        m2, m3 = m2 + values[p + two] * pairs[k], m3 + values[p + three] * pairs[n]
        s0, s1, s2, s3 = s0 + a, s1 + b, s2 + c, s3 + d
        v0, v1, v2, v3 = v0 + a * a, v1 + b * b, v2 + c * c, v3 + d * d
        p += four
    while p < end:
        i = two * np.uint64(columns[p])
        a = abs(values[p]) * pairs[i + one]
        m0, s0, v0 = m0 + values[p] * pairs[i], s0 + a, v0 + a * a
        p += one
    return (m0 + m1) + (m2 + m3), (s0 + s1) + (s2 + s3), (v0 + v1) + (v2 + v3)


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def _scatter(columns, values, first, last, e, s, h, count, sums):  # type: ignore[no-untyped-def]
    """Add ``w e``, ``|w| s`` and ``w^2 h``, the first ``count`` of them, to the sums of each latent."""
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    if count == 1:
        for p in range(np.uint64(first), np.uint64(last)):
            sums[np.uint64(columns[p])] += values[p] * e
    elif count == 2:
        for p in range(np.uint64(first), np.uint64(last)):
            j, w = two * np.uint64(columns[p]), values[p]
            sums[j] += w * e
            sums[j + one] += abs(w) * s
    elif count == 3:
        for p in range(np.uint64(first), np.uint64(last)):
            j, w = three * np.uint64(columns[p]), values[p]
            sums[j] += w * e
            sums[j + one] += abs(w) * s
            sums[j + two] += w * w * h
