"""The predictive density of one row, ``log int p(x | eta) N(eta; m, v) d eta``, at any scale.

Gaussian rows are closed, and rows of 0 and 1 are one expectation of a sigmoid. For others the integrand is log-concave:
its mode is found by bisection of the slope, then on either side where it is ``CUTOFF`` nats lower, and between
these points Gauss-Legendre quadrature sees all of it, however narrow the likelihood is beside the normal or the
other way round.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from forestmix.arrays import Array
from forestmix.families import Bernoulli, Family, Gaussian
from forestmix.posterior.prediction import legendre

#: What lies below the mode by more than this, in nats, is left out: 4e-18 of it.
CUTOFF = 40.0
#: The mode is found to this share of the normal's sd, in as many halvings at most as a bracket of 1e300 takes.
MODE_ERROR, MODE_HALVINGS = 1e-10, 1100
#: Halvings of a bracket of an end, and of the length before that.
END_HALVINGS, DOUBLINGS = 5, 60
#: Nodes of the quadrature on each side of the mode.
NODES = 40
#: Entries whose nodes are in memory together.
BLOCK = 2**14


def log_predictive(family: Family, x: Array, mean: Array, variance: Array) -> Array:
    """Return ``log E p(x | eta)`` for ``eta ~ N(mean, variance)``, entry by entry of (N, r)."""
    if isinstance(family, Gaussian):
        total = family.sd.astype(np.float64) ** 2 + variance
        return -0.5 * ((x - mean) ** 2 / total + np.log(total) + math.log(2 * math.pi))
    if isinstance(family, Bernoulli):
        # E sigma(eta) for 1 and E sigma(-eta) for 0, each with all its digits.
        return np.log(family.expected_log_partition(np.where(x > 0, mean, -mean), np.sqrt(variance)).slope)
    found = np.empty(mean.shape)
    for k in range(len(mean)):
        for start in range(0, mean.shape[1], BLOCK):
            rows = np.arange(start, min(start + BLOCK, mean.shape[1]))
            found[k, rows] = _quadrature(family.take(rows), x[k, rows], mean[k, rows], variance[k, rows])
    return found


def log_density(family: Family, x: Array, eta: Array) -> Array:
    """Return ``log p(x | eta)``, entry by entry."""
    if isinstance(family, Gaussian):
        return family.expectations(x, eta, np.zeros(())).log_likelihood
    with np.errstate(over="ignore"):
        return family.log_base(x) + family.statistic(x) * eta - family.log_partition(eta)


def _quadrature(family: Family, x: Array, mean: Array, variance: Array) -> Array:
    """Return the integrals of a block of rows, (r,)."""
    sd = np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny))
    statistic = family.statistic(x)
    mode = _mode(family, statistic, mean, sd)
    at_mode = family.log_partition(mode)
    z_mode = (mode - mean) / sd

    def deficit(z: Array) -> Array:
        """Return by how much the log of the integrand is below its mode, at ``eta = mean + sd z``."""
        step = sd * (z - z_mode)
        with np.errstate(over="ignore"):
            rise = family.log_partition(mode + step) - at_mode
        return rise - statistic * step + 0.5 * (z - z_mode) * (z + z_mode)

    nodes, weights = legendre(NODES)
    total = np.zeros(len(x))
    for side in (-1.0, 1.0):
        length = _length(deficit, z_mode, side)
        for node, weight in zip(nodes, weights, strict=True):
            total += 0.5 * weight * length * np.exp(-deficit(z_mode + side * length * 0.5 * (1 + node)))
    best = np.asarray(family.expectations(x, mode, np.zeros_like(mode)).log_likelihood, np.float64)
    return best - 0.5 * z_mode**2 - 0.5 * math.log(2 * math.pi) + np.log(total)


def _mode(family: Family, statistic: Array, mean: Array, sd: Array) -> Array:
    """Return the root of ``t - a'(eta) - (eta - m) / v``, which falls with eta.

    It lies between m and ``m + v (t - a'(m))``, since ``a'`` grows.
    """
    slope = statistic - family.log_partition_slope(mean)
    limit = mean + np.clip(sd**2 * slope, -1e300, 1e300)
    low, high = np.minimum(mean, limit), np.maximum(mean, limit)
    with np.errstate(over="ignore"):
        for _ in range(MODE_HALVINGS):
            middle = 0.5 * (low + high)
            if (high - low <= np.maximum(MODE_ERROR * sd, 4 * np.spacing(np.abs(middle)))).all():
                break
            above = statistic - family.log_partition_slope(middle) > (middle - mean) / sd**2
            low, high = np.where(above, middle, low), np.where(above, high, middle)
    return 0.5 * (low + high)


def _length(deficit: Callable[[Array], Array], z_mode: Array, side: float) -> Array:
    """Return how far from the mode, in z, the integrand is lower by ``CUTOFF``, a little more rather than less."""
    # The normal alone is lower by then, unless its slope at the mode is against it.
    high = np.full(len(z_mode), math.sqrt(2 * CUTOFF))
    for _ in range(DOUBLINGS):
        short = deficit(z_mode + side * high) < CUTOFF
        if not short.any():
            break
        high = np.where(short, 2 * high, high)
    # By halves of the length itself: a likelihood far narrower than the normal takes many.
    for _ in range(DOUBLINGS):
        beyond = deficit(z_mode + side * 0.5 * high) >= CUTOFF
        if not beyond.any():
            break
        high = np.where(beyond, 0.5 * high, high)
    low = 0.5 * high
    for _ in range(END_HALVINGS):
        middle = 0.5 * (low + high)
        beyond = deficit(z_mode + side * middle) >= CUTOFF
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return high
