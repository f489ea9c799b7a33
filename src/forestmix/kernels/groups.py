"""Spread and curvature when Jensen's inequality is used inside groups of latents only (design 1.2).

With ``s_iG = sum_{j in G} |w_ij| sigma_j``, the spread is ``s_i^2 = sum_G s_iG^2`` and the curvature of a member j of G
is ``D_j = (1 / sigma_j) sum_i |w_ij| s_iG kappa_i``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from forestmix.arrays import Array


@njit(cache=True, nogil=True)
def _group_spread(starts, rows, values, members, sd, spread):  # type: ignore[no-untyped-def]
    for j in members:
        for p in range(starts[j], starts[j + 1]):
            spread[rows[p]] += abs(values[p]) * sd[j]


@njit(cache=True, nogil=True)
def _clear(starts, rows, members, spread):  # type: ignore[no-untyped-def]
    for j in members:
        for p in range(starts[j], starts[j + 1]):
            spread[rows[p]] = 0


@njit(cache=True, nogil=True)
def group_spread_squared(
    starts: Array, rows: Array, values: Array, group_starts: Array, members: Array, sd: Array, total: Array
) -> None:
    """Add ``sum_G s_iG^2`` to ``total``, (N, n); ``sd`` is (N, m)."""
    spread = np.zeros(total.shape[1], total.dtype)
    for k in range(sd.shape[0]):
        for g in range(group_starts.shape[0] - 1):
            group = members[group_starts[g] : group_starts[g + 1]]
            _group_spread(starts, rows, values, group, sd[k], spread)
            for j in group:
                for p in range(starts[j], starts[j + 1]):
                    # The first member to reach a row takes its whole square; the row is then cleared for the others.
                    total[k, rows[p]] += spread[rows[p]] ** 2
                    spread[rows[p]] = 0


@njit(cache=True, nogil=True)
def group_curvature(
    starts: Array,
    rows: Array,
    values: Array,
    group_starts: Array,
    members: Array,
    sd: Array,
    kappa: Array,
    out: Array,
) -> None:
    """Write ``D_j`` into ``out``, (N, m); ``sd`` is (N, m) and ``kappa`` is (N, n)."""
    spread = np.zeros(kappa.shape[1], out.dtype)
    for k in range(sd.shape[0]):
        for g in range(group_starts.shape[0] - 1):
            group = members[group_starts[g] : group_starts[g + 1]]
            _group_spread(starts, rows, values, group, sd[k], spread)
            for j in group:
                total = 0.0
                for p in range(starts[j], starts[j + 1]):
                    total += abs(values[p]) * spread[rows[p]] * kappa[k, rows[p]]
                out[k, j] = total / sd[k, j]
            _clear(starts, rows, group, spread)
