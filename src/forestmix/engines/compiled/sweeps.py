"""Coordinate updates of one observation's factors, one latent or group after another, for rows of every kind.

For latent j, with the terms of the rows kept up to date (paper, section 5; Theorem 2 for groups)::

    slope     = sum_i w_ij e_i - (mu_j - mu0_j) / sigma0_j^2
    mu_j     <- mu_j + share slope / P_j                       P_j = 1 / sigma0_j^2 + sum_i w_ij^2 kappa_i
    sigma_j  <- ((1 - share) / sigma_j^2 + share P_j)^(-1/2)   share = 1, 1/2, 1/4, ...

until the objective does not fall. Rows of constant curvature need no trial: the whole step is exact, and ``e_i`` falls
by ``kappa_i w_ij`` times the change of ``mu_j``. Kernels get no function for terms then, and Numba compiles nothing of
the rest. For others the state of a row has the mean and squared spread of eta and the terms they give. A state is
(5, n), in float64.
"""

from __future__ import annotations

import math

import numpy as np

from forestmix.engines.compiled.columns import is_dense
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.rows import put_row
from forestmix.engines.compiled.softplus import ERROR as _ERROR
from forestmix.engines.compiled.softplus import KAPPA as _KAPPA
from forestmix.engines.compiled.softplus import VALUE as _VALUE
from forestmix.engines.compiled.softplus import WIDTH
from forestmix.engines.compiled.tiles import FAST

#: How often a step that lowers the objective is halved before the latents are left as they are.
HALVINGS = 30
#: What the state of a row holds.
ETA, SQUARED, VALUE, ERROR, KAPPA = range(5)


@njit(nogil=True)
def evaluate(table, rows, count, state, terms, work):  # type: ignore[no-untyped-def]
    """Write the terms of the first ``count`` of ``rows`` into a state, where eta and its spread are by position."""
    for start in range(0, count, WIDTH):
        number = min(WIDTH, count - start)
        for k in range(number):
            p = start + k
            put_row(table, np.int64(rows[p]), k, state[ETA, p], math.sqrt(state[SQUARED, p]), work)
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


@njit(nogil=True)
def _sums(columns, rows, values, state):  # type: ignore[no-untyped-def]
    """Return ``sum_i w_ij e_i`` and ``sum_i w_ij^2 kappa_i`` of a column."""
    if is_dense(columns):
        return _dense_sums(values, state[ERROR], state[KAPPA])
    slope, exact = 0.0, 0.0
    for p in range(rows.shape[0]):
        w, i = np.float64(values[p]), rows[p]
        slope += w * state[ERROR, i]
        exact += w * w * state[KAPPA, i]
    return slope, exact


@njit(nogil=True, fastmath=FAST)
def _dense_change(values, change, error, kappa):  # type: ignore[no-untyped-def]
    for i in range(values.shape[0]):
        error[i] -= kappa[i] * values[i] * change


@njit(nogil=True)
def change_errors(columns, rows, values, change, state):  # type: ignore[no-untyped-def]
    """Take ``kappa_i w_ij change`` from the errors of a column's rows."""
    if is_dense(columns):
        _dense_change(values, change, state[ERROR], state[KAPPA])
        return
    for p in range(rows.shape[0]):
        i = rows[p]
        state[ERROR, i] -= state[KAPPA, i] * values[p] * change


@njit(inline="always")
def rise(new, old):  # type: ignore[no-untyped-def]
    """Return by how much a term of the objective grows; nothing where it is infinite before and after."""
    return 0.0 if new == old else new - old


@njit(nogil=True)
def prior_rise(j, new_mean, new_sd, mean, sd, prior):  # type: ignore[no-untyped-def]
    """Return by how much ``-KL(q_j || p_j)`` grows."""
    old, new = mean[j] - prior[0][j], new_mean - prior[0][j]
    growth = (new - old) * (new + old) + (new_sd - sd[j]) * (new_sd + sd[j])
    return math.log(new_sd / sd[j]) - 0.5 * prior[1][j] * growth


@njit(nogil=True, error_model="numpy")
def update_one(table, columns, j, rows, values, state, trial, mean, sd, prior, unit, terms, work):  # type: ignore[no-untyped-def]
    """Update one latent; return whether a step was found that does not lower the objective."""
    slope, exact = _sums(columns, rows, values, state)
    slope -= (mean[j] - prior[0][j]) * prior[1][j]
    precision = prior[1][j] + exact
    change = slope / precision
    if terms is None:
        mean[j] += change
        sd[j] = 1 / math.sqrt(precision)
        change_errors(columns, rows, values, change, state)
        return True
    share, slack = 1.0, unit
    for p in range(rows.shape[0]):
        slack += unit * abs(state[VALUE, rows[p]])
    for _ in range(HALVINGS):
        new_mean, new_sd = mean[j] + share * change, 1 / math.sqrt((1 - share) / sd[j] ** 2 + share * precision)
        shift, growth = new_mean - mean[j], (new_sd - sd[j]) * (new_sd + sd[j])
        gain = prior_rise(j, new_mean, new_sd, mean, sd, prior)
        for p in range(rows.shape[0]):
            w, i = values[p], rows[p]
            trial[ETA, p] = state[ETA, i] + w * shift
            trial[SQUARED, p] = max(state[SQUARED, i] + w * w * growth, 0.0)
        evaluate(table, rows, rows.shape[0], trial, terms, work)
        for p in range(rows.shape[0]):
            gain += rise(trial[VALUE, p], state[VALUE, rows[p]])
        if gain >= -slack:
            mean[j], sd[j] = new_mean, new_sd
            take_over(rows, rows.shape[0], trial, state)
            return True
        share /= 2
    return False


@njit(inline="always")
def take_over(rows, count, trial, state):  # type: ignore[no-untyped-def]
    """Copy the states of rows from their positions."""
    for part in range(5):
        for p in range(count):
            state[part, rows[p]] = trial[part, p]
