"""Coordinate updates of one observation in greedy order: always the latent whose exact update raises the ELBO most."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.columns import Columns, column, is_dense
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.rows import Table, new_workspace
from forestmix.engines.compiled.sweeps import ERROR, KAPPA, Latents, Rows, new_group, update


@njit(nogil=True)
def _add_changes(columns, by_rows, which, changes, slope, precision):  # type: ignore[no-untyped-def]
    """Add what changes of ``e`` and ``kappa`` in some rows do to the slopes and precisions of all latents."""
    for p in range(which.shape[0]):
        row, e, k = np.int64(which[p]), changes[0, p], changes[1, p]
        if is_dense(columns):
            for j in range(slope.shape[0]):
                w = np.float64(columns.values[row * columns.row_step + j * columns.column_step])
                slope[j] += w * e
                precision[j] += w * w * k
        else:
            for a in range(by_rows.starts[row], by_rows.starts[row + 1]):
                w = np.float64(by_rows.values[a])
                slope[by_rows.rows[a]] += w * e
                precision[by_rows.rows[a]] += w * w * k


@njit(nogil=True, error_model="numpy")
def _best(slope, precision, sd):  # type: ignore[no-untyped-def]
    """Return the latent with the largest gain, ``(slope^2 / P + v - 1 - log v) / 2`` with ``v = sigma^2 P``."""
    best, best_gain = 0, -1.0
    for j in range(slope.shape[0]):
        excess = sd[j] * sd[j] * precision[j] - 1
        # Near 0 the logarithm would leave rounding alone, above what the means still gain.
        spread = excess - math.log1p(excess) if abs(excess) > 1e-4 else excess * excess * (0.5 - excess / 3)
        gain = 0.5 * (slope[j] * slope[j] / precision[j] + spread)
        if gain > best_gain:
            best, best_gain = j, gain
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def sweep_greedy(
    columns: Columns, by_rows: Columns, steps: int, slope: Array, precision: Array, table: Table, state: Array,
    latents: Latents, unit: float, terms: Any,
) -> None:  # fmt: skip
    """Update ``steps`` times the latent whose exact update raises the ELBO most (Gauss-Southwell).

    ``slope`` and ``precision``, those of the objective in each latent, are kept up to date through the rows of an
    update. ``by_rows``: the columns of the transpose of W.
    """
    rows, group = Rows(table, state, unit, new_workspace()), new_group(columns, state.shape[1], 1)
    chosen, changes, options = np.empty(1, np.int64), np.empty((2, state.shape[1])), (False, False, True)
    first = np.int64(0)  # a plain 0 would have code of its own
    for _ in range(steps):
        chosen[0], group.panel.held[1] = _best(slope, precision, latents.sd), 0
        which, _ = column(columns, chosen, first, group.panel)
        for p in range(which.shape[0]):
            changes[0, p], changes[1, p] = -state[ERROR, which[p]], -state[KAPPA, which[p]]
        before = latents.mean[chosen[0]]
        if not update(columns, chosen, first, first + 1, group, rows, terms, latents, options):
            break
        slope[chosen[0]] -= latents.prior_precision[chosen[0]] * (latents.mean[chosen[0]] - before)
        for p in range(which.shape[0]):
            changes[0, p] += state[ERROR, which[p]]
            changes[1, p] += state[KAPPA, which[p]]
        _add_changes(columns, by_rows, which, changes, slope, precision)
