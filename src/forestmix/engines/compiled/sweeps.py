"""Coordinate updates of one observation's factors, one group of latents after another, for rows of every kind.

The members j of a group G are updated at once (paper, section 5)::

    slope    = sum_i w_ij e_i - (mu_j - mu0_j) / sigma0_j^2         s_iG = sum_{j in G} |w_ij| sigma_j
    H_j      = 1 / sigma0_j^2 + sum_i w_ij^2 kappa_i
    D_j      = 1 / sigma0_j^2 + sum_i |w_ij| s_iG kappa_i / sigma_j
    mu_j    <- mu_j + share slope / H_j, or D_j for the surrogate   share = 1, 1/2, 1/4, ...
    sigma_j <- ((1 - share) / sigma_j^2 + share P_j)^(-1/2)         P = D or H, as the bound has it

until the objective does not fall (Theorem 2 is the surrogate). A group adds ``s_iG^2`` to the squared spread of a row
by Jensen's inequality inside the group (``by_sum``), else ``sum_{j in G} w_ij^2 sigma_j^2``. A latent by itself is a
group of one, where the two are the same.

Rows of constant curvature need no trial: ``e_i`` falls by ``kappa_i`` times the change of eta. Kernels get no function
for terms then, and Numba compiles nothing of the rest. For others the terms of the rows are kept up to date in a state,
(5, n) in float64.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.columns import Columns, Panel, column, is_dense, keep_together, new_panel
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.rows import Table, new_workspace, put_row
from forestmix.engines.compiled.softplus import ERROR as _ERROR
from forestmix.engines.compiled.softplus import KAPPA as _KAPPA
from forestmix.engines.compiled.softplus import VALUE as _VALUE
from forestmix.engines.compiled.softplus import WIDTH
from forestmix.engines.compiled.tiles import FAST

#: How often a step that lowers the objective is halved before the latents are left as they are.
HALVINGS = 30
#: What the state of a row holds.
ETA, SQUARED, VALUE, ERROR, KAPPA = range(5)
#: What is kept of a row of the group: ``s_iG``, the group's squared spread before and after, and the change of eta.
ABSOLUTE, BEFORE, AFTER, SHIFT = range(4)
#: What is kept of a member: the change of its mean, its new precision, and its new mean and sd.
CHANGE, PRECISION, MEAN, SD = range(4)


class Latents(NamedTuple):
    """The factors of one observation, which sweeps change, and the Gaussian prior, (m,) each."""

    mean: Array
    sd: Array
    prior_mean: Array
    prior_precision: Array


class Rows(NamedTuple):
    """The rows of one observation: their numbers, their state, and a workspace for their terms.

    ``unit``: the rounding of the objective relative to the size of its terms.
    """

    table: Table
    state: Array
    unit: float
    work: Array


class Group(NamedTuple):
    """What updates write into: ``rows`` lists the rows of the group, ``place`` has their places in the list."""

    panel: Panel
    place: Array
    rows: Array
    sums: Array
    steps: Array
    trial: Array


@njit(inline="always")
def new_group(columns, n, largest):  # type: ignore[no-untyped-def]
    """Return what updates of groups of at most ``largest`` members write into."""
    panel, place, rows = new_panel(columns), np.full(n, -1), np.empty(n, np.uint32)
    return Group(panel, place, rows, np.empty((4, n)), np.empty((4, largest)), np.empty((5, n)))


@njit(nogil=True)
def _evaluate(rows, terms, which, count, state):  # type: ignore[no-untyped-def]
    """Write the terms of the first ``count`` rows of ``which`` into a state, which has eta and its spread by place."""
    work = rows.work
    for start in range(0, count, WIDTH):
        number = min(WIDTH, count - start)
        for k in range(number):
            p = start + k
            put_row(rows.table, np.int64(which[p]), k, state[ETA, p], math.sqrt(state[SQUARED, p]), work)
        terms(number, work)
        for k in range(number):
            p = start + k
            state[VALUE, p], state[ERROR, p], state[KAPPA, p] = work[_VALUE + k], work[_ERROR + k], work[_KAPPA + k]


@njit(nogil=True, fastmath=FAST)
def _dense_sums(values, error, kappa):  # type: ignore[no-untyped-def]
    slope, exact = 0.0, 0.0
    for i in range(values.shape[0]):
        w = np.float64(values[i])
        slope += w * error[i]
        exact += w * w * kappa[i]
    return slope, exact


@njit(forceinline=True, nogil=True)
def _sums(columns, which, values, state):  # type: ignore[no-untyped-def]
    """Return ``sum_i w_ij e_i`` and ``sum_i w_ij^2 kappa_i`` of a column."""
    if is_dense(columns):
        return _dense_sums(values, state[ERROR], state[KAPPA])
    slope, exact = 0.0, 0.0
    for p in range(which.shape[0]):
        w, i = np.float64(values[p]), which[p]
        slope += w * state[ERROR, i]
        exact += w * w * state[KAPPA, i]
    return slope, exact


@njit(nogil=True, fastmath=FAST)
def _dense_change(values, change, error, kappa):  # type: ignore[no-untyped-def]
    for i in range(values.shape[0]):
        error[i] -= kappa[i] * values[i] * change


@njit(forceinline=True, nogil=True)
def _change_errors(columns, which, values, change, state):  # type: ignore[no-untyped-def]
    """Take ``kappa_i w_ij change`` from the errors of a column's rows."""
    if is_dense(columns):
        _dense_change(values, change, state[ERROR], state[KAPPA])
        return
    for p in range(which.shape[0]):
        i = which[p]
        state[ERROR, i] -= state[KAPPA, i] * values[p] * change


