"""Where a run starts when the user gives no start of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.problem.given import GaussianFactors, prior_factors

#: Row means from which on a fast-growing ``a`` is out of reach, and where the start puts such rows instead.
OUT_OF_REACH, WITHIN_REACH = 50.0, 10.0
#: How much more a row that is out of reach weighs than the prior.
WEIGHT = 1e6
#: How often rows that others have put out of reach are looked for.
ROUNDS = 10


def gaussian_start(problem: Any) -> GaussianFactors:
    """Return q at the prior, its standard deviations narrowed where the rows call for it.

    Rows of varying curvature see the spread of q through ``E a(m + s z)``, and a fast-growing ``a`` overflows at the
    prior's spread when weights are large. Where the largest spread ``s_i = sum_j |w_ij| sigma_j`` is above 1, all
    standard deviations are divided by it, which leaves every row with a spread of at most 1. The first step gives each
    latent a width of its own. Where ``a`` is out of reach at the prior mean, the start lies where it is not.
    """
    start = prior_factors(problem.model, problem.n_observations)
    if problem.curvature_is_constant:
        return start
    mean = start.mean if problem.site.layer.family.curvature_is_bounded else _within_reach(problem, start)
    return narrowed(problem, GaussianFactors(mean, start.sd))


def narrowed(problem: Any, start: GaussianFactors) -> GaussianFactors:
    """Return the start with standard deviations that leave every row with a spread of at most 1."""
    widest = np.max(problem.site.layer.weights.project(None, start.sd, absolute=True).absolute)
    return GaussianFactors(start.mean, start.sd / max(widest, 1))


def _within_reach(problem: Any, start: GaussianFactors) -> Array:
    """Return the prior means, moved by as little as brings rows that are out of reach back: a least squares problem.

    What brings some rows back may put others out of reach: then those are brought back as well.
    """
    layer, mean = problem.site.layer, start.mean
    observed = problem.site.data.observed
    there = np.ones((1, layer.size), bool) if observed is None else observed
    for k in range(len(mean)):
        prior, back = mean[k].astype(np.float64), np.zeros(layer.size, bool)
        for _ in range(ROUNDS):
            eta = layer.weights.forward(mean[k]) + layer.bias
            out = (eta > OUT_OF_REACH) & there[min(k, len(there) - 1)] & ~back
            if not out.any():
                break
            back |= out
            mean[k] = prior + _least_move(layer, prior, start.sd[0].astype(np.float64), np.flatnonzero(back))
    return mean


def _least_move(layer: Any, prior: Array, sd: Array, rows: Array) -> Array:
    """Return the least change of the means, in prior standard deviations, that brings the rows within reach."""
    chosen = layer.weights.rows(rows).astype(np.float64)
    away = WITHIN_REACH - (chosen @ prior + np.broadcast_to(layer.bias, layer.size)[rows])
    scaled = chosen * sd
    size = WEIGHT / scipy.sparse.linalg.norm(scaled)
    return (
        sd
        * scipy.sparse.linalg.lsmr(
            size * scaled, size * away, damp=1.0, atol=1e-14, btol=1e-14, conlim=0, maxiter=1000
        )[0]
    )
