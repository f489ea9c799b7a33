"""One pass over a sparse W by rows, as ``kernels.dense`` makes it over a dense one, and products for batches.

Entries are gathered and scattered one by one, so the rest of ``fastmath`` stays off here: it would turn gathers into
vector instructions that are slower (design, part 4). Indices are read as unsigned, which spares a test for negative
ones. What belongs to one latent lies side by side in memory: one cache line serves its mean and spread, or all of its
sums.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from forestmix.arrays import Array
from forestmix.kernels.dense import ABSOLUTE_SPREAD, SQUARED_SPREAD
from forestmix.kernels.rows import row_terms

#: All that the compiler may assume: a product and a sum may be rounded once.
FUSED = {"contract"}


@njit(cache=True, nogil=True)
def pass_rows(
    begin: int, end: int, starts: Array, columns: Array, values: Array,
    bias: Array, kind: Array, x: Array, scale: Array, constant: Array, factors: Array,
    spread: int, absolute: bool, squared: bool,
    eta: Array, error: Array, kappa: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the pass over a range of rows; ``factors`` is (m, 2) with mean and sd, ``parts`` (m, sums)."""
    parts[:] = 0
    zero, total, size = values.dtype.type(0), 0.0, 0.0
    for i in range(begin, end):
        first, last = starts[i], starts[i + 1]
        if spread == SQUARED_SPREAD:
            m, s, v = _three(columns, values, first, last, factors)
        elif absolute or spread == ABSOLUTE_SPREAD:
            (m, s), v = _absolute(columns, values, first, last, factors), zero
        else:
            m, s, v = _mean(columns, values, first, last, factors), zero, zero
        m += bias[i]
        r = 0.0
        if spread == ABSOLUTE_SPREAD:
            r = float(s)
        elif spread == SQUARED_SPREAD:
            r = math.sqrt(v)
        value, e, k = row_terms(kind[i], x[i], scale[i], constant[i], m, r)
        eta[i], error[i], kappa[i] = m, e, k
        total += value
        size += abs(value) + abs(e) * (abs(m) + abs(bias[i]) + abs(x[i]))
        _scatter(columns, values, first, last, error[i], s * kappa[i], kappa[i], absolute, squared, parts)
    totals[0], totals[1] = total, size


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def _mean(columns, values, first, last, factors):  # type: ignore[no-untyped-def]
    """Return ``w . mean``. Four sums go side by side, since each addition waits for the one before."""
    m0 = m1 = m2 = m3 = values.dtype.type(0)
    p, end = np.uint64(first), np.uint64(last)
    while p + np.uint64(4) <= end:
        m0 += values[p] * factors[np.uint64(columns[p]), 0]
        m1 += values[p + np.uint64(1)] * factors[np.uint64(columns[p + np.uint64(1)]), 0]
        m2 += values[p + np.uint64(2)] * factors[np.uint64(columns[p + np.uint64(2)]), 0]
        m3 += values[p + np.uint64(3)] * factors[np.uint64(columns[p + np.uint64(3)]), 0]
        p += np.uint64(4)
    while p < end:
        m0 += values[p] * factors[np.uint64(columns[p]), 0]
        p += np.uint64(1)
    return (m0 + m1) + (m2 + m3)


@njit(forceinline=True, nogil=True)
def _absolute(columns, values, first, last, factors):  # type: ignore[no-untyped-def]
    """Return ``w . mean`` and ``|w| . sd``, each as four sums side by side."""
    m0 = m1 = m2 = m3 = s0 = s1 = s2 = s3 = values.dtype.type(0)
    p, end = np.uint64(first), np.uint64(last)
    while p + np.uint64(4) <= end:
        a, t = np.uint64(columns[p]), values[p]
        b, u = np.uint64(columns[p + np.uint64(1)]), values[p + np.uint64(1)]
        c, v = np.uint64(columns[p + np.uint64(2)]), values[p + np.uint64(2)]
        d, w = np.uint64(columns[p + np.uint64(3)]), values[p + np.uint64(3)]
        m0 += t * factors[a, 0]
        s0 += abs(t) * factors[a, 1]
        m1 += u * factors[b, 0]
        s1 += abs(u) * factors[b, 1]
        m2 += v * factors[c, 0]
        s2 += abs(v) * factors[c, 1]
        m3 += w * factors[d, 0]
        s3 += abs(w) * factors[d, 1]
        p += np.uint64(4)
    while p < end:
        a, t = np.uint64(columns[p]), values[p]
        m0 += t * factors[a, 0]
        s0 += abs(t) * factors[a, 1]
        p += np.uint64(1)
    return (m0 + m1) + (m2 + m3), (s0 + s1) + (s2 + s3)


@njit(forceinline=True, nogil=True)
def _three(columns, values, first, last, factors):  # type: ignore[no-untyped-def]
    """Return ``w . mean``, ``|w| . sd`` and ``w^2 . sd^2``, each as two sums side by side."""
    m0 = m1 = s0 = s1 = v0 = v1 = values.dtype.type(0)
    p, end = np.uint64(first), np.uint64(last)
    while p + np.uint64(2) <= end:
        j, w = np.uint64(columns[p]), values[p]
        k, u = np.uint64(columns[p + np.uint64(1)]), values[p + np.uint64(1)]
        t, x = abs(w) * factors[j, 1], abs(u) * factors[k, 1]
        m0 += w * factors[j, 0]
        m1 += u * factors[k, 0]
        s0 += t
        s1 += x
        v0 += t * t
        v1 += x * x
        p += np.uint64(2)
    if p < end:
        j, w = np.uint64(columns[p]), values[p]
        t = abs(w) * factors[j, 1]
        m0 += w * factors[j, 0]
        s0 += t
        v0 += t * t
    return m0 + m1, s0 + s1, v0 + v1