@njit(inline="always")
def _collect(columns, members, low, high, group, latents, by_sum):  # type: ignore[no-untyped-def]
    """List the rows of a group, with its spread before the step; return their number."""
    count, sums, place = 0, group.sums, group.place
    for position in range(low, high):
        rows, values = column(columns, members, position, group.panel)
        for p in range(rows.shape[0]):
            i, width = rows[p], abs(values[p]) * latents.sd[members[position]]
            if place[i] < 0:
                place[i], group.rows[count] = count, i
                sums[ABSOLUTE, count] = sums[BEFORE, count] = 0
                count += 1
            sums[ABSOLUTE, place[i]] += width
            sums[BEFORE, place[i]] += width * width
    if by_sum:
        for p in range(count):
            sums[BEFORE, p] = sums[ABSOLUTE, p] ** 2
    return count


@njit(inline="always")
def _prepare(columns, members, low, high, group, state, latents, by_sum, surrogate):  # type: ignore[no-untyped-def]
    """Write the whole step of every member, and the precision that it leads to."""
    for position in range(low, high):
        j, k, curvature = members[position], position - low, 0.0
        rows, values = column(columns, members, position, group.panel)
        slope, exact = _sums(columns, rows, values, state)
        slope -= (latents.mean[j] - latents.prior_mean[j]) * latents.prior_precision[j]
        if by_sum or surrogate:
            for p in range(rows.shape[0]):
                curvature += abs(values[p]) * group.sums[ABSOLUTE, group.place[rows[p]]] * state[KAPPA, rows[p]]
            curvature /= latents.sd[j]
        group.steps[CHANGE, k] = slope / (latents.prior_precision[j] + (curvature if surrogate else exact))
        group.steps[PRECISION, k] = latents.prior_precision[j] + (curvature if by_sum else exact)


@njit(nogil=True)
def _prior_rise(j, new_mean, new_sd, latents):  # type: ignore[no-untyped-def]
    """Return by how much ``-KL(q_j || p_j)`` grows."""
    mean, sd = latents.mean[j], latents.sd[j]
    old, new = mean - latents.prior_mean[j], new_mean - latents.prior_mean[j]
    growth = (new - old) * (new + old) + (new_sd - sd) * (new_sd + sd)
    return math.log(new_sd / sd) - 0.5 * latents.prior_precision[j] * growth


@njit(inline="always")
def _advance(columns, members, low, high, group, count, share, latents, by_sum):  # type: ignore[no-untyped-def]
    """Take part of the step: the members' new factors and the rows' sums; return the rise of the prior's terms."""
    gain, sums, steps = 0.0, group.sums, group.steps
    for p in range(count):
        sums[AFTER, p] = sums[SHIFT, p] = 0
    for position in range(low, high):
        j, k = members[position], position - low
        steps[MEAN, k] = latents.mean[j] + share * steps[CHANGE, k]
        steps[SD, k] = 1 / math.sqrt((1 - share) / latents.sd[j] ** 2 + share * steps[PRECISION, k])
        gain += _prior_rise(j, steps[MEAN, k], steps[SD, k], latents)
        rows, values = column(columns, members, position, group.panel)
        for p in range(rows.shape[0]):
            at, width = group.place[rows[p]], abs(values[p]) * steps[SD, k]
            sums[SHIFT, at] += values[p] * (steps[MEAN, k] - latents.mean[j])
            sums[AFTER, at] += width if by_sum else width * width
    if by_sum:
        for p in range(count):
            sums[AFTER, p] = sums[AFTER, p] ** 2
    return gain


@njit(inline="always")
def _try_step(group, count, rows, terms):  # type: ignore[no-untyped-def]
    """Write the states after the step into the trial; return the rise of the rows' terms."""
    state, trial, gain = rows.state, group.trial, 0.0
    for p in range(count):
        i = group.rows[p]
        trial[ETA, p] = state[ETA, i] + group.sums[SHIFT, p]
        trial[SQUARED, p] = max(state[SQUARED, i] + group.sums[AFTER, p] - group.sums[BEFORE, p], 0.0)
    _evaluate(rows, terms, group.rows, count, trial)
    for p in range(count):
        old, new = state[VALUE, group.rows[p]], trial[VALUE, p]
        gain += 0.0 if new == old else new - old  # nothing where it is infinite before and after
    return gain


