"""Coordinate updates of the means for rows of constant curvature (Gaussian rows).

For variable j, with the row errors ``e_i = kappa_i (x_i - m_i)`` kept up to date::

    gradient_j = sum_i w_ij e_i - (mu_j - mu0_j) / sigma0_j^2
    mu_j      <- mu_j + gradient_j / P_j
    e_i       <- e_i - kappa_i w_ij (change of mu_j)

``P_j`` is the precision that the rule chose: exact coordinate updates and forest mixture steps differ only there.
Batch arrays are (N, m) or (N, n). ``P``, ``kappa`` and the prior's parameters may have a single row for all.
"""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.columns import (
    PANEL,
    Columns,
    column,
    dense_dot,
    dense_fall,
    is_dense,
    keep_together,
    new_panel,
)
from forestmix.engines.compiled.compiling import njit


@njit(cache=True, nogil=True)
def batch_row(array, k):  # type: ignore[no-untyped-def]
    """Return row k of a batch array, or its only row where one serves the whole batch."""
    return array[k if array.shape[0] > 1 else 0]


@njit(cache=True, nogil=True)
def _dot(columns, members, position, panel, error):  # type: ignore[no-untyped-def]
    if is_dense(columns):
        return dense_dot(column(columns, members, position, panel)[1], error)
    total, j = error.dtype.type(0), members[position]
    for p in range(columns.starts[j], columns.starts[j + 1]):
        total += columns.values[p] * error[columns.rows[p]]
    return total


@njit(cache=True, nogil=True)
def _fall(columns, members, position, panel, change, kappa, error):  # type: ignore[no-untyped-def]
    if is_dense(columns):
        dense_fall(column(columns, members, position, panel)[1], change, kappa, error)
        return
    j = members[position]
    for p in range(columns.starts[j], columns.starts[j + 1]):
        i = columns.rows[p]
        error[i] -= kappa[i] * columns.values[p] * change


@njit(cache=True, nogil=True)
def _relax(columns, members, low, high, panel, change, mean, error, kappa, precision, prior):  # type: ignore[no-untyped-def]
    """Update the members at the positions from ``low`` to ``high`` at once."""
    keep_together(panel, low, high)
    for position in range(low, high):
        j = members[position]
        slope = _dot(columns, members, position, panel, error) - (mean[j] - prior[0][j]) * prior[1][j]
        change[position - low] = slope / precision[j]
    for position in range(low, high):
        mean[members[position]] += change[position - low]
        _fall(columns, members, position, panel, change[position - low], kappa, error)


@njit(cache=True, nogil=True)
def _stretch(columns, group_starts, first):  # type: ignore[no-untyped-def]
    """Return where the groups end that a batch goes through together: what a panel holds, or all of a CSC matrix."""
    last = group_starts.shape[0] - 1
    if not is_dense(columns):
        return last
    g = first + 1
    while g < last and group_starts[g + 1] - group_starts[first] <= PANEL:
        g += 1
    return g


@njit(cache=True, nogil=True)
def relax_groups(
    columns: Columns, group_starts: Array, members: Array,
    mean: Array, error: Array, kappa: Array, precision: Array, prior: tuple[Array, Array],
) -> None:  # fmt: skip
    """Update the groups one after another, the members of a group all at once; ``mean`` and ``error`` in place.

    ``prior`` holds the means and the precisions.
    """
    panel, change = new_panel(columns), np.empty(members.shape[0], mean.dtype)
    first, last = 0, group_starts.shape[0] - 1
    while first < last:
        end = _stretch(columns, group_starts, first)
        for k in range(mean.shape[0]):
            e, weight, p = error[k], batch_row(kappa, k), batch_row(precision, k)
            for g in range(first, end):
                low, high = group_starts[g], group_starts[g + 1]
                _relax(columns, members, low, high, panel, change, mean[k], e, weight, p, prior)
        first = end


@njit(cache=True, nogil=True)
def relax_blocks(
    columns: Columns, block_starts: Array, members: Array, which: Array, private: bool,
    mean: Array, error: Array, kappa: Array, precision: Array, prior: tuple[Array, Array],
) -> None:  # fmt: skip
    """Sweep the blocks in ``which``, one variable of a block after another; threads take different blocks.

    With ``private`` each block works on its own copy of the row errors, so it sees the other blocks as they were at
    the start. Without it all threads read and write the one array with no lock: whatever they find there they use,
    and an update may be lost. The caller computes the errors anew from the means afterwards.
    """
    panel, change = new_panel(columns), np.empty(1, mean.dtype)
    for k in range(mean.shape[0]):
        mu, weight, p = mean[k], batch_row(kappa, k), batch_row(precision, k)
        e = error[k].copy() if private else error[k]
        for b in which:
            low, high = block_starts[b], block_starts[b + 1]
            for position in range(low, high):
                _relax(columns, members, position, position + 1, panel, change, mu, e, weight, p, prior)
            if private:
                restore(columns, members, low, high, error[k], e)


@njit(cache=True, nogil=True)
def restore(columns, members, low, high, original, copy):  # type: ignore[no-untyped-def]
    """Undo in ``copy`` what the columns at the positions from ``low`` to ``high`` did to their rows."""
    if is_dense(columns):
        copy[:] = original
        return
    for position in range(low, high):
        j = members[position]
        for p in range(columns.starts[j], columns.starts[j + 1]):
            copy[columns.rows[p]] = original[columns.rows[p]]
