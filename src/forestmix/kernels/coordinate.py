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
from numba import njit, prange

from forestmix.arrays import Array


@njit(cache=True, inline="always")
def _row(array, k):  # type: ignore[no-untyped-def]
    """Return row k of a batch array, or its only row where one serves the whole batch."""
    return array[k if array.shape[0] > 1 else 0]


@njit(cache=True, nogil=True)
def _gradient(j, starts, rows, values, mean, error, prior_mean, prior_precision):  # type: ignore[no-untyped-def]
    total = -(mean[j] - prior_mean[j]) * prior_precision[j]
    for p in range(starts[j], starts[j + 1]):
        total += values[p] * error[rows[p]]
    return total


@njit(cache=True, nogil=True)
def _move(j, change, starts, rows, values, mean, error, kappa):  # type: ignore[no-untyped-def]
    mean[j] += change
    for p in range(starts[j], starts[j + 1]):
        error[rows[p]] -= kappa[rows[p]] * values[p] * change


@njit(cache=True, nogil=True)
def relax_groups(
    starts: Array, rows: Array, values: Array,
    group_starts: Array, members: Array,
    mean: Array, error: Array, kappa: Array, precision: Array, prior_mean: Array, prior_precision: Array,
) -> None:  # fmt: skip
    """Update the groups one after another, the members of a group all at once; ``mean`` and ``error`` in place."""
    change = np.empty(members.shape[0], mean.dtype)
    for k in range(mean.shape[0]):
        mu, e, weight, p = mean[k], error[k], _row(kappa, k), _row(precision, k)
        for g in range(group_starts.shape[0] - 1):
            for position in range(group_starts[g], group_starts[g + 1]):
                j = members[position]
                change[position] = _gradient(j, starts, rows, values, mu, e, prior_mean, prior_precision) / p[j]
            for position in range(group_starts[g], group_starts[g + 1]):
                _move(members[position], change[position], starts, rows, values, mu, e, weight)


@njit(cache=True, nogil=True)
def relax_greedy(
    starts: Array, rows: Array, values: Array,
    row_starts: Array, row_columns: Array, row_values: Array,
    steps: int, visited: Array, gradient: Array, spread_gain: Array,
    mean: Array, error: Array, kappa: Array, precision: Array, prior_precision: Array,
) -> None:  # fmt: skip
    """Update ``steps`` times the variable whose exact update raises the ELBO most (Gauss-Southwell order).

    The gain of variable j is ``gradient_j^2 / (2 P_j)`` from its mean plus ``spread_gain_j`` from its variance, which
    is spent at the first visit. ``gradient`` is kept up to date through the rows that the update touched.
    """
    for k in range(mean.shape[0]):
        mu, e, weight, p, slope, seen = (
            mean[k],
            error[k],
            _row(kappa, k),
            _row(precision, k),
            gradient[k],
            visited[k],
        )
        gain = _row(spread_gain, k)
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
            for a in range(starts[best], starts[best + 1]):
                i = rows[a]
                fall = weight[i] * values[a] * change
                e[i] -= fall
                for c in range(row_starts[i], row_starts[i + 1]):
                    slope[row_columns[c]] -= row_values[c] * fall


@njit(cache=True, parallel=True)
def relax_blocks(
    starts: Array, rows: Array, values: Array,
    block_starts: Array, members: Array, private: bool,
    mean: Array, error: Array, kappa: Array, precision: Array, prior_mean: Array, prior_precision: Array,
) -> None:  # fmt: skip
    """Sweep every block on its own thread, one variable of the block after another.

    With ``private`` each block works on its own copy of the row errors, so it sees the other blocks as they were at
    the start. Without it all threads read and write the one array with no lock: whatever they find there they use,
    and an update may be lost. The caller computes the errors anew from the means afterwards.
    """
    for k in range(mean.shape[0]):
        mu, shared, weight, p = mean[k], error[k], _row(kappa, k), _row(precision, k)
        for b in prange(block_starts.shape[0] - 1):
            e = shared.copy() if private else shared
            for position in range(block_starts[b], block_starts[b + 1]):
                j = members[position]
                change = _gradient(j, starts, rows, values, mu, e, prior_mean, prior_precision) / p[j]
                _move(j, change, starts, rows, values, mu, e, weight)
