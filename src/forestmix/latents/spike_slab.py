"""Factors of latents that may be exactly zero: a probability of not being so, and a normal distribution if not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.families import SpikeSlab
from forestmix.latents.base import Factors
from forestmix.latents.bernoulli import coin_divergence


@dataclass(frozen=True)
class SpikeSlabFactors(Factors):
    """0 with probability ``sigma(-logit_j)``, else ``N(slab_mean_j, slab_sd_j^2)``."""

    several_optima: ClassVar[bool] = True

    logit: Array
    slab_mean: Array
    slab_sd: Array

    @classmethod
    def tilted(cls, family: SpikeSlab, eta: Array, H: Array, h: Array) -> Self:
        """Return the slab with variance ``v = 1 / (H + 1 / sd^2)`` and mean ``v h + c eta``, and its odds.

        That is, with ``c = v / sd^2`` and in a form that does not cancel::

        logit = logit(inclusion) + log(c) / 2 + (v h^2 + 2 c h eta - c H eta^2) / 2
        """
        sd, inclusion = family.sd, family.inclusion
        slab_sd = 1 / np.hypot(1 / sd, np.sqrt(H))
        share = (slab_sd / sd) ** 2
        gain = 0.5 * (slab_sd * h) ** 2 + share * eta * (h - 0.5 * H * eta) + np.log(slab_sd / sd)
        # From the nearer of 0 and eta, which either may be many standard deviations away.
        near = eta + slab_sd * (slab_sd * (h - H * eta))
        mean = np.where(share > 0.5, near, slab_sd * (slab_sd * h) + share * eta)
        return cls(*np.broadcast_arrays(scipy.special.logit(inclusion) + gain, mean, slab_sd))

    @cached_property
    def inclusion(self) -> Array:
        """The probability of not being zero."""
        return scipy.special.expit(self.logit)

    @cached_property
    def mean(self) -> Array:  # type: ignore[override]
        """``inclusion * slab_mean``."""
        return self.inclusion * self.slab_mean

    @cached_property
    def sd(self) -> Array:  # type: ignore[override]
        """The square root of the variance within the slab and between it and the spike."""
        between = np.sqrt(scipy.special.expit(-self.logit)) * self.slab_mean
        return np.sqrt(self.inclusion) * np.hypot(self.slab_sd, between)

    def pull(self, family: SpikeSlab, eta: Array, H: Array) -> Array:
        """Return ``H (1 - inclusion) slab_mean + (slab_mean - eta) / sd^2``."""
        spike = scipy.special.expit(-self.logit)
        return H * spike * self.slab_mean + (self.slab_mean - eta) * family.sd**-2.0

    def relative_entropy(self, family: SpikeSlab, eta: Array) -> Array:
        """Return the divergence of the two inclusions, plus ``inclusion`` times that of the two slabs."""
        prior = scipy.special.logit(family.inclusion)
        ratio = self.slab_sd / family.sd
        slab = 0.5 * ((self.slab_mean - eta) / family.sd) ** 2 + 0.5 * (ratio**2 - 1) - np.log(ratio)
        return coin_divergence(self.logit, prior) + self.inclusion * slab

    def quantile(self, p: Array) -> Array:
        """Return the quantile, 0 over the whole range of p that the spike takes."""
        p = np.asarray(p)
        negative = self.inclusion * scipy.special.ndtr(-self.slab_mean / self.slab_sd)
        spike = scipy.special.expit(-self.logit)
        share = np.where(p <= negative, p, p - spike)
        inside = (p > negative) & (p <= negative + spike)
        share = np.clip(np.where(inside, 0.5, share / np.maximum(self.inclusion, 1e-300)), 1e-300, 1 - 1e-16)
        return np.where(inside, 0.0, self.slab_mean + self.slab_sd * scipy.special.ndtri(share))

    def density(self, y: Array) -> Array:
        """Return the density of the slab's part; the spike at 0 is not in it."""
        z = (np.asarray(y) - self.slab_mean) / self.slab_sd
        return self.inclusion * np.exp(-0.5 * z**2) / (self.slab_sd * math.sqrt(2 * math.pi))
