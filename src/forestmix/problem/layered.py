"""Factors of all latent layers, where they are not all Gaussian."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forestmix.arrays import Array
from forestmix.latents import Batch, Factors


@dataclass(frozen=True)
class LayeredFactors(Batch):
    """The factors of every latent layer, the lowest first, and the auxiliary parameters of the rows below each."""

    layers: tuple[Factors, ...]
    auxiliary: tuple[Batch | None, ...]

    @cached_property
    def mean(self) -> Array:
        """The means of all layers, stacked."""
        return np.concatenate([q.mean for q in self.layers], axis=1)

    @cached_property
    def sd(self) -> Array:
        """The standard deviations of all layers, stacked."""
        return np.concatenate([np.broadcast_to(q.sd, q.mean.shape) for q in self.layers], axis=1)

    def replace(self, layer: int, q: Factors) -> LayeredFactors:
        """Return the factors with one layer changed."""
        return LayeredFactors((*self.layers[:layer], q, *self.layers[layer + 1 :]), self.auxiliary)
