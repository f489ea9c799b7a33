"""The normal distribution cut off at zero, to full precision however far out the cut is.

``q(y) ∝ exp(-H y^2 / 2 + h y)`` for ``y >= 0``. With ``s = H^(-1/2)`` and ``t = -h s`` it is s times a standard normal
above t, shifted by t. Its moments are differences of nearly equal numbers for large t; the continued fraction of
Mills' ratio, ``phi(t) / Q(t) = t + 1/(t + 2/(t + 3/(t + ...)))``, has none::

    m(t) = 1 / (t + c(t)),   c(t) = 2 / (t + 3/(t + ...)),    mean = s m,   variance = s^2 m (c - m)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from forestmix.arrays import Array

#: From here on the continued fraction is exact to rounding with this many terms.
FRACTION_FROM, TERMS = 4.0, 60
_ROOT_HALF, _ROOT_TWO_OVER_PI = math.sqrt(0.5), math.sqrt(2 / math.pi)
#: Newton steps that a quantile far out takes to full precision.
QUANTILE_STEPS = 6


@dataclass(frozen=True)
class HalfLine:
    """``q(y) ∝ exp(-H y^2 / 2 + h y)`` on ``y >= 0``, entry by entry; H = 0 is an exponential with rate ``-h``."""

    H: Array
    h: Array

    @cached_property
    def t(self) -> Array:
        """``-h / sqrt(H)``: where a standard normal is cut off; infinite for H = 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.H > 0, -self.h / np.sqrt(self.H), np.inf)

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """Mean and variance."""
        first, second = _standard_moments(np.where(np.isinf(self.t), 1.0, self.t))
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(self.H > 0, first / np.sqrt(self.H), -1 / self.h)
            return mean, np.where(self.H > 0, second / self.H, self.h**-2.0)

    @cached_property
    def log_mass(self) -> Array:
        """``log int_0^inf exp(-H y^2 / 2 + h y) dy``."""
        t = np.where(np.isinf(self.t), 1.0, self.t)
        with np.errstate(divide="ignore", invalid="ignore"):
            normal = log_mills(t) - 0.5 * np.log(self.H)
            return np.where(self.H > 0, normal, -np.log(-self.h))

    def density(self, y: Array) -> Array:
        """Return the density at y."""
        inside = np.where(y < 0, 0.0, y)
        return np.where(y < 0, 0.0, np.exp(-0.5 * self.H * inside**2 + self.h * inside - self.log_mass))

    def survival_quantile(self, p: Array) -> Array:
        """Return y with ``P(Y > y) = p``, by Newton's method on the logarithm of that probability.

        With ``y = s u``: ``log P = -t u - u^2 / 2 + log M(t + u) - log M(t)`` for M Mills' ratio, concave in u.
        """
        p = np.asarray(p)
        t = np.where(np.isinf(self.t), 1.0, self.t) + np.zeros(np.shape(p))
        goal = np.log(p)
        # A start that solves the quadratic part; for a cut far below the mode, the normal quantile.
        far = -2 * goal / (t + np.sqrt(t**2 - 2 * goal))
        near = -scipy.special.ndtri_exp(goal + scipy.special.log_ndtr(-t)) - t
        u = np.where(t > FRACTION_FROM, far, np.maximum(near, 0.0))
        for _ in range(QUANTILE_STEPS):
            excess = -t * u - 0.5 * u**2 + log_mills(t + u) - log_mills(t) - goal
            u = np.where(t > FRACTION_FROM, np.maximum(u + excess * np.exp(log_mills(t + u)), 0.0), u)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.H > 0, u / np.sqrt(self.H), goal / self.h)


def log_mills(t: Array) -> Array:
    """Return ``log int_0^inf exp(-u^2 / 2 - t u) du = log(Q(t) / phi(t))``."""
    with np.errstate(over="ignore"):
        scaled = np.log(scipy.special.erfcx(_ROOT_HALF * np.maximum(t, 0.0))) - math.log(_ROOT_TWO_OVER_PI)
    return np.where(t > 0, scaled, scipy.special.log_ndtr(-t) + 0.5 * t**2 + 0.5 * math.log(2 * math.pi))


def _standard_moments(t: Array) -> tuple[Array, Array]:
    """Return mean and variance of ``N(-t, 1)`` cut off below 0."""
    t = np.asarray(t, np.float64)
    near = np.minimum(t, FRACTION_FROM)
    hazard = np.exp(-log_mills(near))
    mean = np.asarray(hazard - near)
    variance = np.asarray(1 - hazard * mean)
    out = t > FRACTION_FROM
    if out.any():
        far = t[out]
        c = np.zeros_like(far)
        for k in range(TERMS, 1, -1):
            c = k / (far + c)
        mean[out] = 1 / (far + c)
        variance[out] = mean[out] * (c - mean[out])
    return mean, variance
