"""Factors of latents with an exponential prior: normal distributions cut off at zero."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from forestmix.arrays import Array
from forestmix.families import Exponential
from forestmix.latents.base import Factors
from forestmix.latents.tails import HalfLine


@dataclass(frozen=True)
class ExponentialFactors(Factors):
    """``q_j(y) ∝ exp(-H_j y^2 / 2 + h_j y)`` for ``y >= 0``; the prior's rate is in h."""

    H: Array
    h: Array

    @classmethod
    def tilted(cls, family: Exponential, eta: Array, H: Array, h: Array) -> Self:
        """Return the factors with ``h - rate``."""
        return cls(*np.broadcast_arrays(np.asarray(H, np.float64), h - family.rate))

    @cached_property
    def half_line(self) -> HalfLine:
        """The distribution of each factor."""
        return HalfLine(self.H, self.h)

    @property
    def mean(self) -> Array:  # type: ignore[override]
        """The mean."""
        return self.half_line.moments[0]

    @property
    def sd(self) -> Array:  # type: ignore[override]
        """The standard deviation."""
        return np.sqrt(self.half_line.moments[1])

    def tilt(self, family: Exponential, eta: Array, H: Array) -> Array:
        """Return ``h + rate``, without the prior's part."""
        return self.h + family.rate

    def relative_entropy(self, family: Exponential, eta: Array) -> Array:
        """Return ``E(-H y^2 / 2 + (h + rate) y) - log Z - log rate``, Z the mass of the tilted half line."""
        mean, variance = self.half_line.moments
        tilt = -0.5 * self.H * (variance + mean**2) + (self.h + family.rate) * mean
        return tilt - self.half_line.log_mass - np.log(family.rate)

    def quantile(self, p: Array) -> Array:
        """Return y with ``P(Y <= y) = p``."""
        return self.half_line.survival_quantile(1 - np.asarray(p))

    def density(self, y: Array) -> Array:
        """Return the density, 0 below 0."""
        return self.half_line.density(np.asarray(y))
