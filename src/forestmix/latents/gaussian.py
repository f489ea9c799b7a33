"""Gaussian factors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import array_api_compat
import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.families import Gaussian
from forestmix.latents.base import Factors, in_place_of


@dataclass(frozen=True)
class GaussianFactors(Factors):
    """``q_j = N(mean_j, sd_j^2)`` for a batch: ``mean`` is (N, m), ``sd`` is (N, m), or (1, m) if shared."""

    mean: Array
    sd: Array

    @classmethod
    def tilted(cls, family: Gaussian, eta: Array, H: Array, h: Array) -> Self:
        """Return the normal distribution with precision ``1 / sd^2 + H``."""
        precision = family.sd.astype(np.float64) ** -2.0 + H
        return cls((eta * family.sd.astype(np.float64) ** -2.0 + h) / precision, precision**-0.5)

    def pull(self, family: Gaussian, eta: Array, H: Array) -> Array:
        """Return ``(mean - eta) / sd^2``."""
        return (self.mean - eta) * family.sd.astype(np.float64) ** -2.0

    def relative_entropy(self, family: Gaussian, eta: Array) -> Array:
        """Return ``(mean - eta)^2 / (2 s^2) + (v - 1 - log v) / 2`` with ``v = sd^2 / s^2``."""
        ratio = (self.sd / family.sd) ** 2
        return 0.5 * ((self.mean - eta) / family.sd) ** 2 + 0.5 * (ratio - 1 - np.log(ratio))

    def quantile(self, p: Array) -> Any:
        """Return ``mean + sd Phi^-1(p)``."""
        return self.mean + self.sd * in_place_of(self.mean, scipy.special.ndtri(p), self.mean.dtype)

    def density(self, y: Array) -> Any:
        """Return the normal density."""
        z = (in_place_of(self.mean, y, self.mean.dtype) - self.mean) / self.sd
        exp = array_api_compat.array_namespace(self.mean).exp
        return exp(-0.5 * z * z) / (self.sd * math.sqrt(2 * math.pi))


class ArrayFactors(GaussianFactors):
    """Gaussian factors in arrays of another library, ``mean`` and ``sd`` both (N, m), on the device of the weights."""
