"""One pass over a sparse W by rows, as ``compiled.dense`` makes it over a dense one, and products by columns.

What belongs to one latent, its mean and sd or all of its sums, lies side by side in memory: one line of the cache for
an entry. Indices are read as unsigned, which spares a test for negative ones. Entries are gathered and scattered one by
one: vector instructions for that are slower, so only ``contract`` of ``fastmath`` is allowed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.elementary import FUSED
from forestmix.engines.compiled.rows import RowTable, finish_rows
from forestmix.engines.compiled.softplus import WIDTH

#: Entries of W that are gathered before they are scattered, at most, unless they are all of one row.
TOGETHER = 4096
#: Numbers of one latent that lie side by side: three sums have four to themselves.
STRIDE = 4


@njit(cache=True, nogil=True)
def pass_rows(
    first: int, last: int, starts: Array, columns: Array, values: Array, table: RowTable, bias: Array, factors: Array,
    spreads: bool, spread: int, eta: Array, error: Array, kappa: Array, terms: Any, work: Array, parts: Array,
    totals: Array,
) -> None:  # fmt: skip
    """Make the pass over a range of rows.

    ``factors`` is (m, 2), mean and sd; ``parts`` is (m, 1) or, with both curvatures, (m, ``STRIDE``), or (0, 1).
    """
    parts[:] = 0
    products = np.zeros((3, WIDTH), values.dtype)
    pairs, sums = factors.reshape(-1), parts.reshape(-1)
    top = first
    while top < last:
        stop = min(top + WIDTH, last)
        while stop > top + 1 and starts[stop] - starts[top] > TOGETHER:
            stop = top + (stop - top) // 2
        for i in range(top, stop):
            if spreads:
                m, s, v = _gather_three(columns, values, starts[i], starts[i + 1], pairs)
                products[0, i - top], products[1, i - top], products[2, i - top] = m, s, v
            else:
                products[0, i - top] = _gather_one(columns, values, starts[i], starts[i + 1], pairs)
        finish_rows(top, stop - top, table, bias, products, spread, eta, error, kappa, terms, work, totals)
        for i in range(top, stop):
            k = i - top
            if parts.shape[1] == STRIDE:
                e, s, h = products[0, k], products[1, k], products[2, k]
                _scatter_three(columns, values, starts[i], starts[i + 1], e, s, h, sums)
            elif parts.shape[0]:
                _scatter_one(columns, values, starts[i], starts[i + 1], products[0, k], sums)
        top = stop


@njit(cache=True, nogil=True)
def project_columns(
    first: int, last: int, starts: Array, rows: Array, values: Array, factors: Array, parts: Array
) -> None:
    """Add up the products of a range of columns into ``parts``, (n, 1) or (n, ``STRIDE``); ``factors`` as above."""
    parts[:] = 0
    sums = parts.reshape(-1)
    for j in range(first, last):
        mean, sd = factors[j, 0], factors[j, 1]
        if parts.shape[1] == STRIDE:
            _scatter_three(rows, values, starts[j], starts[j + 1], mean, sd, sd * sd, sums)
        else:
            _scatter_one(rows, values, starts[j], starts[j + 1], mean, sums)


@njit(cache=True, nogil=True)
def collect_columns(
    first: int, last: int, starts: Array, rows: Array, values: Array, factors: Array, parts: Array
) -> None:
    """Write the sums over rows of a range of columns, (m, 1 or 3); ``factors`` are ``e``, ``s kappa`` and ``kappa``."""
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
def _gather_one(columns, values, first, last, pairs):  # type: ignore[no-untyped-def]
    """Return ``w . mean``. Four sums go side by side, since each addition waits for the one before."""
    m0 = m1 = m2 = m3 = values.dtype.type(0)
    p, end = np.uint64(first), np.uint64(last)
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    while p + four <= end:
        m0 += values[p] * pairs[two * np.uint64(columns[p])]
        m1 += values[p + one] * pairs[two * np.uint64(columns[p + one])]
        m2 += values[p + two] * pairs[two * np.uint64(columns[p + two])]
        m3 += values[p + three] * pairs[two * np.uint64(columns[p + three])]
        p += four
    while p < end:
        m0 += values[p] * pairs[two * np.uint64(columns[p])]
        p += one
    return (m0 + m1) + (m2 + m3)


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def _gather_three(columns, values, first, last, pairs):  # type: ignore[no-untyped-def]
    """Return ``w . mean``, ``|w| . sd`` and ``w^2 . sd^2``, two sums of each side by side."""
    m0 = s0 = v0 = m1 = s1 = v1 = values.dtype.type(0)
    p, end, one, two = np.uint64(first), np.uint64(last), np.uint64(1), np.uint64(2)
    while p + two <= end:
        j, k = two * np.uint64(columns[p]), two * np.uint64(columns[p + one])
        a, b = abs(values[p]) * pairs[j + one], abs(values[p + one]) * pairs[k + one]
        m0 += values[p] * pairs[j]
        m1 += values[p + one] * pairs[k]
        s0 += a
        s1 += b
        v0 += a * a
        v1 += b * b
        p += two
    if p < end:
        j = two * np.uint64(columns[p])
        a = abs(values[p]) * pairs[j + one]
        m0 += values[p] * pairs[j]
        s0 += a
        v0 += a * a
    return m0 + m1, s0 + s1, v0 + v1


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def _scatter_three(columns, values, first, last, e, s, h, sums):  # type: ignore[no-untyped-def]
    """Add ``w e``, ``|w| s`` and ``w^2 h`` to the sums of each latent, three of ``STRIDE`` numbers."""
    one, two, four = np.uint64(1), np.uint64(2), np.uint64(STRIDE)
    for p in range(np.uint64(first), np.uint64(last)):
        j, w = four * np.uint64(columns[p]), values[p]
        sums[j] += w * e
        sums[j + one] += abs(w) * s
        sums[j + two] += w * w * h


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def _scatter_one(columns, values, first, last, e, sums):  # type: ignore[no-untyped-def]
    """Add ``w e`` to the sums, four entries at a time: no two of a row are of the same latent."""
    p, end = np.uint64(first), np.uint64(last)
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    while p + four <= end:
        a, b = np.uint64(columns[p]), np.uint64(columns[p + one])
        c, d = np.uint64(columns[p + two]), np.uint64(columns[p + three])
        u, v = sums[a] + values[p] * e, sums[b] + values[p + one] * e
        w, x = sums[c] + values[p + two] * e, sums[d] + values[p + three] * e
        sums[a], sums[b], sums[c], sums[d] = u, v, w, x
        p += four
    while p < end:
        sums[np.uint64(columns[p])] += values[p] * e
        p += one
