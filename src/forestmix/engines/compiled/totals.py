"""The sum of all entries of an array, as fast as the memory brings them."""

from __future__ import annotations

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.terms import FAST


@njit(cache=True, nogil=True, fastmath=FAST)
def add_entries(first: int, last: int, entries: Array, totals: Array) -> None:
    """Add up a range of entries, (k,), in four places at a time, which keeps more of the memory's loads under way."""
    quarter = (last - first) // 4
    a, b, c = entries[first:], entries[first + quarter :], entries[first + 2 * quarter :]
    d = entries[first + 3 * quarter : last]
    total = 0.0
    for j in range(quarter):
        total += (a[j] + b[j]) + (c[j] + d[j])
    for j in range(quarter, d.shape[0]):
        total += d[j]
    totals[0, 0] = total
