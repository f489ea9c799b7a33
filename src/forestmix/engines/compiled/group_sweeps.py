"""Updates of several latents at once, and the sweeps: of groups, of blocks on threads, and in greedy order.

The members of a group G share rows. For each of these the sums over the group are kept::

    s_iG = sum_{j in G} |w_ij| sigma_j        sum_{j in G} w_ij (change of mu_j)

and what the group adds to the squared spread: ``s_iG^2`` by Jensen's inequality inside the group (``by_sum``), else
``sum_{j in G} w_ij^2 sigma_j^2``. Arguments are those of ``compiled.sweeps``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.columns import Columns, column, is_dense, keep_together, new_panel
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.rows import Table
from forestmix.engines.compiled.sweeps import (
    ERROR,
    ETA,
    HALVINGS,
    KAPPA,
    SQUARED,
    VALUE,
    evaluate,
    prior_rise,
    rise,
    take_over,
    update_one,
)

#: What is kept of a row of the group: ``s_iG``, the group's squared spread before and after, and the change of eta.
ABSOLUTE, BEFORE, AFTER, SHIFT = range(4)
#: What is kept of a member: the change of its mean, its new precision, and its new mean and sd.
CHANGE, PRECISION, MEAN, SD = range(4)
#: Who else changes the state of a sweep over blocks.
ALONE, PRIVATE, SHARED = range(3)


class Group(NamedTuple):
    """What group updates write into: ``rows`` lists the rows of the group, ``place`` has their places in the list."""

    place: Array
    rows: Array
    sums: Array
    steps: Array


@njit(inline="always")
def _new_group(n, largest):  # type: ignore[no-untyped-def]
    return Group(np.full(n, -1), np.empty(n, np.uint32), np.empty((4, n)), np.empty((4, largest)))


@njit(nogil=True)
def _collect(columns, members, low, high, panel, group, sd, by_sum):  # type: ignore[no-untyped-def]
    """List the rows of a group, with its spread before the step; return their number."""
    count, sums = 0, group.sums
    for position in range(low, high):
        rows, values = column(columns, members, position, panel)
        for p in range(rows.shape[0]):
            i, width = rows[p], abs(values[p]) * sd[members[position]]
            if group.place[i] < 0:
                group.place[i], group.rows[count] = count, i
                sums[ABSOLUTE, count] = sums[BEFORE, count] = 0
                count += 1
            sums[ABSOLUTE, group.place[i]] += width
            sums[BEFORE, group.place[i]] += width * width
    if by_sum:
        for p in range(count):
            sums[BEFORE, p] = sums[ABSOLUTE, p] ** 2
    return count


@njit(inline="always")
def _prepare(columns, members, low, high, panel, group, state, mean, sd, prior, by_sum, surrogate):  # type: ignore[no-untyped-def]
    """Write the whole step of every member, and the precision that it leads to (Theorem 2 with ``surrogate``)."""
    for position in range(low, high):
        j = members[position]
        rows, values = column(columns, members, position, panel)
        slope, curvature, exact = -(mean[j] - prior[0][j]) * prior[1][j], 0.0, 0.0
        for p in range(rows.shape[0]):
            w, i = np.float64(values[p]), rows[p]
            slope += w * state[ERROR, i]
            curvature += abs(w) * group.sums[ABSOLUTE, group.place[i]] * state[KAPPA, i]
            exact += w * w * state[KAPPA, i]
        curvature /= sd[j]
        k = position - low
        group.steps[CHANGE, k] = slope / (prior[1][j] + (curvature if surrogate else exact))
        group.steps[PRECISION, k] = prior[1][j] + (curvature if by_sum else exact)


@njit(inline="always")
def _advance(columns, members, low, high, panel, group, count, share, mean, sd, prior, by_sum):  # type: ignore[no-untyped-def]
    """Take part of the step: the members' new factors and the rows' sums; return the rise of the prior's terms."""
    gain, sums, steps = 0.0, group.sums, group.steps
    for p in range(count):
        sums[AFTER, p] = sums[SHIFT, p] = 0
    for position in range(low, high):
        j, k = members[position], position - low
        steps[MEAN, k] = mean[j] + share * steps[CHANGE, k]
        steps[SD, k] = 1 / math.sqrt((1 - share) / sd[j] ** 2 + share * steps[PRECISION, k])
        gain += prior_rise(j, steps[MEAN, k], steps[SD, k], mean, sd, prior)
        rows, values = column(columns, members, position, panel)
        for p in range(rows.shape[0]):
            at, width = group.place[rows[p]], abs(values[p]) * steps[SD, k]
            sums[SHIFT, at] += values[p] * (steps[MEAN, k] - mean[j])
            sums[AFTER, at] += width if by_sum else width * width
    if by_sum:
        for p in range(count):
            sums[AFTER, p] = sums[AFTER, p] ** 2
    return gain


