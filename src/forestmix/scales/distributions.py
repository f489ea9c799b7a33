"""Distributions of an unknown scale."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array
from forestmix.checks import one_of
from forestmix.errors import ForestmixError
from forestmix.scales.base import Scale

#: Of the prior on the scale of the data: degrees of freedom, and scale in standard deviations of the data; as brms and
#: bambi have them.
DF, WIDTH = 3.0, 2.5


@dataclass(eq=False)
class Exponential(Scale):
    """``p(s) = rate exp(-rate s)``: of mean ``1 / rate``, with a tail between those of a normal and a t.

    Args:
        rate: one over the mean.

    """

    rate: float = 1.0

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return ``log rate - rate s``."""
        return math.log(self.rate) - self.rate * np.asarray(scale)

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``-log(1 - p) / rate``."""
        return -np.log1p(-np.asarray(p, np.float64)) / self.rate


@dataclass(eq=False)
class HalfNormal(Scale):
    """``p(s) = sqrt(2 / pi) / scale exp(-s^2 / (2 scale^2))``: a scale of about so much, and hardly three times it.

    Args:
        scale: standard deviation of the normal distribution that is cut.

    """

    scale: float = 1.0

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return ``log(2 / pi) / 2 - log scale - s^2 / (2 scale^2)``."""
        ratio = np.asarray(scale) / self.scale
        return 0.5 * math.log(2 / math.pi) - math.log(self.scale) - 0.5 * ratio**2

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``scale Phi^-1((1 + p) / 2)``, which keeps its digits near 0 in the form of the error function."""
        return self.scale * math.sqrt(2) * scipy.special.erfinv(np.asarray(p, np.float64))


@dataclass(eq=False)
class HalfStudentT(Scale):
    """``p(s) ∝ (1 + (s / scale)^2 / df)^(-(df + 1) / 2)``: like ``HalfNormal``, with room for surprises.

    Args:
        df: degrees of freedom; the fewer, the heavier the tail.
        scale: scale of the t distribution that is cut.

    """

    df: float
    scale: float = 1.0

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return the logarithm of twice the t density."""
        half = 0.5 * self.df
        constant = math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * math.log(math.pi * self.df)
        ratio = np.asarray(scale) / self.scale
        return math.log(2 / self.scale) + constant - (half + 0.5) * np.log1p(ratio**2 / self.df)

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return the t quantile of ``(1 + p) / 2``, from the tail beyond it where p is near 1."""
        return -self.scale * scipy.special.stdtrit(self.df, 0.5 * (1 - np.asarray(p, np.float64)))


@dataclass(eq=False)
class HalfCauchy(HalfStudentT):
    """``p(s) = 2 / (pi scale (1 + (s / scale)^2))``: it has no mean, and a tenth of it is beyond ``6.3 scale``.

    Args:
        scale: the median.

    """

    df: float = field(default=1.0, init=False, repr=False)

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``scale tan(pi p / 2)``."""
        return self.scale * np.tan(0.5 * math.pi * np.asarray(p, np.float64))


@dataclass(eq=False)
class InverseGamma(Scale):
    """``p(u) ∝ u^(-shape - 1) exp(-scale / u)``, by default of the variance ``u = s^2``, as conjugate analyses have it.

    It keeps the scale away from 0, which the data may not: prefer ``HalfNormal`` for the sd of groups.

    Args:
        shape: shape of the gamma distribution of ``1 / u``.
        scale: its rate.
        of: "variance", or "sd" for ``u = s``, which is what ``sigma ~ inv_gamma(shape, scale)`` says in Stan.

    """

    shape: float
    scale: float
    of: str = "variance"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._power = 2 if one_of("of", self.of, ("variance", "sd")) == "variance" else 1

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return the log density of ``u = s^k`` plus ``log(du / ds) = log k + (k - 1) log s``; k is 2 or 1."""
        log_s = np.log(np.asarray(scale))
        log_scale, k = math.log(self.scale), self._power
        constant = self.shape * log_scale - math.lgamma(self.shape) + math.log(k)
        # Of a tiny scale the exponential is infinite, and the density 0.
        with np.errstate(over="ignore"):
            return constant - (self.shape * k + 1) * log_s - np.exp(log_scale - k * log_s)

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``u^(1/k)``, with ``1 / u`` the upper gamma quantile of p over ``scale``."""
        gamma = scipy.special.gammainccinv(self.shape, np.asarray(p, np.float64))
        with np.errstate(divide="ignore"):
            return (self.scale / gamma) ** (1 / self._power)


@dataclass(eq=False)
class Flat(Scale):
    """``p(s) = 1`` for all ``s > 0``, which has no integral.

    The posterior has one if the data bound the scale from above: two rows more than latents for a noise, three groups
    for the sd of groups. Evidences of models with different flat scales cannot be compared.
    """

    proper: ClassVar[bool] = False

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return 0."""
        return np.zeros(np.shape(scale))

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Raise: a density without an integral has no quantiles."""
        raise ForestmixError("Flat() has no quantiles, since its density has no integral; give a proper prior.")


@dataclass(eq=False)
class FromData(Scale):
    """``HalfStudentT(3, 2.5 sd(x))``, known once the data are: what ``Gaussian()`` without an sd means for rows."""

    proper: ClassVar[bool] = False

    def given_spread(self, spread: float) -> HalfStudentT:
        """Return the prior, given the sd of the rows that have this scale."""
        # A constant says nothing of its scale.
        return HalfStudentT(DF, WIDTH * spread if spread > 0 else WIDTH)

    def log_density(self, scale: npt.ArrayLike) -> NoReturn:
        """Raise: the prior is known once the data are."""
        raise ForestmixError(
            "Gaussian() without an sd has a prior on the scale of the data, and there are none here; give the sd, such "
            "as Gaussian(sd=1.0), or a prior, such as Gaussian(sd=forestmix.scales.HalfNormal(1.0))."
        )

    quantile = log_density  # type: ignore[assignment]
