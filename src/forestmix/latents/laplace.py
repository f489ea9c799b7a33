"""Factors of latents with a Laplace prior: two half lines, each a normal distribution cut off at the location."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.families import Laplace
from forestmix.latents.base import Factors
from forestmix.latents.tails import HalfLine


@dataclass(frozen=True)
class LaplaceFactors(Factors):
    """``q_j(y) ∝ exp(-H_j u^2 / 2 + h_j u - rate_j |u|)`` with ``u = y - location_j`` and ``rate = 1 / scale``."""

    H: Array
    h: Array
    location: Array
    rate: Array

    @classmethod
    def tilted(cls, family: Laplace, eta: Array, H: Array, h: Array) -> Self:
        """Return the factors around ``eta``: there the tilt of y is ``h - H eta``."""
        rate = 1 / family.scale.astype(np.float64)
        return cls(*np.broadcast_arrays(np.asarray(H, np.float64), h - H * eta, np.asarray(eta, np.float64), rate))

    @cached_property
    def sides(self) -> tuple[HalfLine, HalfLine]:
        """The distributions of ``u`` above the location, and of ``-u`` below it."""
        return HalfLine(self.H, self.h - self.rate), HalfLine(self.H, -self.h - self.rate)

    @cached_property
    def above(self) -> Array:
        """The probability of ``y > location``."""
        return scipy.special.expit(self.sides[0].log_mass - self.sides[1].log_mass)

    @cached_property
    def below(self) -> Array:
        """The probability of ``y < location``."""
        return scipy.special.expit(self.sides[1].log_mass - self.sides[0].log_mass)

    @cached_property
    def _centred(self) -> tuple[Array, Array]:
        """Mean and variance of u."""
        (up, up_variance), (down, down_variance) = (side.moments for side in self.sides)
        mean = self.above * up - self.below * down
        # Within and between the two sides, both sums of what is not negative.
        within = self.above * up_variance + self.below * down_variance
        return mean, within + self.above * self.below * (up + down) ** 2

    @property
    def mean(self) -> Array:  # type: ignore[override]
        """The mean."""
        return self.location + self._centred[0]

    @property
    def sd(self) -> Array:  # type: ignore[override]
        """The standard deviation."""
        return np.sqrt(self._centred[1])

    def tilt(self, family: Laplace, eta: Array, H: Array) -> Array:
        """Return the tilt of y, not of its distance from the location."""
        return self.h + H * self.location

    def relative_entropy(self, family: Laplace, eta: Array) -> Array:
        """Return ``E(-H u^2 / 2 + h u) - log Z + log(2 / rate)``, Z the mass of both sides; ``eta`` is the location."""
        mean, variance = self._centred
        log_mass = np.logaddexp(self.sides[0].log_mass, self.sides[1].log_mass)
        return -0.5 * self.H * (variance + mean**2) + self.h * mean - log_mass + np.log(2 / self.rate)

    def quantile(self, p: Array) -> Array:
        """Return y with ``P(Y <= y) = p``, on the side where it lies."""
        p = np.asarray(p)
        low = p < self.below
        share_below = np.where(low, p / np.where(low, self.below, 1.0), 0.5)
        share_above = np.where(low, 0.5, (1 - p) / np.where(low, 1.0, self.above))
        up, down = self.sides[0], self.sides[1]
        reach = np.where(
            low,
            -down.survival_quantile(np.clip(share_below, 1e-300, 1.0)),
            up.survival_quantile(np.clip(share_above, 1e-300, 1.0)),
        )
        return self.location + reach

    def density(self, y: Array) -> Array:
        """Return the density."""
        u = np.asarray(y) - self.location
        up, down = self.sides
        return np.where(u >= 0, self.above * up.density(np.abs(u)), self.below * down.density(np.abs(u)))