@njit(inline="always")
def _update_group(  # type: ignore[no-untyped-def]
    table, columns, members, low, high, panel, group, state, trial, mean, sd, prior, unit, options, terms, work
):  # fmt: skip
    """Update the members at the positions from ``low`` to ``high`` at once; ``options`` as in ``sweep_groups``."""
    by_sum, surrogate, safe = options
    keep_together(panel, low, high)
    count = _collect(columns, members, low, high, panel, group, sd, by_sum)
    _prepare(columns, members, low, high, panel, group, state, mean, sd, prior, by_sum, surrogate)
    slack, share, steps, rows = unit * (high - low), 1.0, group.steps, group.rows
    for p in range(count):
        slack += unit * abs(state[VALUE, rows[p]])
    for _ in range(HALVINGS):
        gain = _advance(columns, members, low, high, panel, group, count, share, mean, sd, prior, by_sum)
        for p in range(count):
            i = rows[p]
            trial[ETA, p], trial[KAPPA, p] = state[ETA, i] + group.sums[SHIFT, p], state[KAPPA, i]
            trial[SQUARED, p] = max(state[SQUARED, i] + group.sums[AFTER, p] - group.sums[BEFORE, p], 0.0)
            trial[ERROR, p], trial[VALUE, p] = state[ERROR, i] - state[KAPPA, i] * group.sums[SHIFT, p], state[VALUE, i]
        if terms is not None:
            evaluate(table, rows, count, trial, terms, work)
            for p in range(count):
                gain += rise(trial[VALUE, p], state[VALUE, rows[p]])
        if terms is None or not safe or gain >= -slack:
            take_over(rows, count, trial, state)
            for k in range(high - low):
                mean[members[low + k]], sd[members[low + k]] = steps[MEAN, k], steps[SD, k]
            break
        share /= 2
    for p in range(count):
        group.place[rows[p]] = -1


