"""Products with the weights of a convolution, as sums over taps: the entries of a kernel that are not zero.

With ``f`` the identity, the absolute value or the square, and a source that is zero outside::

    result[o, p, q] = sum_{i, a, b} f(kernels[o, i, a, b]) source[i, p + down + a, q + across + b]

That is W^T r. It is W y as well, for the kernels turned around: both directions are gathers, and no two results share a
sum that threads would have to divide.

A task is a band of rows of a few result channels. It copies the rows of the source under it into a buffer with a border
of zeros, whose rows are as long as those that it sums into. So a tap is one offset for the whole band, and the sum is a
loop over neighbours in memory that knows no edges; what it computes across the border, between two rows, is dropped.
Neither tasks nor sums depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit

#: Results of a band, for its sums to stay in the first-level cache.
BAND = 2048
#: Result channels of a task: they share its buffer.
CHANNELS = 4
#: Multiplications in the time that reading an entry of a large matrix takes.
CHEAP = 8


class Taps(NamedTuple):
    """Kernels for the products in one direction, and how these are divided into tasks.

    ``starts``: where the taps of each result channel start, (O + 1,); ``offsets``: from a result to its source, in the
    buffer of a task; ``values``: ``f(kernels)`` for the three f, (3, taps). ``rows``: of a band; ``height`` and
    ``width``: of a buffer; ``bands`` and ``groups``: their number for one item; ``down`` and ``across``: see above.
    """

    starts: Array
    offsets: Array
    values: Array
    rows: int
    height: int
    width: int
    bands: int
    groups: int
    down: int
    across: int


def make_taps(kernels: Array, target: tuple[int, int], shifts: tuple[int, int]) -> Taps:
    """Return the taps of (O, I, kh, kw) kernels for results of shape ``target``, where ``shifts`` is (down, across)."""
    channels, _, kernel_height, kernel_width = kernels.shape
    width = target[1] + kernel_width - 1
    rows = math.ceil(target[0] / math.ceil(target[0] * width / BAND))
    height = rows + kernel_height - 1
    o, i, a, b = np.nonzero(kernels)
    values = kernels[o, i, a, b]
    return Taps(
        np.searchsorted(o, np.arange(channels + 1)),
        (i * height + a) * width + b,
        np.stack([values, np.abs(values), np.square(values)]),
        rows, height, width, math.ceil(target[0] / rows), math.ceil(channels / CHANNELS), *shifts,
    )  # fmt: skip


# Products and sums may be fused, no more: infinities keep their meaning, and the order of a sum is that of the taps.
@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_eight(at, w, source, result):  # type: ignore[no-untyped-def]
    """Add eight taps: each is one load from the cache for one multiplication, the most that neighbours allow."""
    s0, s1, s2, s3 = source[at[0] :], source[at[1] :], source[at[2] :], source[at[3] :]
    s4, s5, s6, s7 = source[at[4] :], source[at[5] :], source[at[6] :], source[at[7] :]
    w0, w1, w2, w3, w4, w5, w6, w7 = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
    for q in range(result.shape[0]):
        first = result[q] + w0 * s0[q] + w1 * s1[q] + w2 * s2[q] + w3 * s3[q]
        result[q] = first + w4 * s4[q] + w5 * s5[q] + w6 * s6[q] + w7 * s7[q]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_one(at, w, source, result):  # type: ignore[no-untyped-def]
    s0, w0 = source[at[0] :], w[0]
    for q in range(result.shape[0]):
        result[q] += w0 * s0[q]


@njit(cache=True, nogil=True)
def _sum_taps(offsets, values, source, result):  # type: ignore[no-untyped-def]
    """Write ``sum_t values[t] source[offsets[t] + .]`` into ``result``."""
    result[:] = 0
    # A square kernel of odd side has one tap more than a multiple of eight.
    whole = offsets.shape[0] // 8 * 8
    for t in range(0, whole, 8):
        _add_eight(offsets[t:], values[t:], source, result)
    for t in range(whole, offsets.shape[0]):
        _add_one(offsets[t:], values[t:], source, result)


@njit(cache=True, nogil=True)
def _with_border(source, top, left, height, width):  # type: ignore[no-untyped-def]
    """Return rows ``top`` to ``top + height`` of the source, from column ``left`` on, flat; zero outside."""
    buffer = np.zeros((source.shape[0], height, width), source.dtype)
    first, last = max(0, -top), min(height, source.shape[1] - top)
    for i in range(source.shape[0]):
        for row in range(first, last):
            buffer[i, row, -left : source.shape[2] - left] = source[i, top + row]
    return buffer.reshape(-1)


@njit(cache=True, nogil=True)
def gather(first: int, last: int, taps: Taps, values: Array, source: Array, result: Array) -> None:
    """Do tasks ``first`` to ``last`` of the product of one f with a batch; an item has bands times groups of them.

    Args:
        first: the first task.
        last: the one after the last.
        taps: of the direction.
        values: those of the taps for this f.
        source: (N, I, rows, columns).
        result: (N, O, rows, columns).

    """
    for task in range(first, last):
        item, rest = divmod(task, taps.bands * taps.groups)
        band, group = divmod(rest, taps.groups)
        top, columns = band * taps.rows, result.shape[3]
        rows = min(taps.rows, result.shape[2] - top)
        buffer = _with_border(source[item], top + taps.down, taps.across, taps.height, taps.width)
        sums = np.empty((rows - 1) * taps.width + columns, result.dtype)
        for o in range(group * CHANNELS, min((group + 1) * CHANNELS, result.shape[1])):
            chosen = slice(taps.starts[o], taps.starts[o + 1])
            _sum_taps(taps.offsets[chosen], values[chosen], buffer, sums)
            for row in range(rows):
                result[item, o, top + row] = sums[row * taps.width : row * taps.width + columns]
