"""The inverse gamma distribution, of the variance or of the scale itself."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array
from forestmix.checks import one_of
from forestmix.scales.base import Scale, positive


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
