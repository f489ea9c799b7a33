"""Components under the model: the ELBO, and importance weights ``p(x, y) / q(y)`` of draws for one observation."""

from __future__ import annotations

import math
from copy import copy

import numpy as np

from forestmix.arrays import Array
from forestmix.posterior.component import Component
from forestmix.posterior.prediction import row_families
from forestmix.posterior.row_integrals import log_density
from forestmix.posterior.system import LatentSystem
from forestmix.weights.blocks import blocks_of

_LOG_TWO_PI = math.log(2 * math.pi)


def gaussian_elbo(system: LatentSystem, component: Component) -> Array | None:
    """Return the ELBO of ``q = N(mu, Sigma)``, (N,), or ``None`` where ``log det Sigma`` is not known.

    ``sum_i E log p(x_i | m_i + sqrt(v_i) z) + E log p(y) + (log det Sigma + m log 2 pi + m) / 2``
    """
    log_determinant = component.covariance.log_determinant()
    if log_determinant is None:
        return None
    m = component.mean.shape[1]
    entropy = 0.5 * (log_determinant + m * _LOG_TWO_PI + m)
    return _expected_rows(system, component) + _log_prior(system, component.mean) + entropy


def _expected_rows(system: LatentSystem, component: Component) -> Array:
    """Return ``sum_i E log p(x_i | eta_i) - sum_j Var_j / (2 sigma0_j^2)``, (N,).

    With Sigma the inverse of the precision of Gaussian rows, all that comes from variances adds up to ``-m / 2``.
    """
    eta, m = system.eta(component.mean), component.mean.shape[1]
    if system.constant_curvature and component.covariance.kappa() is not None:
        return np.sum(system.terms(eta, np.zeros((1, 1))).log_likelihood, axis=1) - 0.5 * m
    variance = component.covariance.quadratic(system.weights)
    rows = np.sum(system.terms(eta, variance).log_likelihood, axis=1)
    return rows - 0.5 * np.sum(component.covariance.variance() * system.precision, axis=1)


def log_weights(system: LatentSystem, component: Component, rng: np.random.Generator, size: int) -> Array:
    """Return ``log p(x, y) - log q(y)`` for draws y from q, up to a constant where ``log det Sigma`` is not known."""
    draws = component.sample(size, rng)[:, 0]
    return log_joint(system, draws) - log_proposal(system, component, draws)


def log_joint(system: LatentSystem, draws: Array) -> Array:
    """Return ``log p(x, y)`` of each draw of (S, m)."""
    return log_likelihood(system, draws) + _log_prior(system, draws)


def _log_prior(system: LatentSystem, y: Array) -> Array:
    """Return ``log p(y)`` of each vector of (S, m), over the latents whose prior is not among the rows."""
    held = system.precision > 0
    constant = np.sum(np.log(system.scale[held])) + 0.5 * np.sum(held) * _LOG_TWO_PI
    return -0.5 * np.sum((y - system.prior_mean) ** 2 * system.precision, axis=1) - constant


def log_proposal(system: LatentSystem, component: Component, draws: Array) -> Array:
    """Return ``log q(y)`` of each draw, up to a constant where ``log det Sigma`` is not known."""
    distance = draws - component.mean[0]
    square = component.covariance.distinct[component.covariance.which[0]].squared_distance(distance)
    if square is None:
        square = np.sum(distance * _precision_product(system, component, distance), axis=1)
    log_determinant = component.covariance.log_determinant()
    constant = (0.0 if log_determinant is None else log_determinant) + draws.shape[1] * _LOG_TWO_PI
    return -0.5 * (square + constant)


def system_of(system: LatentSystem, component: Component) -> LatentSystem:
    """Return the system with the unknown scales that a component of a mixture has; itself where there are none."""
    if not component.scales:
        return system
    chosen = copy(system)
    chosen.family = component.layer.family.astype(np.dtype(np.float64))
    own = component.covariance.distinct[0].prior_precision
    chosen.precision = system.precision if own is None else own
    with np.errstate(divide="ignore"):
        chosen.scale = chosen.precision**-0.5
    return chosen


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
