"""Coordinate updates for rows whose curvature varies with q, each at most as long as the objective does not fall.

A sweep keeps for every row the mean and squared spread of eta and the terms they give: what a row adds to the
objective, ``e_i`` and ``kappa_i``. An update reads the terms of the rows that its column reaches, computes those that
its step would lead to, and, if the step is taken, leaves them for the next. So each entry of W costs one evaluation of
a row; rows are evaluated many at a time (``kernels.settling``). All is computed in float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.rows import RowTable
from forestmix.engines.compiled.scratch import ERROR, KAPPA, MEAN, SPREAD, VALUE, WIDTH, line, new_scratch
from forestmix.engines.compiled.settling import fill_terms

#: How often a step that lowers the objective is halved before the variables are left as they are.
HALVINGS = 30
#: What a row's state holds: mean and squared spread of eta, and then, as a scratch does, VALUE, ERROR and KAPPA.
ETA, SQUARED = 0, 1
#: A squared spread that says that a row is left out.
LEFT_OUT = -1.0


class Gathered(NamedTuple):
    """Rows that are evaluated together: a scratch, their data, and where their states are; each of ``WIDTH``."""

    scratch: Array
    kind: Array
    x: Array
    scale: Array
    constant: Array
    place: Array


@njit(cache=True, nogil=True)
def new_gathered():  # type: ignore[no-untyped-def]
    """Return room for rows."""
    data = np.zeros(WIDTH), np.ones(WIDTH), np.zeros(WIDTH)
    return Gathered(new_scratch(), np.zeros(WIDTH, np.int8), *data, np.zeros(WIDTH, np.int64))


@njit(cache=True, nogil=True)
def observation(table, k):  # type: ignore[no-untyped-def]
    """Return the table of one observation, each part of length n or 1."""
    kind, constant = min(k, table.kind.shape[0] - 1), min(k, table.constant.shape[0] - 1)
    # In float64 whatever the model's precision, so that what follows is compiled once.
    return RowTable(table.kind[kind], table.x[k].astype(np.float64), table.scale, table.constant[constant])


@njit(cache=True, nogil=True)
def complete(table, rows, by_row, state, gathered):  # type: ignore[no-untyped-def]
    """Write the terms of rows into their states, where mean and squared spread of eta are, unless it is LEFT_OUT.

    The state of row ``rows[p]`` is at ``rows[p]`` with ``by_row``, else at ``p``.
    """
    mean, spread = line(gathered.scratch, MEAN), line(gathered.scratch, SPREAD)
    value, error = line(gathered.scratch, VALUE), line(gathered.scratch, ERROR)
    kappa, place, p = line(gathered.scratch, KAPPA), gathered.place, 0
    while p < rows.shape[0]:
        count = 0
        while p < rows.shape[0] and count < WIDTH:
            at = rows[p] if by_row else p
            if state[at, SQUARED] != LEFT_OUT:
                mean[count], spread[count], place[count] = state[at, ETA], math.sqrt(state[at, SQUARED]), at
                _gather(table, rows[p], count, gathered)
                count += 1
            p += 1
        fill_terms(
            0, count,
            table.kind if table.kind.size == 1 else gathered.kind, gathered.x,
            table.scale if table.scale.size == 1 else gathered.scale,
            table.constant if table.constant.size == 1 else gathered.constant, gathered.scratch,
        )  # fmt: skip
        for k in range(count):
            at = place[k]
            state[at, VALUE], state[at, ERROR], state[at, KAPPA] = value[k], error[k], kappa[k]


@njit(cache=True, nogil=True)
def _gather(table, i, k, gathered):  # type: ignore[no-untyped-def]
    """Make row i the k-th of those gathered; what serves all rows is not copied."""
    gathered.x[k] = table.x[i]
    if table.kind.size > 1:
        gathered.kind[k] = table.kind[i]
    if table.scale.size > 1:
        gathered.scale[k] = table.scale[i]
    if table.constant.size > 1:
        gathered.constant[k] = table.constant[i]


@njit(cache=True, nogil=True)
def fill_state(table, eta, squared, state, gathered):  # type: ignore[no-untyped-def]
    """Write the state of all rows, (n, 5)."""
    for i in range(eta.shape[0]):
        state[i, ETA], state[i, SQUARED] = eta[i], squared[i]
    complete(table, np.arange(eta.shape[0]), True, state, gathered)


@njit(cache=True, nogil=True)
def rise(new, old):  # type: ignore[no-untyped-def]
    """Return by how much a term of the objective grows; nothing where it is infinite before and after."""
    return 0.0 if new == old else new - old


@njit(cache=True, nogil=True, error_model="numpy")
def part_way(j, share, change, precision, mean, sd):  # type: ignore[no-untyped-def]
    """Return mean and sd of variable j after the fraction ``share`` of its step, in the mean and in the precision."""
    return mean[j] + share * change, 1 / math.sqrt((1 - share) / sd[j] ** 2 + share * precision)


@njit(cache=True, nogil=True)
def prior_rise(j, new_mean, new_sd, mean, sd, prior):  # type: ignore[no-untyped-def]
    """Return by how much ``-KL(q_j || p_j)`` grows."""
    old, new = mean[j] - prior[0][j], new_mean - prior[0][j]
    fall = (new - old) * (new + old) + (new_sd - sd[j]) * (new_sd + sd[j])
    return math.log(new_sd / sd[j]) - 0.5 * prior[1][j] * fall


@njit(cache=True, nogil=True)
def try_one(table, j, share, change, precision, rows, values, state, trial, gathered, mean, sd, prior):  # type: ignore[no-untyped-def]
    """Write the states of the rows after part of a step into ``trial``; return the rise, and the new mean and sd."""
    new_mean, new_sd = part_way(j, share, change, precision, mean, sd)
    shift, growth = new_mean - mean[j], (new_sd - sd[j]) * (new_sd + sd[j])
    gain = prior_rise(j, new_mean, new_sd, mean, sd, prior)
    for p in range(rows.shape[0]):
        w, i = values[p], rows[p]
        squared = max(state[i, SQUARED] + w * w * growth, 0.0)
        trial[p, ETA], trial[p, SQUARED] = state[i, ETA] + w * shift, squared if w != 0 else LEFT_OUT
    complete(table, rows, False, trial, gathered)
    for p in range(rows.shape[0]):
        if values[p] != 0:
            gain += rise(trial[p, VALUE], state[rows[p], VALUE])
    return gain, new_mean, new_sd


@njit(cache=True, nogil=True, error_model="numpy")
def propose_one(table, j, rows, values, state, trial, gathered, mean, sd, prior, unit):  # type: ignore[no-untyped-def]
    """Find the longest of the exact steps 1, 1/2, 1/4, ... that does not lower the objective.

    Returns whether there is one, and the mean and sd of variable j after it; the states of its rows are in ``trial``.
    """
    slope, information, size = -(mean[j] - prior[0][j]) * prior[1][j], 0.0, 1.0
    for p in range(rows.shape[0]):
        w, i = values[p], rows[p]
        if w != 0:
            slope += w * state[i, ERROR]
            information += w * w * state[i, KAPPA]
            size += abs(state[i, VALUE])
    precision, share = prior[1][j] + information, 1.0
    for _ in range(HALVINGS):
        found = try_one(
            table, j, share, slope / precision, precision, rows, values, state, trial, gathered, mean, sd, prior
        )  # fmt: skip
        if found[0] >= -unit * size:
            return True, found[1], found[2]
        share /= 2
    return False, mean[j], sd[j]


@njit(cache=True, nogil=True)
def take_over(source, target):  # type: ignore[no-untyped-def]
    """Copy the state of a row; assigning an array would take Numba five times as long to compile."""
    for part in range(5):
        target[part] = source[part]


@njit(cache=True, nogil=True)
def commit(rows, values, trial, state):  # type: ignore[no-untyped-def]
    """Take over the states in ``trial``."""
    for p in range(rows.shape[0]):
        if values[p] != 0:
            take_over(trial[p], state[rows[p]])


@njit(cache=True, nogil=True)
def update_one(table, j, rows, values, state, trial, gathered, mean, sd, prior, unit):  # type: ignore[no-untyped-def]
    """Update one variable."""
    found, new_mean, new_sd = propose_one(table, j, rows, values, state, trial, gathered, mean, sd, prior, unit)
    if found:
        mean[j], sd[j] = new_mean, new_sd
        commit(rows, values, trial, state)


@njit(cache=True, nogil=True)
def refresh(table, rows, values, state, trial, gathered):  # type: ignore[no-untyped-def]
    """Compute the terms of these rows anew, where other threads may have moved them."""
    for p in range(rows.shape[0]):
        i = rows[p]
        trial[p, ETA], trial[p, SQUARED] = state[i, ETA], state[i, SQUARED] if values[p] != 0 else LEFT_OUT
    complete(table, rows, False, trial, gathered)
    for p in range(rows.shape[0]):
        i = rows[p]
        if values[p] != 0:
            state[i, VALUE], state[i, ERROR], state[i, KAPPA] = trial[p, VALUE], trial[p, ERROR], trial[p, KAPPA]
