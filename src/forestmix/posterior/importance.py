"""Importance weights ``p(x, y) / q(y)`` of draws from a component, for one observation."""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.posterior.component import Component
from forestmix.posterior.prediction import row_families
from forestmix.posterior.row_integrals import log_density
from forestmix.posterior.system import LatentSystem
from forestmix.weights.blocks import blocks_of


def log_weights(system: LatentSystem, component: Component, rng: np.random.Generator, size: int) -> Array:
    """Return ``log p(x, y) - log q(y)`` for draws y from q, up to a constant where ``log det Sigma`` is not known."""
    draws = component.sample(size, rng)[:, 0]
    distance = draws - component.mean[0]
    held = system.precision > 0
    prior = -0.5 * np.sum((draws - system.prior_mean) ** 2 * system.precision, axis=1)
    prior -= np.sum(np.log(system.scale[held])) - 0.5 * (len(held) - np.sum(held)) * np.log(2 * np.pi)
    log_determinant = component.covariance.log_determinant()
    square = np.sum(distance * _precision_product(system, component, distance), axis=1)
    return log_likelihood(system, draws) + prior + 0.5 * (square + (log_determinant or 0.0))


def _precision_product(system: LatentSystem, component: Component, y: Array) -> Array:
    """Return ``Sigma^-1 y`` of each draw."""
    kappa = component.covariance.kappa()
    if kappa is None:
        return y / component.covariance.variance()
    return y * system.precision + system.weights.adjoint(kappa * system.weights.forward(y))


def log_likelihood(system: LatentSystem, draws: Array) -> Array:
    """Return ``sum_i log p(x_i | y)`` over observed rows, for each draw of (S, m)."""
    n = system.weights.shape[0]
    x = system.data.x[0].astype(np.float64)
    observed = np.ones(n, bool) if system.data.observed is None else system.data.observed[0]
    total = np.zeros(len(draws))
    for block in blocks_of(len(draws), 32 * n):
        eta = system.eta(draws[block])
        for family, rows in row_families(system.family, n):
            total[block] += np.sum(log_density(family, x[rows], eta[:, rows])[:, observed[rows]], axis=1)
    return total