@njit(cache=True, nogil=True, error_model="numpy")
def sweep_groups(
    table: Table, columns: Columns, starts: Array, members: Array, state: Array, mean: Array, sd: Array,
    prior: tuple[Array, Array], unit: float, options: tuple[bool, bool, bool], terms: Any, work: Array,
) -> None:  # fmt: skip
    """Update the groups one after another, the members of each at once; ``state``, ``mean`` and ``sd`` in place.

    ``options``: whether Jensen's inequality is used inside groups, whether to step with the forest mixture precision of
    the group rather than the exact one of each latent, and whether to halve steps that lower the objective.
    """
    n, panel = state.shape[1], new_panel(columns)
    group, trial = _new_group(n, members.shape[0]), np.empty_like(state)
    if terms is not None:
        state[SQUARED] = 0
        for g in range(starts.shape[0] - 1):
            count = _collect(columns, members, starts[g], starts[g + 1], panel, group, sd, options[0])
            for p in range(count):
                state[SQUARED, group.rows[p]] += group.sums[BEFORE, p]
                group.place[group.rows[p]] = -1
        evaluate(table, np.arange(n), n, state, terms, work)
    for g in range(starts.shape[0] - 1):
        _update_group(
            table, columns, members, starts[g], starts[g + 1], panel, group, state, trial, mean, sd, prior, unit,
            options, terms, work,
        )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def sweep_blocks(
    table: Table, columns: Columns, starts: Array, members: Array, which: Array, sharing: int, state: Array,
    mean: Array, sd: Array, prior: tuple[Array, Array], unit: float, terms: Any, work: Array,
) -> None:  # fmt: skip
    """Sweep the blocks in ``which``, one latent of a block after another; threads take different blocks.

    ``sharing``: ``ALONE``, one thread has the state to itself; ``PRIVATE``, each block sees the others as they were at
    the start; ``SHARED``, all threads read and write the one state with no lock: whatever they find there they use, and
    an update may be lost.
    """
    panel, trial = new_panel(columns), np.empty_like(state)
    own = state.copy() if sharing == PRIVATE else state
    for b in which:
        for position in range(starts[b], starts[b + 1]):
            rows, values = column(columns, members, position, panel)
            if terms is not None and sharing == SHARED:
                for part in range(5):
                    for p in range(rows.shape[0]):
                        trial[part, p] = own[part, rows[p]]
                evaluate(table, rows, rows.shape[0], trial, terms, work)
                take_over(rows, rows.shape[0], trial, own)
            update_one(
                table, columns, members[position], rows, values, own, trial, mean, sd, prior, unit, terms, work
            )  # fmt: skip
        if sharing == PRIVATE:
            for position in range(starts[b], starts[b + 1]):
                rows, values = column(columns, members, position, panel)
                for part in range(5):
                    for p in range(rows.shape[0]):
                        own[part, rows[p]] = state[part, rows[p]]


@njit(cache=True, nogil=True)
def start_state(table: Table, state: Array, terms: Any, work: Array) -> None:
    """Write the terms of all rows into a state that has eta and its squared spread."""
    evaluate(table, np.arange(state.shape[1]), state.shape[1], state, terms, work)


@njit(nogil=True)
def _add_changes(columns, by_rows, rows, changes, slope, precision):  # type: ignore[no-untyped-def]
    """Add what changes of ``e`` and ``kappa`` in some rows do to the slopes and precisions of all latents."""
    for p in range(rows.shape[0]):
        row, e, k = np.int64(rows[p]), changes[0, p], changes[1, p]
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
    table: Table, columns: Columns, by_rows: Columns, steps: int, slope: Array, precision: Array, state: Array,
    mean: Array, sd: Array, prior: tuple[Array, Array], unit: float, terms: Any, work: Array,
) -> None:  # fmt: skip
    """Update ``steps`` times the latent whose exact update raises the ELBO most (Gauss-Southwell).

    ``slope`` and ``precision``, those of the objective in each latent, are kept up to date through the rows of an
    update. ``by_rows``: the columns of the transpose of W.
    """
    panel, chosen, trial, changes = new_panel(columns), np.empty(1, np.int64), np.empty_like(state), np.empty((2, state.shape[1]))  # fmt: skip  # noqa: E501
    for _ in range(steps):
        j = _best(slope, precision, sd)
        chosen[0], panel.held[1] = j, 0
        rows, values = column(columns, chosen, np.int64(0), panel)  # a plain 0 would have code of its own
        for p in range(rows.shape[0]):
            changes[0, p], changes[1, p] = -state[ERROR, rows[p]], -state[KAPPA, rows[p]]
        before = mean[j]
        if not update_one(table, columns, j, rows, values, state, trial, mean, sd, prior, unit, terms, work):
            break
        slope[j] -= prior[1][j] * (mean[j] - before)
        for p in range(rows.shape[0]):
            changes[0, p] += state[ERROR, rows[p]]
            changes[1, p] += state[KAPPA, rows[p]]
        _add_changes(columns, by_rows, rows, changes, slope, precision)
