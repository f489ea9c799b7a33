"""Pareto-smoothed importance sampling (Vehtari, Simpson, Gelman, Yao and Gabry, JMLR 25, 2024).

Importance weights ``p(x, y) / q(y)`` of draws from q have a tail like a generalised Pareto distribution of shape k.
With ``k < 0.7`` averages over the draws can be relied on, and q is close to the posterior; above 1 not even the mean of
the weights exists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array

#: The fit needs this many draws in the tail.
LEAST_TAIL = 5


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
            scaled[order[-tail:]] = np.minimum(np.log(cutoff + pareto_quantile(p, k, sigma)), 0.0)
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


def pareto_quantile(p: Array, k: float, sigma: float) -> Array:
    """Return the quantile ``sigma ((1 - p)^-k - 1) / k``, infinite where that overflows."""
    with np.errstate(over="ignore"):
        return sigma * np.expm1(-k * np.log1p(-p)) / k if k != 0 else -sigma * np.log1p(-p)
