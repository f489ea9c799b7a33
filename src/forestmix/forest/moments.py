"""Sums over observations that hold all Gaussian leaves need of the data, and the regression of leaves on latents."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.forest.parameters import ForestParameters, present
from forestmix.latents import GaussianFactors
from forestmix.model import Observations


class Moments(NamedTuple):
    """Sums over observations of 1, x_i, x_i^2, E y_j, E y_j^2 and x_i E y_j; each broadcasts to (n, m)."""

    number: Array
    x: Array
    xx: Array
    y: Array
    yy: Array
    xy: Array


def moments(data: Observations, q: GaussianFactors) -> Moments:
    """Return the moments of shared parents: two products with x, or five where entries are missing."""
    second = q.mean**2 + q.sd**2
    x, xx, xy = data.x.sum(axis=0)[:, None], np.einsum("si,si->i", data.x, data.x)[:, None], data.x.T @ q.mean
    if data.observed is None:
        number = np.full((1, 1), float(data.x.shape[0]))
        return Moments(number, x, xx, q.mean.sum(axis=0)[None], second.sum(axis=0)[None], xy)
    there = present(data)
    return Moments(there.sum(axis=0)[:, None], x, xx, there.T @ q.mean, there.T @ second, xy)


def weighted_moments(data: Observations, q: GaussianFactors, responsibilities: Array) -> Moments:
    """Return the moments of parents per observation, weighted by their responsibilities (N, n, m)."""
    r = responsibilities * present(data)[:, :, None]
    rx = r * data.x[:, :, None]
    return Moments(
        r.sum(axis=0),
        rx.sum(axis=0),
        np.einsum("sij,si->ij", rx, data.x),
        np.einsum("sij,sj->ij", r, q.mean),
        np.einsum("sij,sj->ij", r, np.broadcast_to(q.mean**2 + q.sd**2, q.mean.shape)),
        np.einsum("sij,sj->ij", rx, q.mean),
    )


def regression(p: ForestParameters, sums: Moments, min_variance: float) -> ForestParameters:
    """Return the weights, biases and noise that maximise the expected log-likelihood of every pair.

    The regression of x_i on y_j: ``w = Cov(x, y) / Var(y)``, ``b = E x - w E y``, ``noise^2 = Var(x) - w Cov(x, y)``,
    not below ``min_variance``, with which it is the maximiser under that limit.
    """
    count = np.maximum(sums.number, 1e-300)
    x, y = sums.x / count, sums.y / count
    covariance = sums.xy / count - x * y
    w = covariance / np.maximum(sums.yy / count - y**2, 1e-300)
    variance = np.maximum(sums.xx / count - x**2 - w * covariance, min_variance)
    b, noise = x - w * y, np.sqrt(variance)
    empty = np.broadcast_to(sums.number < 1e-8, w.shape)
    if empty.any() and p.noise is not None:
        # A pair that nothing was seen of keeps what it has.
        w, b, noise = (np.where(empty, old, new) for old, new in ((p.weights, w), (p.bias, b), (p.noise, noise)))
    return replace(p, weights=w, bias=b, noise=noise)


def gaussian_scores(p: ForestParameters, sums: Moments) -> Array:
    """Return ``sum_s E log N(x_si; b_ij + w_ij y_sj, noise_ij^2)`` of every pair from the moments."""
    assert p.noise is not None
    w, b, variance = p.weights, p.bias, p.noise**2
    square = sums.xx - 2 * b * sums.x - 2 * w * sums.xy + sums.number * b**2 + 2 * b * w * sums.y + w**2 * sums.yy
    return -0.5 * sums.number * np.log(2 * np.pi * variance) - 0.5 * square / variance


def gaussian_latents(p: ForestParameters, data: Observations, responsibilities: Array) -> GaussianFactors:
    """Return the best ``q(y)`` for Gaussian leaves with shared parents, by products with x.

    ``1/sigma_j^2 = 1/sigma0_j^2 + sum_i r_ij w_ij^2 / noise_ij^2``; the sd is one row unless entries are missing.
    """
    assert p.noise is not None
    pull = responsibilities * p.weights / p.noise**2
    there = present(data)
    H, h = there @ (pull * p.weights), data.x @ pull - there @ (pull * p.bias)
    return GaussianFactors.tilted(p.prior, p.prior_mean, H, h)
