"""The Poisson family; ``eta`` is the logarithm of its rate."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families.base import Family, float_type, refuse
from forestmix.families.primitive import Kind, Primitive, primitive

#: The largest eta whose draws fit in 64-bit integers, with room for the spread of a draw.
_LARGEST_SAMPLED = 43.0
#: Above this SciPy's incomplete gamma function is off by up to 2e-6, from 4.5 standard deviations on; Temme's is not.
_TEMME_FROM = 1e6
#: From here on Stirling's series with five terms is exact to rounding.
_STIRLING_FROM = 16.0
_STIRLING_BELOW = np.array([math.log(math.factorial(n)) - n * math.log(max(n, 1)) + n for n in range(17)])


class Poisson(Family):
    """Counts with rate ``exp(eta)``: ``t = y``, ``a = exp(eta)``, ``g = -log y!``."""

    name: ClassVar[str] = "poisson"
    curvature_is_bounded = False

    def check_support(self, name: str, y: Array) -> None:
        """Raise unless every entry is a whole number from 0 on, or NaN."""
        bad = ~((y >= 0) & (y == np.floor(y)) & (y < np.inf)) & ~np.isnan(y)
        refuse(name, y, bad, "a whole number of at least 0 for Poisson rows")

    def primitive(self, x: Array) -> Primitive:
        """Return exponential rows with target x, at best with what Stirling's formula leaves of ``-log x!``."""
        return primitive(Kind.EXPONENTIAL, 1.0, x, -stirling_remainder(x))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw counts with rate ``exp(eta)``."""
        largest = np.max(eta, initial=-np.inf)
        if not largest <= _LARGEST_SAMPLED:
            raise ArgumentError(
                f"eta must be at most {_LARGEST_SAMPLED:g} to draw Poisson counts, which are 64-bit integers; "
                f"got {largest:g}, a rate of exp({largest:g}). Smaller weights or a smaller bias would do."
            )
        return rng.poisson(np.exp(np.asarray(eta, np.float64))).astype(float_type(eta))

    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return ``Q(y + 1, exp(eta))``, the regularised upper incomplete gamma function; 0 below 0."""
        count = np.floor(np.asarray(y, np.float64))
        with np.errstate(over="ignore"):
            rate = np.exp(np.asarray(eta, np.float64))
        # A finite count keeps infinity minus infinity away; at 1e300 every finite rate is far on one side.
        value = np.where(count < 0, 0, _upper_gamma(np.clip(count, 0, 1e300) + 1, rate))
        return np.asarray(value, float_type(y, eta))


def stirling_remainder(n: Array) -> Array:
    """Return ``log n! - (n log n - n)`` of counts, 0 at 0 and near ``log(2 pi n) / 2``, without cancellation."""
    n = np.asarray(n, np.float64)
    few, many = np.minimum(n, _STIRLING_FROM).astype(int), np.maximum(n, _STIRLING_FROM)
    inverse = 1 / many
    series = inverse**2
    series = 1 / 12 - series * (1 / 360 - series * (1 / 1260 - series * (1 / 1680 - series / 1188)))
    return np.where(n < _STIRLING_FROM, _STIRLING_BELOW[few], 0.5 * np.log(2 * math.pi * many) + inverse * series)


def _upper_gamma(a: Array, x: Array) -> Array:
    """Return ``Q(a, x)``, for large a by Temme's uniform expansion, to 1e-12 (DLMF 8.12.4).

    With ``mu = x / a - 1`` and ``eta^2 / 2 = mu - log(1 + mu)`` of the sign of mu, it is
    ``Phi(-eta sqrt(a)) + exp(-a eta^2 / 2) (1 / mu - 1 / eta) / sqrt(2 pi a)``, here with series in mu and eta.
    """
    usual = scipy.special.gammaincc(a, x)
    large = a > _TEMME_FROM
    if not large.any():
        return usual
    # Beyond 0.1 the function is 0 or 1, a hundred standard deviations away.
    mu = np.clip((x - a) / a, -0.1, 0.1)
    series = np.polynomial.polynomial.polyval(-mu, 1 / np.arange(2, 18))
    eta = mu * np.sqrt(2 * series)
    correction = np.polynomial.polynomial.polyval(eta, [-1 / 3, 1 / 12, -2 / 135, 1 / 864])
    density = np.exp(-0.5 * a * eta**2) / np.sqrt(2 * math.pi * a)
    return np.where(large, scipy.special.ndtr(-eta * np.sqrt(a)) + density * correction, usual)
