"""One pass over a sparse W by rows, as ``kernels.dense`` makes it over a dense one, and products for batches.

Entries are gathered and scattered one by one, so the rest of ``fastmath`` stays off here: it would turn gathers into
vector instructions that are slower. What belongs to one latent, its mean and spread or all of its
sums, lies side by side in memory and is worked on as one vector (``kernels.gathers``). Indices are read as unsigned,
which spares a test for negative ones, and arrays as flat ones with a stride that is written out, since Numba would
multiply each index with one that it does not know.
"""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.gathers import gather_three, gather_two, scatter_three, scatter_two
from forestmix.engines.compiled.lines import LINE, ask
from forestmix.engines.compiled.rows import of_row, row_terms
from forestmix.engines.compiled.scratch import WIDTH, new_scratch
from forestmix.engines.compiled.settling import SQUARED_SPREAD, settle_sums

#: All that the compiler may assume: a product and a sum may be rounded once.
FUSED = {"contract"}
#: Entries of W that are gathered before they are scattered, at most, unless they are all of one row.
TOGETHER = 4096
#: Steps of an index: sums of signed and unsigned numbers would be floats.
ONE, TWO, THREE, FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


def stride(sums: int) -> int:
    """Return how far apart the sums of two latents lie: three of them have a vector of four to themselves."""
    return 4 if sums == 3 else sums


