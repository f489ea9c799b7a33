"""Components under the model: the ELBO, and importance weights ``p(x, y) / q(y)`` of draws for one observation.

The weights have a tail like a generalised Pareto distribution of shape k (Vehtari, Simpson, Gelman, Yao and Gabry, JMLR
25, 2024). With ``k < 0.7`` averages over the draws can be relied on, and q is close to the posterior; above 1 not even
the mean of the weights exists.
"""

from __future__ import annotations

import math
from copy import copy
from typing import NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.posterior.component import Component
from forestmix.posterior.prediction import row_families
from forestmix.posterior.row_integrals import log_density
from forestmix.posterior.system import LatentSystem
from forestmix.weights.blocks import blocks_of

_LOG_TWO_PI = math.log(2 * math.pi)
#: The fit needs this many draws in the tail.
LEAST_TAIL = 5


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


class Smoothed(NamedTuple):
    """Smoothed log weights, the shape k of their tail, and the logarithm of their mean with its standard error."""

    log_weights: Array
    k: float
    log_mean: float
    log_mean_error: float


def smoothed(log_weights: Array) -> Smoothed:
    """Return the weights with their tail replaced by quantiles of its Pareto fit.

    The tail are the ``min(S / 5, 3 sqrt(S))`` largest of S.
    """
    log_weights = np.asarray(log_weights, np.float64)
    top, count = float(np.max(log_weights)), len(log_weights)
    if not np.isfinite(top):
        return Smoothed(log_weights, np.inf, top, np.inf)
    scaled = log_weights - top
    tail = int(min(np.ceil(0.2 * count), np.ceil(3 * np.sqrt(count))))
    order = np.argsort(scaled)
    cutoff = np.exp(scaled[order[-tail - 1]])
    excess = np.exp(scaled[order[-tail:]]) - cutoff
    k = np.inf
    if tail >= LEAST_TAIL and excess[-1] > 0:
        # Equal weights up to rounding have no tail: q is the posterior.
        k, sigma = (-np.inf, 0.0) if excess[-1] < 1e-12 else generalised_pareto(excess)
        if np.isfinite(k):
            p = (np.arange(tail) + 0.5) / tail
            scaled = scaled.copy()
            quantiles = -sigma * scipy.special.boxcox1p(-p, -k)
            scaled[order[-tail:]] = np.minimum(np.log(cutoff + quantiles), 0.0)
    elif excess[-1] == 0:
        k = -np.inf
    log_mean = float(scipy.special.logsumexp(scaled)) - np.log(count)
    error = float(np.std(np.exp(scaled - log_mean)) / np.sqrt(count))
    return Smoothed(scaled + top, float(k), log_mean + top, error)


def generalised_pareto(excess: Array) -> tuple[float, float]:
    """Return shape k and scale sigma of a generalised Pareto distribution (Zhang and Stephens, Technometrics, 2009).

    With ``theta = -k / sigma`` the likelihood is profiled, and theta is averaged over a grid with a weak prior. Then k
    is drawn a little to 0.5, as if ten more values had said so (Vehtari et al., appendix C).
    """
    x = np.sort(excess)
    n = len(x)
    points = 30 + int(np.sqrt(n))
    quarter = x[int(n / 4 + 0.5) - 1]
    theta = 1 / x[-1] + (1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))) / (3 * max(quarter, 1e-300))
    shape = np.mean(np.log1p(-theta[:, None] * x), axis=1)
    profile = n * (np.log(-theta / shape) - shape - 1)
    weight = scipy.special.softmax(profile)
    best = float(np.sum(theta * weight))
    k = float(np.mean(np.log1p(-best * x)))
    sigma = -k / best
    return (n * k + 5.0) / (n + 10), sigma
