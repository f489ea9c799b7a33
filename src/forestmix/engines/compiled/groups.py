"""Spread and curvature when Jensen's inequality is used inside groups of latents only (docs/guide.md).

With ``s_iG = sum_{j in G} |w_ij| sigma_j``, the spread is ``s_i^2 = sum_G s_iG^2`` and the curvature of a member j of G
is ``D_j = (1 / sigma_j) sum_i |w_ij| s_iG kappa_i``.
"""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.columns import Columns, column, keep_together, new_panel
from forestmix.engines.compiled.compiling import njit


@njit(cache=True, nogil=True)
def _group_spread(columns, members, low, high, panel, sd, spread):  # type: ignore[no-untyped-def]
    """Add ``s_iG`` of the members at the positions from ``low`` to ``high`` to ``spread``."""
    keep_together(panel, low, high)
    for position in range(low, high):
        rows, values = column(columns, members, position, panel)
        for p in range(rows.shape[0]):
            spread[rows[p]] += abs(values[p]) * sd[members[position]]


@njit(cache=True, nogil=True)
def group_spread_squared(columns: Columns, group_starts: Array, members: Array, sd: Array, total: Array) -> None:
    """Add ``sum_G s_iG^2`` to ``total``, (N, n); ``sd`` is (N, m)."""
    spread, panel = np.zeros(total.shape[1], total.dtype), new_panel(columns)
    for k in range(sd.shape[0]):
        for g in range(group_starts.shape[0] - 1):
            low, high = group_starts[g], group_starts[g + 1]
            _group_spread(columns, members, low, high, panel, sd[k], spread)
            for position in range(low, high):
                for i in column(columns, members, position, panel)[0]:
                    # The first member to reach a row takes its whole square; the row is then cleared for the others.
                    total[k, i] += spread[i] ** 2
                    spread[i] = 0
                if columns.row_step > 0:
                    break


@njit(cache=True, nogil=True)
def group_curvature(columns: Columns, group_starts: Array, members: Array, sd: Array, kappa: Array, out: Array) -> None:
    """Write ``D_j`` into ``out``, (N, m); ``sd`` is (N, m) and ``kappa`` is (N, n)."""
    spread, panel = np.zeros(kappa.shape[1], out.dtype), new_panel(columns)
    for k in range(sd.shape[0]):
        for g in range(group_starts.shape[0] - 1):
            low, high = group_starts[g], group_starts[g + 1]
            _group_spread(columns, members, low, high, panel, sd[k], spread)
            for position in range(low, high):
                rows, values = column(columns, members, position, panel)
                total = 0.0
                for p in range(rows.shape[0]):
                    total += abs(values[p]) * spread[rows[p]] * kappa[k, rows[p]]
                out[k, members[position]] = total / sd[k, members[position]]
            for position in range(low, high):
                for i in column(columns, members, position, panel)[0]:
                    spread[i] = 0
                if columns.row_step > 0:
                    break
