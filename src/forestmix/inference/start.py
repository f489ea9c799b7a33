"""Where a run starts when the user gives no start of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.posterior import GaussianFactors, prior_factors

#: Row means from which on a fast-growing ``a`` is out of reach, and where the start puts such rows instead.
OUT_OF_REACH, WITHIN_REACH = 50.0, 10.0
#: How much more a row that is out of reach weighs than the prior.
WEIGHT = 1e4


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
    """Return the prior means, moved by as little as brings rows that are out of reach back: a least squares problem."""
    layer, mean = problem.site.layer, start.mean
    eta = layer.weights.forward(mean) + layer.bias
    observed = problem.site.data.observed
    out = (eta > OUT_OF_REACH) & (True if observed is None else observed)
    for k in np.flatnonzero(out.any(axis=1)):
        rows = layer.weights.rows(np.flatnonzero(out[k])).astype(np.float64) * start.sd[0]
        size = WEIGHT / scipy.sparse.linalg.norm(rows)
        found = scipy.sparse.linalg.lsmr(size * rows, size * (WITHIN_REACH - eta[k, out[k]]), damp=1.0, maxiter=1000)
        mean[k] += start.sd[0] * found[0]
    return mean
