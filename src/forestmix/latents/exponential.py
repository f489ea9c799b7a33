"""Factors of latents with an exponential prior: normal distributions cut off at zero, however far out the cut is.

``q(y) ∝ exp(-H y^2 / 2 + h y)`` for ``y >= 0``. With ``s = H^(-1/2)`` and ``t = -h s`` it is s times a standard normal
above t, shifted by t. Its moments are differences of nearly equal numbers for large t; the continued fraction of
Mills' ratio, ``phi(t) / Q(t) = t + 1/(t + 2/(t + 3/(t + ...)))``, has none::

    m(t) = 1 / (t + c(t)),   c(t) = 2 / (t + 3/(t + ...)),    mean = s m,   variance = s^2 m (c - m)

Likewise the entropy: below 0 the exponent is taken around the mode, above 0 around the cut, so that terms of size
``t^2``, which cancel, are in neither form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.families import Exponential
from forestmix.latents.base import Factors

#: From here on the continued fraction is exact to rounding with this many terms.
FRACTION_FROM, TERMS = 4.0, 60
#: From here on ``H y^2`` is less than rounding, and the distribution an exponential one, whatever H is.
FARTHEST = 1e8
_ROOT_HALF, _LOG_ROOT_TWO_PI = math.sqrt(0.5), 0.5 * math.log(2 * math.pi)
#: Newton steps that a quantile takes to full precision.
QUANTILE_STEPS = 8


@dataclass(frozen=True)
class ExponentialFactors(Factors):
    """``q_j(y) ∝ exp(-H_j y^2 / 2 + h_j y)`` for ``y >= 0``, an exponential distribution if H = 0.

    The prior's rate is in h.
    """

    straight_tails: ClassVar[bool] = True

    H: Array
    h: Array

    @classmethod
    def tilted(cls, family: Exponential, eta: Array, H: Array, h: Array) -> Self:
        """Return the factors with ``h - rate``."""
        return cls(*np.broadcast_arrays(np.asarray(H, np.float64), h - family.rate))

    @cached_property
    def t(self) -> Array:
        """``-h / sqrt(H)``: where a standard normal is cut off; at most ``FARTHEST``, also for H = 0."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.minimum(np.where(self.H > 0, -self.h / np.sqrt(self.H), np.inf), FARTHEST)

    @cached_property
    def scale(self) -> Array:
        """The unit of length: ``H^(-1/2)``, or for the farthest cut the one in which h is right."""
        with np.errstate(divide="ignore", over="ignore"):
            return np.where(self.t < FARTHEST, 1 / np.sqrt(self.H), -FARTHEST / self.h)

    @cached_property
    def standard(self) -> tuple[Array, Array]:
        """Mean and standard deviation in these units."""
        mean, variance = _standard_moments(self.t)
        return mean, np.sqrt(variance)

    @property
    def mean(self) -> Array:  # type: ignore[override]
        """The mean."""
        return self.scale * self.standard[0]

    @property
    def sd(self) -> Array:  # type: ignore[override]
        """The standard deviation."""
        return self.scale * self.standard[1]

    @property
    def slope(self) -> Array:
        """``h - H mean``, which below the mode is ``-sqrt(H)`` times the hazard at the cut."""
        below = -np.exp(-log_mills(np.minimum(self.t, 0.0))) * np.sqrt(self.H)
        return np.where(self.t < 0, below, self.h - self.H * self.mean)

    @property
    def entropy(self) -> Array:
        """``-E log q(y)``."""
        t, (mean, sd) = self.t, self.standard
        with np.errstate(over="ignore", invalid="ignore"):
            of_all = np.log(self.scale) + scipy.special.log_ndtr(-t) + _LOG_ROOT_TWO_PI
            around_mode = of_all + 0.5 * (1 + t * np.exp(-log_mills(t)))
            around_cut = 0.5 * (sd**2 + mean**2) + t * mean + self.log_mass
        return np.where(t < 0, around_mode, around_cut)

    @cached_property
    def log_mass(self) -> Array:
        """``log int_0^inf exp(-H y^2 / 2 + h y) dy``."""
        # Mills' ratio is 1 / (t + m); above the mode the two logarithms would cancel.
        above = self.scale / np.maximum(self.t + self.standard[0], 0.5)
        return np.where(self.t > 0, np.log(above), np.log(self.scale) + log_mills(self.t))

    def density(self, y: Array) -> Array:
        """Return the density, 0 below 0."""
        with np.errstate(over="ignore", invalid="ignore"):
            u, t = np.maximum(y, 0.0) / self.scale, self.t
            around_mode = -0.5 * (u + t) ** 2 - scipy.special.log_ndtr(-t) - _LOG_ROOT_TWO_PI
            around_cut = -0.5 * u**2 - t * u - log_mills(t)
            exponent = np.where(t < 0, around_mode, around_cut)
            return np.where(np.asarray(y) < 0, 0.0, np.exp(exponent) / self.scale)

    def pull(self, family: Exponential, eta: Array, H: Array) -> Array:
        """Return ``rate + h - H mean``, where the h of these factors has the prior's part, -rate."""
        return family.rate + self.slope

    def relative_entropy(self, family: Exponential, eta: Array) -> Array:
        """Return ``rate E y - log rate - entropy``: no term is larger than the divergence but for logarithms."""
        return family.rate * self.mean - np.log(family.rate) - self.entropy

    def quantile(self, p: Array) -> Array:
        """Return y with ``P(Y <= y) = p``."""
        return self.survival_quantile(np.log1p(-np.asarray(p)))

    def survival_quantile(self, log_p: Array) -> Array:
        """Return y with ``log P(Y > y) = log_p``, by Newton's method where the cut is above the mode.

        With ``y = s u``: ``log P = -t u - u^2 / 2 + log M(t + u) - log M(t)`` for M Mills' ratio, concave in u.
        """
        t = self.t + np.zeros(np.shape(log_p))
        above = np.maximum(t, 0.0)
        # A start that solves the quadratic part, from which Newton's method comes down to the root.
        u = -2 * log_p / (above + np.sqrt(above**2 - 2 * log_p) + np.finfo(np.float64).tiny)
        for _ in range(QUANTILE_STEPS):
            beyond = log_mills(above + u)
            excess = -above * u - 0.5 * u**2 + beyond - log_mills(above) - log_p
            u = np.maximum(u + excess * np.exp(beyond), 0.0)
        normal = -scipy.special.ndtri_exp(log_p + scipy.special.log_ndtr(-np.minimum(t, 0.0))) - t
        return self.scale * np.where(t > 0, u, np.maximum(normal, 0.0))


def log_mills(t: Array) -> Array:
    """Return ``log int_0^inf exp(-u^2 / 2 - t u) du = log(Q(t) / phi(t))``."""
    scaled = np.log(scipy.special.erfcx(_ROOT_HALF * np.maximum(t, 0.0))) - 0.5 * math.log(2 / math.pi)
    with np.errstate(over="ignore"):
        low = np.minimum(t, 0.0)
        return np.where(t > 0, scaled, scipy.special.log_ndtr(-low) + 0.5 * low**2 + _LOG_ROOT_TWO_PI)


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
