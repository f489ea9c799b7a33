"""Gaussian factors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy

from forestmix import vectors
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
        """Return the part of it that comes from the standard deviations, (N or 1,).

        Where ``s0_j`` is infinite, for a latent whose prior is among the rows (``flat.py``), it is minus the entropy of
        ``q_j``.
        """
        precision = np.broadcast_to(prior.family.sd.astype(np.float64) ** -2.0, self.sd.shape[1])
        return 0.5 * vectors.spread_divergence(self.sd, precision)

    def quantile(self, p: Array) -> Array:
        """Return ``mean + sd Phi^-1(p)``."""
        return self.mean + self.sd * scipy.special.ndtri(p)

    def density(self, y: Array) -> Array:
        """Return the normal density."""
        return np.exp(-0.5 * ((y - self.mean) / self.sd) ** 2) / (self.sd * math.sqrt(2 * math.pi))
