"""Sweeps for rows whose curvature varies with q: groups one after another, and blocks on threads.

Batch arrays: ``mean`` and ``sd``, (N, m), are changed in place; ``eta`` and ``squared``, (N or 1, n), the mean and
squared spread of eta at the start, are not. ``prior`` holds the means and the precisions; ``unit`` is by what part of
its terms the objective may seem to fall through rounding.
"""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.columns import Columns, column, is_dense, new_panel
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.rows import RowTable
from forestmix.engines.compiled.varying import (
    ETA,
    SQUARED,
    fill_state,
    new_gathered,
    observation,
    propose_one,
    refresh,
    take_over,
    update_one,
)
from forestmix.engines.compiled.varying_groups import new_scratch, update_group


@njit(cache=True, nogil=True)
def climb_ones(
    table: RowTable, columns: Columns, members: Array,
    eta: Array, squared: Array, mean: Array, sd: Array, prior: tuple[Array, Array], unit: float,
) -> None:  # fmt: skip
    """Update the members one after another."""
    n = eta.shape[1]
    panel, state, trial, gathered = new_panel(columns), np.empty((n, 5)), np.empty((n, 5)), new_gathered()
    for k in range(mean.shape[0]):
        data = observation(table, k)
        fill_state(data, eta[k], squared[min(k, squared.shape[0] - 1)], state, gathered)
        for position in range(members.shape[0]):
            rows, values = column(columns, members, position, panel)
            update_one(data, members[position], rows, values, state, trial, gathered, mean[k], sd[k], prior, unit)


@njit(cache=True, nogil=True)
def climb_groups(
    table: RowTable, columns: Columns, group_starts: Array, members: Array, options: tuple[bool, bool, bool],
    eta: Array, squared: Array, mean: Array, sd: Array, prior: tuple[Array, Array], unit: float,
) -> None:  # fmt: skip
    """Update the groups one after another, the members of each at once; ``options`` as in ``update_group``."""
    panel, state, scratch = new_panel(columns), np.empty((eta.shape[1], 5)), new_scratch(eta.shape[1], members.shape[0])
    for k in range(mean.shape[0]):
        data = observation(table, k)
        fill_state(data, eta[k], squared[min(k, squared.shape[0] - 1)], state, scratch.gathered)
        for i in range(eta.shape[1]):
            scratch.seen[i] = -1
        for g in range(group_starts.shape[0] - 1):
            low, high = group_starts[g], group_starts[g + 1]
            update_group(data, columns, members, low, high, panel, scratch, state, mean[k], sd[k], prior, unit, options)


@njit(cache=True, nogil=True)
def row_states(table: RowTable, eta: Array, squared: Array) -> Array:
    """Return the state that sweeps of blocks start from, (N, n, 5)."""
    states, gathered = np.empty((eta.shape[0], eta.shape[1], 5)), new_gathered()
    for k in range(eta.shape[0]):
        fill_state(observation(table, k), eta[k], squared[min(k, squared.shape[0] - 1)], states[k], gathered)
    return states


@njit(cache=True, nogil=True)
def climb_blocks(
    table: RowTable, columns: Columns, block_starts: Array, members: Array, which: Array, private: bool,
    states: Array, mean: Array, sd: Array, prior: tuple[Array, Array], unit: float,
) -> None:  # fmt: skip
    """Sweep the blocks in ``which``, one variable of a block after another; threads take different blocks.

    As in ``relax_blocks``: with ``private`` each block sees the others as they were at the start, without it the
    threads share the rows' states with no lock.
    """
    panel, trial, gathered = new_panel(columns), np.empty((states.shape[1], 5)), new_gathered()
    for k in range(mean.shape[0]):
        data, state = observation(table, k), states[k].copy() if private else states[k]
        for b in which:
            low, high = block_starts[b], block_starts[b + 1]
            for position in range(low, high):
                rows, values = column(columns, members, position, panel)
                j = members[position]
                if private:
                    update_one(data, j, rows, values, state, trial, gathered, mean[k], sd[k], prior, unit)
                else:
                    _update_shared(data, j, rows, values, state, trial, gathered, mean[k], sd[k], prior, unit)
            if private:
                _restore(columns, members, low, high, panel, states[k], state)


@njit(cache=True, nogil=True)
def _update_shared(table, j, rows, values, state, trial, gathered, mean, sd, prior, unit):  # type: ignore[no-untyped-def]
    """Update one variable on rows that other threads may be at work on."""
    refresh(table, rows, values, state, trial, gathered)
    found, new_mean, new_sd = propose_one(table, j, rows, values, state, trial, gathered, mean, sd, prior, unit)
    if not found:
        return
    shift, growth = new_mean - mean[j], (new_sd - sd[j]) * (new_sd + sd[j])
    mean[j], sd[j] = new_mean, new_sd
    for p in range(rows.shape[0]):
        # Added rather than set: threads do not undo each other's updates altogether.
        state[rows[p], ETA] += values[p] * shift
        state[rows[p], SQUARED] = max(state[rows[p], SQUARED] + values[p] * values[p] * growth, 0.0)


@njit(cache=True, nogil=True)
def _restore(columns, members, low, high, panel, original, copy):  # type: ignore[no-untyped-def]
    """Undo in ``copy`` what the columns at the positions from ``low`` to ``high`` did to their rows."""
    for position in range(low, high):
        rows, _ = column(columns, members, position, panel)
        for i in rows:
            take_over(original[i], copy[i])
        if is_dense(columns):
            return
