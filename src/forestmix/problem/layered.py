"""Factors of all latent layers, where they are not all Gaussian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.latents import Batch, Factors


@dataclass(frozen=True)
class LayeredFactors:
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

    def take(self, keep: Array) -> LayeredFactors:
        """Return the factors of the chosen observations."""
        return self._map(lambda part: part.take(keep))

    def expanded(self, count: int) -> LayeredFactors:
        """Return factors with a row of its own for each of ``count`` observations."""
        return self._map(lambda part: part.expanded(count))

    def where(self, which: Array, other: LayeredFactors) -> LayeredFactors:
        """Return these factors for the observations marked in ``which``, the other ones elsewhere."""
        return self._join(other, lambda mine, its: mine.where(which, its))

    def with_rows(self, rows: Array, other: LayeredFactors) -> LayeredFactors:
        """Return these factors with ``other`` in place of the observations ``rows``; writes into their arrays."""
        return self._join(other, lambda mine, its: mine.with_rows(rows, its))

    def replace(self, layer: int, q: Factors) -> LayeredFactors:
        """Return the factors with one layer changed."""
        return LayeredFactors((*self.layers[:layer], q, *self.layers[layer + 1 :]), self.auxiliary)

    def _map(self, function: Callable[[Any], Any]) -> LayeredFactors:
        parts = [None if part is None else function(part) for part in self.auxiliary]
        return LayeredFactors(tuple(map(function, self.layers)), tuple(parts))

    def _join(self, other: LayeredFactors, function: Callable[[Any, Any], Any]) -> LayeredFactors:
        layers = tuple(function(mine, its) for mine, its in zip(self.layers, other.layers, strict=True))
        pairs = zip(self.auxiliary, other.auxiliary, strict=True)
        return LayeredFactors(layers, tuple(None if mine is None else function(mine, its) for mine, its in pairs))
