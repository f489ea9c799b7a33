"""Gaussian factors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy

from forestmix.arrays import Array, inner
from forestmix.families import Gaussian
from forestmix.latents.base import Factors


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

    def tilt(self, family: Gaussian, eta: Array, H: Array) -> Array:
        """Return ``mean (1 / sd^2 + H) - eta / sd^2``."""
        precision = family.sd.astype(np.float64) ** -2.0
        return self.mean * (precision + H) - eta * precision

    def relative_entropy(self, family: Gaussian, eta: Array) -> Array:
        """Return ``(mean - eta)^2 / (2 s^2) + (v - 1 - log v) / 2`` with ``v = sd^2 / s^2``."""
        ratio = (self.sd / family.sd) ** 2
        return 0.5 * ((self.mean - eta) / family.sd) ** 2 + 0.5 * (ratio - 1 - np.log(ratio))

    def divergence(self, prior: Any) -> Array:
        """Return ``KL(q || p)`` of each observation, (N,).

        ``KL_j = (mean_j - m0_j)^2 / (2 s0_j^2) + (v - 1 - log v) / 2`` with ``v = sd_j^2 / s0_j^2``.
        """
        scaled = (self.mean - prior.bias) / prior.family.sd
        return 0.5 * inner(scaled, scaled) + self.spread_divergence(prior)

    def spread_divergence(self, prior: Any) -> Array:
        """Return the part of it that comes from the standard deviations, ``sum_j (v - 1 - log v) / 2``, (N or 1,).

        Where ``s0_j`` is infinite, for a latent whose prior is among the rows (``flat.py``), it is minus the entropy of
        ``q_j``, ``-(1 + log(2 pi sd_j^2)) / 2``.
        """
        precision, sd = prior.family.sd.astype(np.float64) ** -2.0, self.sd.astype(np.float64)
        # A deviation of 0 has an infinite divergence, and a step to it is refused.
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            logarithm = 2 * np.log(sd) + np.log(np.where(precision > 0, precision, 2 * math.pi))
            return 0.5 * np.sum(sd * sd * precision - 1 - logarithm, axis=1)

    def quantile(self, p: Array) -> Array:
        """Return ``mean + sd Phi^-1(p)``."""
        return self.mean + self.sd * scipy.special.ndtri(p)

    def density(self, y: Array) -> Array:
        """Return the normal density."""
        return np.exp(-0.5 * ((y - self.mean) / self.sd) ** 2) / (self.sd * math.sqrt(2 * math.pi))