@njit(cache=True, nogil=True)
def pass_rows(
    begin: int, end: int, low: int, high: int, starts: Array, columns: Array, values: Array,
    bias: Array, kind: Array, x: Array, scale: Array, constant: Array, factors: Array,
    spread: int, absolute: bool, squared: bool,
    eta: Array, error: Array, kappa: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the pass over a range of rows, whose entries are in columns from ``low`` to ``high``.

    No spread enters their terms, which take so little that each row is gathered and scattered by itself.
    ``factors`` is (m, 2), mean and sd; ``parts`` is (m, ``stride(sums)``), of which only these columns are written.
    """
    parts[low:high] = 0
    pairs, sums, zero = factors.reshape(-1), parts.reshape(-1), values.dtype.type(0)
    total, size = 0.0, 0.0
    for i in range(begin, end):
        first, last = starts[i], starts[i + 1]
        if absolute:
            m, s = gather_two(columns, values, first, last, pairs)
        else:
            m, s = mean_of(columns, values, first, last, pairs, TWO), zero
        b = of_row(bias, i)
        m += b
        value, e, k = row_terms(of_row(kind, i), x[i], of_row(scale, i), of_row(constant, i), m, 0.0)
        eta[i], error[i], kappa[i] = m, e, k
        total += value
        size += abs(value) + abs(e) * (abs(m) + abs(b))
        scatter(columns, values, first, last, error[i], s * kappa[i], kappa[i], absolute, squared, sums)
    totals[0], totals[1] = total, size


@njit(cache=True, nogil=True)
def pass_together(
    begin: int, end: int, low: int, high: int, starts: Array, columns: Array, values: Array,
    bias: Array, kind: Array, x: Array, scale: Array, constant: Array, factors: Array,
    spread: int, absolute: bool, squared: bool,
    eta: Array, error: Array, kappa: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Make the same pass where a spread enters the terms, some rows at a time, so that these are taken in vectors.

    The next rows are asked for meanwhile: while these are in the cache, nothing else would be read from memory.
    """
    parts[low:high] = 0
    pairs, sums, scratch = factors.reshape(-1), parts.reshape(-1), new_scratch()
    found = np.zeros((3, WIDTH), values.dtype)
    top = begin
    while top < end:
        count = _rows_together(starts, top, end)
        for k in range(count):
            if k % 2 == 0:
                _ask_for_row(starts, columns, values, top + count + k, end)
            first, last = starts[top + k], starts[top + k + 1]
            if spread == SQUARED_SPREAD:
                found[0, k], found[1, k], found[2, k] = gather_three(columns, values, first, last, pairs)
            else:
                found[0, k], found[1, k] = gather_two(columns, values, first, last, pairs)
        settle_sums(top, count, found, spread, bias, kind, x, scale, constant, eta, error, kappa, scratch, totals)
        for k in range(count):
            i = top + k
            if k % 2 == 1:
                _ask_for_row(starts, columns, values, i + count, end)
            s = found[1, k] * kappa[i]
            scatter(columns, values, starts[i], starts[i + 1], error[i], s, kappa[i], absolute, squared, sums)
        top += count


@njit(forceinline=True, nogil=True)
def _rows_together(starts, top, end):  # type: ignore[no-untyped-def]
    """Return how many rows from ``top`` on are gathered before they are scattered."""
    last = min(top + WIDTH, end)
    while last > top + 1 and starts[last] - starts[top] > TOGETHER:
        last = top + (last - top) // 2
    return last - top


@njit(forceinline=True, nogil=True)
def _ask_for_row(starts, columns, values, i, end):  # type: ignore[no-untyped-def]
    """Ask for the entries of a row that is read later, if there is one, and not so many that they would be dropped."""
    if i < end and starts[i + 1] - starts[i] <= TOGETHER:
        for p in range(starts[i], starts[i + 1], LINE // values.itemsize):
            ask(values, p)
        for p in range(starts[i], starts[i + 1], LINE // columns.itemsize):
            ask(columns, p)


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def mean_of(columns, values, first, last, factors, stride):  # type: ignore[no-untyped-def]
    """Return ``w . mean``. Four sums go side by side, since each addition waits for the one before."""
    m0 = m1 = m2 = m3 = values.dtype.type(0)
    p, end = np.uint64(first), np.uint64(last)
    while p + FOUR <= end:
        m0 += values[p] * factors[stride * np.uint64(columns[p])]
        m1 += values[p + ONE] * factors[stride * np.uint64(columns[p + ONE])]
        m2 += values[p + TWO] * factors[stride * np.uint64(columns[p + TWO])]
        m3 += values[p + THREE] * factors[stride * np.uint64(columns[p + THREE])]
        p += FOUR
    while p < end:
        m0 += values[p] * factors[stride * np.uint64(columns[p])]
        p += ONE
    return (m0 + m1) + (m2 + m3)


@njit(forceinline=True, nogil=True)
def scatter(columns, values, first, last, e, sk, k, absolute, squared, sums):  # type: ignore[no-untyped-def]
    """Add ``w e``, ``|w| sk`` and ``w^2 k`` of entries to their sums, the last two where they are asked for."""
    if absolute and squared:
        scatter_three(columns, values, first, last, e, sk, k, sums)
    elif absolute:
        scatter_two(columns, values, first, last, e, sk, sums)
    elif squared:
        for p in range(np.uint64(first), np.uint64(last)):
            j, w = TWO * np.uint64(columns[p]), values[p]
            sums[j] += w * e
            sums[j + ONE] += w * w * k
    else:
        scatter_mean(columns, values, first, last, e, sums)


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def scatter_mean(columns, values, first, last, e, sums):  # type: ignore[no-untyped-def]
    """Add ``w e`` to the sums, four entries at a time: no two of a row are of the same latent."""
    p, end = np.uint64(first), np.uint64(last)
    while p + FOUR <= end:
        a, b = np.uint64(columns[p]), np.uint64(columns[p + ONE])
        c, d = np.uint64(columns[p + TWO]), np.uint64(columns[p + THREE])
        u, v = values[p] * e, values[p + ONE] * e
        w, x = values[p + TWO] * e, values[p + THREE] * e
        sums[a] += u
        sums[b] += v
        sums[c] += w
        sums[d] += x
        p += FOUR
    while p < end:
        sums[np.uint64(columns[p])] += values[p] * e
        p += ONE


@njit(cache=True, nogil=True)
def normal_rows(
    begin: int, end: int, low: int, high: int, starts: Array, columns: Array, values: Array, direction: Array,
    kappa: Array, parts: Array, totals: Array,
) -> None:  # fmt: skip
    """Add up ``W^T diag(kappa) W p`` and ``(W p)^T diag(kappa) W p`` over a range of rows."""
    parts[low:high] = 0
    sums, form = parts.reshape(-1), 0.0
    for i in range(begin, end):
        first, last = starts[i], starts[i + 1]
        image = mean_of(columns, values, first, last, direction, ONE)
        weighted = kappa[i] * image
        form += float(weighted) * float(image)
        scatter_mean(columns, values, first, last, weighted, sums)
    totals[0] = form


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
