"""Coordinate ascent for spike-and-slab latents under Gaussian rows, one variable after another.

For variable j, with the row errors ``e_i = kappa_i (x_i - m_i)`` up to date, ``h = H_j mu_j + sum_i w_ij e_i`` and the
formulas of ``latents.spike_slab``. A binary latent is one whose slab is at 1 and has no spread::

    logit_j = eta_j - H_j / 2 + h

Batch arrays are (N, m) or (N, n); the spread of the prior's slab is (m,).
"""

from __future__ import annotations

import math

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit


@njit(cache=True, inline="always")
def _expit(z):  # type: ignore[no-untyped-def]
    if z >= 0:
        return 1.0 / (1.0 + math.exp(-z))
    small = math.exp(z)
    return small / (1.0 + small)


@njit(cache=True, nogil=True)
def _pull(j, starts, rows, values, error):  # type: ignore[no-untyped-def]
    total = 0.0
    for p in range(starts[j], starts[j + 1]):
        total += values[p] * error[rows[p]]
    return total


@njit(cache=True, nogil=True)
def _move(j, change, starts, rows, values, error, kappa):  # type: ignore[no-untyped-def]
    for p in range(starts[j], starts[j + 1]):
        error[rows[p]] -= kappa[rows[p]] * values[p] * change


@njit(cache=True, nogil=True)
def sweep_spike_slab(
    starts: Array, rows: Array, values: Array, order: Array, H: Array, prior_logit: Array, prior_mean: Array,
    prior_sd: Array, mean: Array, error: Array, kappa: Array, logit: Array, slab_mean: Array, slab_sd: Array,
) -> None:  # fmt: skip
    """Update the variables in ``order``; ``mean``, ``error`` and the three parameters of q in place."""
    for k in range(mean.shape[0]):
        for j in order:
            h, centre = H[k, j] * mean[k, j] + _pull(j, starts, rows, values, error[k]), prior_mean[k, j]
            sd, ratio = 0.0, 1.0
            if prior_sd[j] > 0:
                sd = 1.0 / math.hypot(1.0 / prior_sd[j], math.sqrt(H[k, j]))
                ratio = sd / prior_sd[j]
            share = ratio**2
            gain = 0.5 * (sd * h) ** 2 + share * centre * (h - 0.5 * H[k, j] * centre)
            logit[k, j] = prior_logit[k, j] + gain + math.log(ratio)
            if share > 0.5:
                centre += sd * (sd * (h - H[k, j] * centre))
            else:
                centre = sd * (sd * h) + share * centre
            slab_mean[k, j], slab_sd[k, j] = centre, sd
            new = _expit(logit[k, j]) * centre
            _move(j, new - mean[k, j], starts, rows, values, error[k], kappa[k])
            mean[k, j] = new