@njit(nogil=True, error_model="numpy")
def _rise(columns, members, low, high, group, count, rows, terms, latents, by_sum, safe):  # type: ignore[no-untyped-def]
    """Take the longest part of the step that does not lower the objective; return whether there is one."""
    share, slack = 1.0, rows.unit * (high - low)
    for p in range(count):
        slack += rows.unit * abs(rows.state[VALUE, group.rows[p]])
    for _ in range(HALVINGS):
        gain = _advance(columns, members, low, high, group, count, share, latents, by_sum)
        gain += _try_step(group, count, rows, terms)
        if not safe or gain >= -slack:
            for part in range(5):
                for p in range(count):
                    rows.state[part, group.rows[p]] = group.trial[part, p]
            for k in range(high - low):
                j = members[low + k]
                latents.mean[j], latents.sd[j] = group.steps[MEAN, k], group.steps[SD, k]
            return True
        share /= 2
    return False


@njit(inline="always")
def _take(columns, members, low, high, group, state, latents):  # type: ignore[no-untyped-def]
    """Take the whole steps of rows of constant curvature."""
    for position in range(low, high):
        j, k = members[position], position - low
        latents.mean[j] += group.steps[CHANGE, k]
        latents.sd[j] = 1 / math.sqrt(group.steps[PRECISION, k])
        rows, values = column(columns, members, position, group.panel)
        _change_errors(columns, rows, values, group.steps[CHANGE, k], state)


@njit(inline="always")
def _take_one(columns, members, position, panel, state, latents):  # type: ignore[no-untyped-def]
    """Take the whole step of one latent under such rows, in one look at its column."""
    j = members[position]
    rows, values = column(columns, members, position, panel)
    slope, exact = _sums(columns, rows, values, state)
    precision = latents.prior_precision[j] + exact
    change = (slope - (latents.mean[j] - latents.prior_mean[j]) * latents.prior_precision[j]) / precision
    latents.mean[j] += change
    latents.sd[j] = 1 / math.sqrt(precision)
    _change_errors(columns, rows, values, change, state)


@njit(inline="always")
def update(columns, members, low, high, group, rows, terms, latents, options):  # type: ignore[no-untyped-def]
    """Update the members at the positions from ``low`` to ``high`` at once; return whether there was such a step."""
    if terms is None and high == low + 1:
        _take_one(columns, members, low, group.panel, rows.state, latents)
        return True
    by_sum, surrogate, safe = options
    by_sum, surrogate, count, found = by_sum and high > low + 1, surrogate and high > low + 1, 0, True
    keep_together(group.panel, low, high)
    if terms is not None or by_sum or surrogate:
        count = _collect(columns, members, low, high, group, latents, by_sum)
    _prepare(columns, members, low, high, group, rows.state, latents, by_sum, surrogate)
    if terms is None:
        _take(columns, members, low, high, group, rows.state, latents)
    else:
        found = _rise(columns, members, low, high, group, count, rows, terms, latents, by_sum, safe)
    for p in range(count):
        group.place[group.rows[p]] = -1
    return found


@njit(cache=True, nogil=True)
def start_state(table: Table, state: Array, terms: Any) -> None:
    """Write the terms of all rows into a state that has eta and its squared spread."""
    _evaluate(Rows(table, state, 0.0, new_workspace()), terms, np.arange(state.shape[1]), state.shape[1], state)


@njit(cache=True, nogil=True, error_model="numpy")
def sweep(
    columns: Columns, starts: Array, members: Array, blocks: Array, which: Array, private: bool,
    options: tuple[bool, bool, bool], table: Table, state: Array, latents: Latents, unit: float, terms: Any,
) -> None:  # fmt: skip
    """Sweep the blocks in ``which``, one group of a block after another; threads take different blocks.

    Group g is ``members[starts[g] : starts[g + 1]]``, and block b has the groups from ``blocks[b]`` to
    ``blocks[b + 1]``. ``private``: each block sees the others as they were at the start; else threads read and write
    the one state with no lock, whatever they find there they use, and an update may be lost. ``options``: whether
    Jensen's inequality is used inside groups, whether to step with the forest mixture precision of the group rather
    than the exact one of each latent, and whether to halve steps that lower the objective.
    """
    own = state.copy() if private else state
    rows, group = Rows(table, own, unit, new_workspace()), new_group(columns, state.shape[1], members.shape[0])
    for b in which:
        for g in range(blocks[b], blocks[b + 1]):
            update(columns, members, starts[g], starts[g + 1], group, rows, terms, latents, options)
        if private:
            for position in range(starts[blocks[b]], starts[blocks[b + 1]]):
                touched, _ = column(columns, members, position, group.panel)
                for part in range(5):
                    for p in range(touched.shape[0]):
                        own[part, touched[p]] = state[part, touched[p]]
