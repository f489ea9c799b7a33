"""Factors of latents with an exponential prior: normal distributions cut off at zero."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from forestmix.arrays import Array
from forestmix.families import Exponential
from forestmix.latents.base import Factors
from forestmix.latents.tails import HalfLine


@dataclass(frozen=True)
class ExponentialFactors(Factors):
    """``q_j(y) ∝ exp(-H_j y^2 / 2 + h_j y)`` for ``y >= 0``; the prior's rate is in h."""

    straight_tails: ClassVar[bool] = True

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
        return self.half_line.mean

    @property
    def sd(self) -> Array:  # type: ignore[override]
        """The standard deviation."""
        return self.half_line.sd

    def tilt(self, family: Exponential, eta: Array, H: Array) -> Array:
        """Return ``h + rate``, without the prior's part."""
        return self.h + family.rate

    def pull(self, family: Exponential, eta: Array, H: Array) -> Array:
        """Return the rate, and the pull of the half line."""
        return family.rate.astype(np.float64) + self.half_line.pull

    def relative_entropy(self, family: Exponential, eta: Array) -> Array:
        """Return ``rate E y - log rate - entropy``: no term is larger than the divergence but for logarithms."""
        rate = family.rate.astype(np.float64)
        return rate * self.mean - np.log(rate) - self.half_line.entropy

    def quantile(self, p: Array) -> Array:
        """Return y with ``P(Y <= y) = p``."""
        return self.half_line.survival_quantile(np.log1p(-np.asarray(p)))

    def density(self, y: Array) -> Array:
        """Return the density, 0 below 0."""
        return self.half_line.density(np.asarray(y))
