"""Distributions of an unknown scale."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array
from forestmix.checks import one_of
from forestmix.errors import ForestmixError
from forestmix.scales.base import Scale, positive


class Exponential(Scale):
    """``p(s) = rate exp(-rate s)``: of mean ``1 / rate``, with a tail between those of a normal and a t.

    Args:
        rate: one over the mean.

    """

    parameters: ClassVar[tuple[str, ...]] = ("rate",)

    def __init__(self, rate: Any = 1.0) -> None:
        self.rate = positive("rate", rate)

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return ``log rate - rate s``."""
        return math.log(self.rate) - self.rate * np.asarray(scale, np.float64)

    def log_density_slope(self, scale: npt.ArrayLike) -> Array:
        """Return ``-rate``."""
        return np.full(np.shape(scale), -self.rate)

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``-log(1 - p) / rate``."""
        return -np.log1p(-np.asarray(p, np.float64)) / self.rate


class HalfNormal(Scale):
    """``p(s) = sqrt(2 / pi) / scale exp(-s^2 / (2 scale^2))``: a scale of about so much, and hardly three times it.

    Args:
        scale: standard deviation of the normal distribution that is cut.

    """

    parameters: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(self, scale: Any = 1.0) -> None:
        self.scale = positive("scale", scale)

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return ``log(2 / pi) / 2 - log scale - s^2 / (2 scale^2)``."""
        ratio = np.asarray(scale, np.float64) / self.scale
        return 0.5 * math.log(2 / math.pi) - math.log(self.scale) - 0.5 * ratio**2

    def log_density_slope(self, scale: npt.ArrayLike) -> Array:
        """Return ``-s / scale^2``."""
        return -np.asarray(scale, np.float64) / self.scale**2

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``scale Phi^-1((1 + p) / 2)``, which keeps its digits near 0 in the form of the error function."""
        return self.scale * math.sqrt(2) * scipy.special.erfinv(np.asarray(p, np.float64))


class HalfStudentT(Scale):
    """``p(s) ∝ (1 + (s / scale)^2 / df)^(-(df + 1) / 2)``: like ``HalfNormal``, with room for surprises.

    Args:
        df: degrees of freedom; the fewer, the heavier the tail.
        scale: scale of the t distribution that is cut.

    """

    parameters: ClassVar[tuple[str, ...]] = ("df", "scale")

    def __init__(self, df: Any, scale: Any = 1.0) -> None:
        self.df, self.scale = positive("df", df), positive("scale", scale)

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return the logarithm of twice the t density."""
        half = 0.5 * self.df
        constant = math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * math.log(math.pi * self.df)
        ratio = np.asarray(scale, np.float64) / self.scale
        return math.log(2 / self.scale) + constant - (half + 0.5) * np.log1p(ratio**2 / self.df)

    def log_density_slope(self, scale: npt.ArrayLike) -> Array:
        """Return ``-(df + 1) s / (df scale^2 + s^2)``."""
        scale = np.asarray(scale, np.float64)
        return -(self.df + 1) * scale / (self.df * self.scale**2 + scale**2)

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return the t quantile of ``(1 + p) / 2``, from the tail beyond it where p is near 1."""
        return -self.scale * scipy.special.stdtrit(self.df, 0.5 * (1 - np.asarray(p, np.float64)))


class HalfCauchy(HalfStudentT):
    """``p(s) = 2 / (pi scale (1 + (s / scale)^2))``: it has no mean, and a tenth of it is beyond ``6.3 scale``.

    Args:
        scale: the median.

    """

    parameters: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(self, scale: Any = 1.0) -> None:
        super().__init__(1.0, scale)

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``scale tan(pi p / 2)``."""
        return self.scale * np.tan(0.5 * math.pi * np.asarray(p, np.float64))


class InverseGamma(Scale):
    """``p(u) ∝ u^(-shape - 1) exp(-scale / u)``, by default of the variance ``u = s^2``, as conjugate analyses have it.

    It keeps the scale away from 0, which the data may not: prefer ``HalfNormal`` for the sd of groups.

    Args:
        shape: shape of the gamma distribution of ``1 / u``.
        scale: its rate.
        of: "variance", or "sd" for ``u = s``, which is what ``sigma ~ inv_gamma(shape, scale)`` says in Stan.

    """

    parameters: ClassVar[tuple[str, ...]] = ("shape", "scale", "of")

    def __init__(self, shape: Any, scale: Any, of: str = "variance") -> None:
        self.shape, self.scale = positive("shape", shape), positive("scale", scale)
        self.of = one_of("of", of, ("variance", "sd"))
        self._power = 2 if of == "variance" else 1

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return the log density of ``u = s^k`` plus ``log(du / ds) = log k + (k - 1) log s``; k is 2 or 1."""
        scale = np.asarray(scale, np.float64)
        log_u = self._power * np.log(scale)
        constant = self.shape * math.log(self.scale) - math.lgamma(self.shape) + math.log(self._power)
        # Of a tiny scale the exponential is infinite, and the density 0.
        with np.errstate(over="ignore"):
            return constant - self.shape * log_u - np.log(scale) - self.scale * np.exp(-log_u)

    def log_density_slope(self, scale: npt.ArrayLike) -> Array:
        """Return ``(k scale s^-k - k shape - 1) / s``."""
        scale, k = np.asarray(scale, np.float64), self._power
        with np.errstate(over="ignore", divide="ignore"):
            return (k * self.scale * scale**-k - k * self.shape - 1) / scale

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``u^(1/k)``, with ``1 / u`` the upper gamma quantile of p over ``scale``."""
        gamma = scipy.special.gammainccinv(self.shape, np.asarray(p, np.float64))
        with np.errstate(divide="ignore"):
            return (self.scale / gamma) ** (1 / self._power)


class Flat(Scale):
    """``p(s) = 1`` for all ``s > 0``, which has no integral.

    The posterior has one if the data bound the scale from above: two rows more than latents for a noise, three groups
    for the sd of groups. Evidences of models with different flat scales cannot be compared.
    """

    proper: ClassVar[bool] = False

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return 0."""
        return np.zeros(np.shape(scale))

    def log_density_slope(self, scale: npt.ArrayLike) -> Array:
        """Return 0."""
        return np.zeros(np.shape(scale))

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Raise: a density without an integral has no quantiles."""
        raise ForestmixError("Flat() has no quantiles, since its density has no integral; give a proper prior.")
