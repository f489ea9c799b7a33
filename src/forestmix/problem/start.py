"""Where a run with Gaussian latents starts when the user gives no start of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array, host
from forestmix.engines.products import Three
from forestmix.latents import ArrayFactors, GaussianFactors

#: Row means from which on a fast-growing ``a`` is too large, and where the start puts such rows instead.
TOO_LARGE, MODERATE = 50.0, 10.0
#: How much more a row with too large a mean weighs than the prior.
WEIGHT = 1e6
#: How often rows whose means others have made too large are looked for.
ROUNDS = 10


def placed(rows: Any, q: GaussianFactors) -> GaussianFactors:
    """Return factors in the library and place of W; there each observation has its own standard deviations."""
    if rows.on_host:
        return q
    shape = (rows.n_observations, rows.size)
    return ArrayFactors(*(rows.moved(np.broadcast_to(host(part), shape)) for part in (q.mean, q.sd)))


def gaussian_start(rows: Any) -> GaussianFactors:
    """Return q at the prior, its standard deviations narrowed where the rows call for it.

    Rows of varying curvature see the spread of q through ``E a(m + s z)``, and a fast-growing ``a`` overflows at the
    prior's spread when weights are large. Where the largest spread ``s_i = sum_j |w_ij| sigma_j`` is above 1, all
    standard deviations are divided by it, which leaves every row with a spread of at most 1. The first step gives each
    latent a width of its own. Where ``a`` is too large at the prior mean, the start lies where it is not.
    """
    shape = (rows.n_observations, rows.size)
    mean, sd = (np.atleast_2d(part) for part in rows.stacked.prior_moments())
    start = GaussianFactors(np.broadcast_to(mean, shape).copy(), sd.copy())
    if rows.quadratic:
        return placed(rows, start)
    products = rows.engine.products(rows.weights, 1)
    image, spread, _ = products.project(Three(rows.moved(mean), rows.moved(sd), None))
    if rows.on_host and not rows.layer.family.curvature_is_bounded:
        start = GaussianFactors(_moderate_means(rows, start, image[0] + rows.layer.bias), start.sd)
    widest = float(rows.xp.max(spread))
    return placed(rows, GaussianFactors(start.mean, (start.sd / max(widest, 1)).astype(start.sd.dtype)))


def _moderate_means(rows: Any, start: GaussianFactors, first: Array) -> Array:
    """Return the prior means, moved by as little as makes all row means moderate: a least squares problem.

    What makes some rows moderate may make others too large: then those are moved as well. ``first`` are the row means
    at the prior, which all observations share.
    """
    layer, mean, observed = rows.layer, start.mean, rows.data.observed
    there = np.ones((1, layer.size), bool) if observed is None else observed
    for k in range(len(mean) if np.any(first > TOO_LARGE) else 0):
        prior, moved, eta = mean[k].astype(np.float64), np.zeros(layer.size, bool), first
        for _ in range(ROUNDS):
            large = (eta > TOO_LARGE) & there[min(k, len(there) - 1)] & ~moved
            if not large.any():
                break
            moved |= large
            mean[k] = prior + _least_move(layer, prior, start.sd[0].astype(np.float64), np.flatnonzero(moved))
            eta = layer.weights.forward(mean[k]) + layer.bias
    return mean


def _least_move(layer: Any, prior: Array, sd: Array, rows: Array) -> Array:
    """Return the least change of the means, in prior standard deviations, that makes the rows moderate."""
    chosen = layer.weights.rows(rows).astype(np.float64)
    away = MODERATE - (chosen @ prior + np.broadcast_to(layer.bias, layer.size)[rows])
    scaled = chosen * sd
    size = WEIGHT / scipy.sparse.linalg.norm(scaled)
    solve = scipy.sparse.linalg.lsmr
    return sd * solve(size * scaled, size * away, damp=1.0, atol=1e-14, btol=1e-14, conlim=0, maxiter=1000)[0]
