"""The posterior of one latent layer, the same to look at for every family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, generator, in_range, numbers
from forestmix.checks import between_zero_and_one, whole_number
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.latents import ArrayFactors, Factors, SpikeSlabFactors


def only_layer(owner: str, layers: Sequence[Any], name: str) -> Any:
    """Return the one layer that a result or a posterior has, for an attribute that is of one layer; else raise."""
    if len(layers) > 1:
        raise ForestmixError(
            f"{owner}.{name} is for models with one latent layer; this one has {len(layers)}. Use "
            f"{owner}.layers[k].{name}, with k = 0 for the lowest."
        )
    return layers[0]


class LayerPosterior:
    """The factors ``q_j`` of one latent layer: arrays are (m,), or (N, m) for a batch.

    Attributes:
        mean: posterior means.
        sd: posterior standard deviations.
        factors: the factors themselves, whose parameters depend on the family.

    """

    def __init__(self, factors: Factors, single: bool, dtype: np.dtype) -> None:
        self.factors, self.single, self.dtype = factors, single, dtype
        self.mean = self._shaped(factors.mean)
        same = factors.sd.shape == factors.mean.shape
        self.sd = self._shaped(factors.sd if same else np.broadcast_to(factors.sd, factors.mean.shape))

    @property
    def discrete(self) -> bool:
        """Whether the latents are counts, so that they have ``probabilities``."""
        return self.factors.discrete

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Return both ends of the central interval of each latent.

        For counts both ends belong to it, and its probability is at least the level.
        """
        between_zero_and_one("level", level)
        ends = [np.full(self.factors.mean.shape, 0.5 * (1 + sign * level)) for sign in (-1, 1)]
        return self._shaped(self.factors.quantile(ends[0])), self._shaped(self.factors.quantile(ends[1]))

    def density(self, y: npt.ArrayLike) -> Array:
        """Return the density of each latent at y, which is broadcast against ``mean``; for counts, the probability.

        Spike-and-slab latents have the density of their slab here; the spike is ``1 - inclusion``.
        """
        given = numbers("y", y).astype(np.float64)
        if any(a != b and 1 not in (a, b) for a, b in zip(given.shape[::-1], self.mean.shape[::-1], strict=False)):
            raise ArgumentError(f"y must be a number or fit the means, of shape {self.mean.shape}; got {given.shape}.")
        if self.single and given.ndim:
            given = given[..., None, :]
        # Far from the mean the square of a distance overflows, and the density is 0.
        with np.errstate(over="ignore", under="ignore"):
            return self._shaped(self.factors.density(given))

    @property
    def probabilities(self) -> Array:
        """Probabilities of 0, 1, 2, ..., along a last axis: (m, K) or (N, m, K); for counts only."""
        table = getattr(self.factors, "log_table", None)
        if table is None:
            raise ForestmixError(f"{type(self.factors).__name__} are not discrete: use density(y).")
        return np.exp(table[0] if self.single else table).astype(self.dtype)

    @property
    def inclusion(self) -> Array:
        """Probability of not being zero, for spike-and-slab latents."""
        if not isinstance(self.factors, SpikeSlabFactors):
            raise ForestmixError(f"inclusion is for SpikeSlab latents; these are {type(self.factors).__name__}.")
        return self._shaped(self.factors.inclusion)

    def sample(self, rng: np.random.Generator | int | None = None, size: int | None = None) -> Array:
        """Draw from q, with a leading axis of ``size`` if that is given."""
        size = whole_number("size", size, optional=True)
        shape = self.factors.mean.shape if size is None else (size, *self.factors.mean.shape)
        # Away from 0 and 1, where a quantile is infinite.
        uniform = generator(rng).uniform(np.finfo(np.float64).tiny, 1 - 2**-53, shape)
        drawn = in_range(self.factors.quantile(uniform), self.dtype)
        return drawn[..., 0, :] if self.single else drawn

    def __repr__(self) -> str:
        kind = type(self.factors).__name__.removesuffix("Factors")
        return f"<posterior of {kind} latents, mean and sd of shape {self.mean.shape}>"

    def _shaped(self, values: Any) -> Array:
        if isinstance(self.factors, ArrayFactors):
            return values[..., 0, :] if self.single else values
        array = np.asarray(values)
        return in_range(array[..., 0, :] if self.single else array, self.dtype)
