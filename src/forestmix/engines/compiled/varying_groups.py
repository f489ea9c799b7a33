"""Updates of several variables at once, for rows whose curvature varies with q.

The members of a group G reach a set of rows together. For each of those rows the sums over the group are kept::

    s_iG = sum_{j in G} |w_ij| sigma_j        w_i = sum_{j in G} w_ij (change of mu_j)

and what the group adds to the squared spread, ``s_iG^2`` for objective "fm" (Jensen's inequality inside the group) and
``sum_{j in G} w_ij^2 sigma_j^2`` for the ELBO.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.columns import column, keep_together
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.scratch import ERROR, KAPPA, VALUE
from forestmix.engines.compiled.varying import (
    ETA,
    HALVINGS,
    SQUARED,
    Gathered,
    complete,
    new_gathered,
    part_way,
    prior_rise,
    rise,
    take_over,
)

#: What ``Scratch.sums`` holds for a row: ``s_iG``, the group's squared spread before and after, and the shift of eta.
ABSOLUTE, BEFORE, AFTER, SHIFT = 0, 1, 2, 3
#: What ``Scratch.steps`` holds for a member: the change of its mean, its new precision, and its new mean and sd.
CHANGE, PRECISION, MEAN, SD = 0, 1, 2, 3


class Scratch(NamedTuple):
    """What group updates write into: ``reached`` lists the rows of the group, ``seen`` is the last group of a row."""

    seen: Array
    reached: Array
    sums: Array
    trial: Array
    steps: Array
    gathered: Gathered


@njit(cache=True, nogil=True)
def new_scratch(n, largest):  # type: ignore[no-untyped-def]
    """Return scratch for n rows and groups of at most ``largest``."""
    seen, reached = np.empty(n, np.int64), np.empty(n, np.int64)
    return Scratch(seen, reached, np.empty((n, 4)), np.empty((n, 5)), np.empty((largest, 4)), new_gathered())


@njit(cache=True, nogil=True)
def _collect(columns, members, low, high, panel, scratch, sd, by_sum):  # type: ignore[no-untyped-def]
    """List the rows that the group reaches, with its spread before the step; return their number."""
    count, sums = 0, scratch.sums
    for position in range(low, high):
        rows, values = column(columns, members, position, panel)
        for p in range(rows.shape[0]):
            i, width = rows[p], abs(values[p]) * sd[members[position]]
            if values[p] != 0:
                # Groups are known by where they begin.
                if scratch.seen[i] != low:
                    scratch.seen[i] = low
                    scratch.reached[count] = i
                    sums[i, ABSOLUTE] = sums[i, BEFORE] = 0
                    count += 1
                sums[i, ABSOLUTE] += width
                sums[i, BEFORE] += width * width
    if by_sum:
        for i in scratch.reached[:count]:
            sums[i, BEFORE] = sums[i, ABSOLUTE] ** 2
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _prepare(columns, members, low, high, panel, scratch, state, mean, sd, prior, by_sum, surrogate):  # type: ignore[no-untyped-def]
    """Write the whole step of every member, and the precision that it leads to."""
    for position in range(low, high):
        j = members[position]
        rows, values = column(columns, members, position, panel)
        slope, curvature, exact = -(mean[j] - prior[0][j]) * prior[1][j], 0.0, 0.0
        for p in range(rows.shape[0]):
            w, i = values[p], rows[p]
            if w != 0:
                slope += w * state[i, ERROR]
                curvature += abs(w) * scratch.sums[i, ABSOLUTE] * state[i, KAPPA]
                exact += w * w * state[i, KAPPA]
        curvature /= sd[j]
        step = scratch.steps[position - low]
        step[CHANGE] = slope / (prior[1][j] + (curvature if surrogate else exact))
        step[PRECISION] = prior[1][j] + (curvature if by_sum else exact)


@njit(cache=True, nogil=True)
def _advance(columns, members, low, high, panel, scratch, count, share, mean, sd, prior, by_sum):  # type: ignore[no-untyped-def]
    """Take part of the step: the members' new factors and the rows' sums; return the rise of the prior's terms."""
    gain, sums = 0.0, scratch.sums
    for i in scratch.reached[:count]:
        sums[i, AFTER] = sums[i, SHIFT] = 0
    for position in range(low, high):
        j, step = members[position], scratch.steps[position - low]
        step[MEAN], step[SD] = part_way(j, share, step[CHANGE], step[PRECISION], mean, sd)
        gain += prior_rise(j, step[MEAN], step[SD], mean, sd, prior)
        rows, values = column(columns, members, position, panel)
        for p in range(rows.shape[0]):
            i, width = rows[p], abs(values[p]) * step[SD]
            sums[i, SHIFT] += values[p] * (step[MEAN] - mean[j])
            sums[i, AFTER] += width if by_sum else width * width
    return gain


@njit(cache=True, nogil=True)
def _try(table, scratch, count, state, by_sum):  # type: ignore[no-untyped-def]
    """Write the states of the rows after the step into ``scratch.trial``; return the rise of their terms."""
    gain, sums, trial = 0.0, scratch.sums, scratch.trial
    for i in scratch.reached[:count]:
        after = sums[i, AFTER] ** 2 if by_sum else sums[i, AFTER]
        trial[i, ETA] = state[i, ETA] + sums[i, SHIFT]
        trial[i, SQUARED] = max(state[i, SQUARED] + after - sums[i, BEFORE], 0.0)
    complete(table, scratch.reached[:count], True, trial, scratch.gathered)
    for i in scratch.reached[:count]:
        gain += rise(trial[i, VALUE], state[i, VALUE])
    return gain


@njit(cache=True, nogil=True)
def update_group(table, columns, members, low, high, panel, scratch, state, mean, sd, prior, unit, options):  # type: ignore[no-untyped-def]
    """Update the members at the positions from ``low`` to ``high`` at once.

    ``options``: whether the objective is "fm"; whether to step with the forest mixture precision of the group rather
    than the exact one of each variable; whether to halve steps that lower the objective.
    """
    by_sum, surrogate, safe = options
    keep_together(panel, low, high)
    count = _collect(columns, members, low, high, panel, scratch, sd, by_sum)
    _prepare(columns, members, low, high, panel, scratch, state, mean, sd, prior, by_sum, surrogate)
    slack, share = unit * (high - low), 1.0
    for i in scratch.reached[:count]:
        slack += unit * abs(state[i, VALUE])
    for _ in range(HALVINGS):
        gain = _advance(columns, members, low, high, panel, scratch, count, share, mean, sd, prior, by_sum)
        gain += _try(table, scratch, count, state, by_sum)
        if not safe or gain >= -slack:
            for i in scratch.reached[:count]:
                take_over(scratch.trial[i], state[i])
            for position in range(low, high):
                step = scratch.steps[position - low]
                mean[members[position]], sd[members[position]] = step[MEAN], step[SD]
            return
        share /= 2