@njit(forceinline=True, nogil=True)
def _scatter(columns, values, first, last, e, sk, k, absolute, squared, sums):  # type: ignore[no-untyped-def]
    if absolute and squared:
        for p in range(np.uint64(first), np.uint64(last)):
            j, w = np.uint64(columns[p]), values[p]
            sums[j, 0] += w * e
            sums[j, 1] += abs(w) * sk
            sums[j, 2] += w * w * k
    elif absolute:
        for p in range(np.uint64(first), np.uint64(last)):
            j, w = np.uint64(columns[p]), values[p]
            sums[j, 0] += w * e
            sums[j, 1] += abs(w) * sk
    elif squared:
        for p in range(np.uint64(first), np.uint64(last)):
            j, w = np.uint64(columns[p]), values[p]
            sums[j, 0] += w * e
            sums[j, 1] += w * w * k
    else:
        _scatter_mean(columns, values, first, last, e, sums)


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def _scatter_mean(columns, values, first, last, e, sums):  # type: ignore[no-untyped-def]
    """Add ``w e`` to the first sum, four entries at a time: no two of a row are of the same latent."""
    p, end = np.uint64(first), np.uint64(last)
    while p + np.uint64(4) <= end:
        a, b = np.uint64(columns[p]), np.uint64(columns[p + np.uint64(1)])
        c, d = np.uint64(columns[p + np.uint64(2)]), np.uint64(columns[p + np.uint64(3)])
        u, v = values[p] * e, values[p + np.uint64(1)] * e
        w, x = values[p + np.uint64(2)] * e, values[p + np.uint64(3)] * e
        sums[a, 0] += u
        sums[b, 0] += v
        sums[c, 0] += w
        sums[d, 0] += x
        p += np.uint64(4)
    while p < end:
        sums[np.uint64(columns[p]), 0] += values[p] * e
        p += np.uint64(1)


@njit(cache=True, nogil=True)
def normal_rows(
    begin: int, end: int, starts: Array, columns: Array, values: Array, direction: Array, kappa: Array, parts: Array
) -> None:
    """Add up ``W^T diag(kappa) W p`` over a range of rows."""
    parts[:] = 0
    factors = direction.reshape((-1, 1))
    for i in range(begin, end):
        first, last = starts[i], starts[i + 1]
        _scatter_mean(columns, values, first, last, kappa[i] * _mean(columns, values, first, last, factors), parts)


@njit(cache=True, nogil=True)
def add_up(first: int, last: int, parts: Array, out: Array) -> None:
    """Write the sums of all threads for a range of latents, in their order, each sum in a row of its own."""
    for j in range(first, last):
        for k in range(parts.shape[2]):
            total = parts[0, j, k]
            for t in range(1, parts.shape[0]):
                total += parts[t, j, k]
            out[k, j] = total


@njit(cache=True, nogil=True)
def project_rows(
    begin: int, end: int, starts: Array, columns: Array, values: Array, mean: Array, sd: Array,
    forward: bool, absolute: bool, squared: bool, first: Array, second: Array, third: Array,
) -> None:  # fmt: skip
    """Add ``W mean``, ``|W| sd`` and ``(W∘W) sd^2``, those asked for; factors are (m, N), sums (n, N)."""
    for i in range(begin, end):
        for p in range(starts[i], starts[i + 1]):
            j, w = columns[p], values[p]
            if forward:
                for k in range(mean.shape[1]):
                    first[i, k] += w * mean[j, k]
            if absolute:
                for k in range(sd.shape[1]):
                    second[i, k] += abs(w) * sd[j, k]
            if squared:
                for k in range(sd.shape[1]):
                    third[i, k] += (w * sd[j, k]) ** 2


@njit(cache=True, nogil=True)
def collect_observations(
    cuts: Array, starts: Array, columns: Array, values: Array, error: Array, absolute: Array, squared: Array,
    first: Array, second: Array, third: Array,
) -> None:  # fmt: skip
    """Add ``W^T error``, ``|W|^T absolute`` and ``(W∘W)^T squared`` for a range of observations of each factor.

    The factors are (n, N), the sums (m, N); row f of ``cuts`` has the range of factor f. Threads with ranges of their
    own never write to the same entry.
    """
    for i in range(starts.shape[0] - 1):
        for p in range(starts[i], starts[i + 1]):
            j, w = columns[p], values[p]
            for k in range(cuts[0, 0], cuts[0, 1]):
                first[j, k] += w * error[i, k]
            for k in range(cuts[1, 0], cuts[1, 1]):
                second[j, k] += abs(w) * absolute[i, k]
            for k in range(cuts[2, 0], cuts[2, 1]):
                third[j, k] += w * w * squared[i, k]
