"""Sweeps in greedy order (Gauss-Southwell): always the variable whose exact update raises the ELBO most.

The gain of variable j is ``gradient_j^2 / (2 P_j) + (v - 1 - log v) / 2`` with ``v = sigma_j^2 P_j``: what its mean and
its variance bring. The gradient, and ``P`` where it varies, are kept up to date
through the rows that an update touches.
"""

from __future__ import annotations

import math

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.columns import Columns, column, new_panel
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.coordinate import batch_row
from forestmix.engines.compiled.rows import RowTable
from forestmix.engines.compiled.scratch import ERROR, KAPPA
from forestmix.engines.compiled.varying import commit, fill_state, new_gathered, observation, propose_one


@njit(cache=True, nogil=True)
def _push(columns, by_rows, rows, change, squares, target):  # type: ignore[no-untyped-def]
    """Add ``sum_p w_{rows_p j} change_p`` to ``target_j``, or that with ``w^2`` for ``squares``."""
    if columns.row_step == 1:
        for j in range(target.shape[0]):
            low = j * columns.column_step
            for i in range(rows.shape[0]):
                w = columns.values[low + i]
                target[j] += (w * w if squares else w) * change[i]
        return
    for p in range(rows.shape[0]):
        if columns.row_step > 1:
            for j in range(target.shape[0]):
                w = columns.values[p * columns.row_step + j]
                target[j] += (w * w if squares else w) * change[p]
        else:
            row = np.int64(rows[p])  # an unsigned 64-bit index plus one would be a float
            for a in range(by_rows.starts[row], by_rows.starts[row + 1]):
                w = by_rows.values[a]
                target[by_rows.rows[a]] += (w * w if squares else w) * change[p]


@njit(cache=True, nogil=True)
def _column_of(columns, chosen, j, panel):  # type: ignore[no-untyped-def]
    chosen[0], panel.held[1] = j, 0
    return column(columns, chosen, 0, panel)


@njit(cache=True, nogil=True)
def relax_greedy(
    columns: Columns, by_rows: Columns, steps: int, visited: Array, gradient: Array, spread_gain: Array,
    mean: Array, error: Array, kappa: Array, precision: Array, prior_precision: Array,
) -> None:  # fmt: skip
    """Update ``steps`` variables for rows of constant curvature; ``by_rows`` are the columns of the transpose of W.

    The gain from a variance, ``spread_gain_j``, is spent at the first visit.
    """
    panel, chosen, fall = new_panel(columns), np.empty(1, np.int64), np.empty(error.shape[1], mean.dtype)
    for k in range(mean.shape[0]):
        mu, e, weight, p = mean[k], error[k], batch_row(kappa, k), batch_row(precision, k)
        slope, seen, gain = gradient[k], visited[k], batch_row(spread_gain, k)
        for _ in range(steps):
            best, best_gain = 0, -1.0
            for j in range(mu.shape[0]):
                candidate = 0.5 * slope[j] * slope[j] / p[j] + (0.0 if seen[j] else gain[j])
                if candidate > best_gain:
                    best, best_gain = j, candidate
            seen[best] = True
            change = slope[best] / p[best]
            mu[best] += change
            slope[best] -= prior_precision[best] * change
            rows, values = _column_of(columns, chosen, best, panel)
            for a in range(rows.shape[0]):
                fall[a] = -weight[rows[a]] * values[a] * change
                e[rows[a]] += fall[a]
            _push(columns, by_rows, rows, fall, False, slope)


@njit(cache=True, nogil=True, error_model="numpy")
def _best(slope, precision, sd):  # type: ignore[no-untyped-def]
    """Return the variable with the largest gain."""
    best, best_gain = 0, -1.0
    for j in range(slope.shape[0]):
        ratio = sd[j] * sd[j] * precision[j]
        gain = 0.5 * (slope[j] * slope[j] / precision[j] + ratio - 1 - math.log(ratio))
        if gain > best_gain:
            best, best_gain = j, gain
    return best


@njit(cache=True, nogil=True)
def climb_greedy(
    table: RowTable, columns: Columns, by_rows: Columns, steps: int, gradient: Array, precision: Array,
    eta: Array, squared: Array, mean: Array, sd: Array, prior: tuple[Array, Array], unit: float,
) -> None:  # fmt: skip
    """Update ``steps`` variables for rows whose curvature varies; ``gradient`` and ``precision`` change, too."""
    n, chosen, panel = eta.shape[1], np.empty(1, np.int64), new_panel(columns)
    state, trial, error, kappa = np.empty((n, 5)), np.empty((n, 5)), np.empty(n), np.empty(n)
    gathered = new_gathered()
    for k in range(mean.shape[0]):
        data, slope, p = observation(table, k), gradient[k], precision[k]
        fill_state(data, eta[k], squared[min(k, squared.shape[0] - 1)], state, gathered)
        for _ in range(steps):
            j = _best(slope, p, sd[k])
            rows, values = _column_of(columns, chosen, j, panel)
            found, new_mean, new_sd = propose_one(
                data, j, rows, values, state, trial, gathered, mean[k], sd[k], prior, unit
            )
            if not found:
                break
            slope[j] -= prior[1][j] * (new_mean - mean[k, j])
            mean[k, j], sd[k, j] = new_mean, new_sd
            for a in range(rows.shape[0]):
                same = values[a] == 0
                error[a] = 0.0 if same else trial[a, ERROR] - state[rows[a], ERROR]
                kappa[a] = 0.0 if same else trial[a, KAPPA] - state[rows[a], KAPPA]
            commit(rows, values, trial, state)
            _push(columns, by_rows, rows, error, False, slope)
            _push(columns, by_rows, rows, kappa, True, p)
