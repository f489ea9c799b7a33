"""Factors of latents with a Laplace prior: two half lines, each a normal distribution cut off at the location."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.families import Laplace
from forestmix.latents.base import Factors
from forestmix.latents.bernoulli import coin_entropy
from forestmix.latents.exponential import ExponentialFactors


@dataclass(frozen=True)
class LaplaceFactors(Factors):
    """``q_j(y) ∝ exp(-H_j u^2 / 2 + h_j u - rate_j |u|)`` with ``u = y - location_j`` and ``rate = 1 / scale``."""

    straight_tails: ClassVar[bool] = True

    H: Array
    h: Array
    location: Array
    rate: Array

    @classmethod
    def tilted(cls, family: Laplace, eta: Array, H: Array, h: Array) -> Self:
        """Return the factors around ``eta``: there the tilt of y is ``h - H eta``."""
        given = np.asarray(H, np.float64), h - H * eta, np.asarray(eta, np.float64), 1 / family.scale
        return cls(*np.broadcast_arrays(*given))

    @cached_property
    def sides(self) -> tuple[ExponentialFactors, ExponentialFactors]:
        """The distributions of ``u`` above the location, and of ``-u`` below it."""
        return ExponentialFactors(self.H, self.h - self.rate), ExponentialFactors(self.H, -self.h - self.rate)

    @cached_property
    def logit(self) -> Array:
        """The logarithm of the odds of ``y > location``."""
        return self.sides[0].log_mass - self.sides[1].log_mass

    @cached_property
    def above(self) -> Array:
        """The probability of ``y > location``."""
        return scipy.special.expit(self.logit)

    @cached_property
    def below(self) -> Array:
        """The probability of ``y < location``."""
        return scipy.special.expit(-self.logit)

    @property
    def mean(self) -> Array:  # type: ignore[override]
        """The mean."""
        up, down = self.sides
        return self.location + (self.above * up.mean - self.below * down.mean)

    @cached_property
    def sd(self) -> Array:  # type: ignore[override]
        """The standard deviation within and between the two sides."""
        up, down = self.sides
        within = np.hypot(np.sqrt(self.above) * up.sd, np.sqrt(self.below) * down.sd)
        return np.hypot(within, np.sqrt(self.above * self.below) * (up.mean + down.mean))

    def pull(self, family: Laplace, eta: Array, H: Array) -> Array:
        """Return the rate and ``h - H mean`` of each side, with its sign."""
        up, down = self.sides
        return self.above * (self.rate + up.slope) - self.below * (self.rate + down.slope)

    def relative_entropy(self, family: Laplace, eta: Array) -> Array:
        """Return ``rate E |u| + log(2 / rate) - entropy``; ``eta`` is the location.

        The entropy is that of the side, and of each side by itself. No term is larger than the divergence but for
        logarithms.
        """
        up, down = self.sides
        distance = self.above * up.mean + self.below * down.mean
        within = self.above * up.entropy + self.below * down.entropy
        return self.rate * distance + np.log(2 / self.rate) - within - coin_entropy(self.logit)

    def quantile(self, p: Array) -> Array:
        """Return y with ``P(Y <= y) = p``, on the side where it lies."""
        p = np.asarray(p)
        up, down = self.sides
        # On the side where p does not lie the logarithm is above 0, and is not looked at.
        below = np.minimum(np.log(p) - scipy.special.log_expit(-self.logit), 0.0)
        above = np.minimum(np.log1p(-p) - scipy.special.log_expit(self.logit), 0.0)
        reach = np.where(p < self.below, -down.survival_quantile(below), up.survival_quantile(above))
        return self.location + reach

    def density(self, y: Array) -> Array:
        """Return the density."""
        u = np.asarray(y) - self.location
        up, down = self.sides
        return np.where(u >= 0, self.above * up.density(np.abs(u)), self.below * down.density(np.abs(u)))
