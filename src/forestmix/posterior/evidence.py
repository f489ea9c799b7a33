"""The ELBO of a Gaussian with any covariance; for Gaussian rows at the exact posterior it is the log evidence."""

from __future__ import annotations

import math

import numpy as np

from forestmix.arrays import Array
from forestmix.posterior.component import Component
from forestmix.posterior.system import LatentSystem

_LOG_TWO_PI = math.log(2 * math.pi)


def gaussian_elbo(system: LatentSystem, component: Component) -> Array | None:
    """Return the ELBO of ``q = N(mu, Sigma)``, (N,), or ``None`` where ``log det Sigma`` is not known.

    ``sum_i E log p(x_i | m_i + sqrt(v_i) z) + E log p(y) + (log det Sigma + m log 2 pi + m) / 2``
    """
    log_determinant = component.covariance.log_determinant()
    if log_determinant is None:
        return None
    m = component.mean.shape[1]
    held = system.precision > 0
    log_normaliser = np.sum(np.log(system.scale[held])) + 0.5 * np.sum(held) * _LOG_TWO_PI
    distance = np.sum((component.mean - system.prior_mean) ** 2 * system.precision, axis=1)
    entropy = 0.5 * (log_determinant + m * _LOG_TWO_PI + m)
    return _expected_rows(system, component) - 0.5 * distance - log_normaliser + entropy


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
