"""Corrected means: the optimum of the ELBO once correlation is put back.

Dropping correlations changes the spreads of rows, and for rows that are not Gaussian that moves the means of the best
factorised q. With ``Sigma`` from linear response and ``v_i = w_i^T Sigma w_i`` held, those of ``N(mu, Sigma)`` climb::

    L(mu) = sum_i E log p(x_i | m_i + sqrt(v_i) z) - sum_j (mu_j - mu0_j)^2 / (2 sigma0_j^2)

by Newton's steps ``mu += rho Sigma (W^T e - (mu - mu0) / sigma0^2)``, with rho halved while L would fall. That is the
first part of the fixed point of a full covariance (Opper and Archambeau 2009). For Gaussian rows one step gives the
exact posterior mean.
"""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.posterior.covariance import CovarianceBatch
from forestmix.posterior.system import LatentSystem

#: Steps at most, halvings of one, and when to stop: no mean moves by more than this share of its standard deviation.
STEPS, HALVINGS, ENOUGH = 50, 12, 1e-9


def corrected_means(system: LatentSystem, mean: Array, covariance: CovarianceBatch) -> Array:
    """Return the means of the best ``N(mu, Sigma)``, (N, m), from those of q."""
    if system.constant_curvature:
        variance = np.zeros((1, system.weights.shape[0]))
    else:
        variance = covariance.quadratic(system.weights)
    mean = np.asarray(mean, np.float64)
    sd = np.sqrt(covariance.variance())
    value, gradient = _objective(system, mean, variance)
    # A spread beyond the range of exp has no correction: q's own means stay.
    active = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
    for _ in range(STEPS):
        if not active.any():
            break
        step = np.where(active[:, None], covariance.solve(np.where(active[:, None], gradient, 0.0)), 0.0)
        new, new_value, new_gradient = _backtracked(system, mean, value, step, variance)
        moved = np.max(np.abs(new - mean) / sd, axis=1)
        gained = new_value >= value
        mean = np.where(gained[:, None], new, mean)
        gradient = np.where(gained[:, None], new_gradient, gradient)
        value = np.where(gained, new_value, value)
        active &= gained & (moved > ENOUGH)
    return mean


def _objective(system: LatentSystem, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Return ``L``, (N,), and its gradient, (N, m)."""
    terms = system.terms(system.eta(mean), variance)
    distance = mean - system.prior_mean
    with np.errstate(invalid="ignore", over="ignore"):
        value = np.sum(terms.log_likelihood, axis=1) - 0.5 * np.sum(distance**2 * system.precision, axis=1)
        error = np.where(np.isfinite(value)[:, None], terms.error, 0.0)
    return value, system.weights.adjoint(error) - distance * system.precision


def _backtracked(
    system: LatentSystem, mean: Array, value: Array, step: Array, variance: Array
) -> tuple[Array, Array, Array]:
    """Return the means after the longest step of 1, 1/2, 1/4, ... that does not lower L, with L and its gradient."""
    length = np.ones((len(mean), 1))
    for _ in range(HALVINGS):
        new = mean + length * step
        new_value, gradient = _objective(system, new, variance)
        # Rounding of a sum of n terms, which would make a step at the optimum look like a loss.
        slack = 1e-13 * (1 + np.abs(value))
        fell = ~(new_value >= value - slack)
        if not fell.any():
            break
        length = np.where(fell[:, None], 0.5 * length, length)
    return new, np.maximum(new_value, np.where(fell, -np.inf, value)), gradient
