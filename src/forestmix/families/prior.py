"""Families that can only be the prior of the topmost latents.

They need not be exponential families in their location, so they have no log-partition function and cannot be a row's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, per_variable
from forestmix.errors import ArgumentError
from forestmix.families.base import Family, Parametric


class PriorFamily(Parametric, ABC):
    """A distribution of latents without parents."""

    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with its parameters in float64, whatever the weights have: factors are computed in it."""
        return self._with(**{name: getattr(self, name).astype(np.float64) for name in self.parameters})

    def check_bias(self, bias: Array) -> None:
        """Raise if the prior's bias has no meaning for this family."""

    @abstractmethod
    def mean(self, bias: Array) -> Array:
        """Return the prior mean of each variable."""

    @abstractmethod
    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw one value for each entry of ``eta``, the bias."""


class Exponential(PriorFamily):
    """``p(y) = rate exp(-rate y)`` for ``y >= 0``; a prior of the topmost latents.

    Args:
        rate: one over the mean, one number or one for each variable.

    """

    name: ClassVar[str] = "exponential"
    parameters: ClassVar[tuple[str, ...]] = ("rate",)

    def __init__(self, rate: npt.ArrayLike = 1.0) -> None:
        self.rate = per_variable("rate", rate, positive=True)

    def check_bias(self, bias: Array) -> None:
        """Raise unless the bias is 0: the distribution starts at 0."""
        wrong = bias[bias != 0]
        if wrong.size:
            raise ArgumentError(f"bias must be 0 for an Exponential prior, which has no location; got {wrong[0]}.")

    def mean(self, bias: Array) -> Array:
        """Return ``1 / rate``."""
        return np.broadcast_to(1 / self.rate, np.shape(bias))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw exponential values."""
        return (rng.standard_exponential(np.shape(eta)) / self.rate).astype(np.result_type(eta, np.float32))


class Laplace(PriorFamily):
    """``p(y) = exp(-|y - bias| / scale) / (2 scale)``; a prior of the topmost latents, with mean ``bias``.

    Args:
        scale: mean distance from the bias, one number or one for each variable.

    """

    name: ClassVar[str] = "laplace"
    parameters: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(self, scale: npt.ArrayLike = 1.0) -> None:
        self.scale = per_variable("scale", scale, positive=True)

    def mean(self, bias: Array) -> Array:
        """Return the bias."""
        return bias

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw values around ``eta``."""
        size = rng.standard_exponential(np.shape(eta)) * rng.choice([-1.0, 1.0], np.shape(eta))
        return (eta + self.scale * size).astype(np.result_type(eta, np.float32))


class SpikeSlab(PriorFamily):
    """0 with probability ``1 - inclusion``, else ``N(bias, sd^2)``; a prior of the topmost latents.

    Args:
        inclusion: prior probability of not being zero, one number or one for each variable.
        sd: standard deviation of the slab, likewise.

    """

    name: ClassVar[str] = "spike_slab"
    parameters: ClassVar[tuple[str, ...]] = ("inclusion", "sd")

    def __init__(self, inclusion: npt.ArrayLike = 0.1, sd: npt.ArrayLike = 1.0) -> None:
        self.inclusion = per_variable("inclusion", inclusion, positive=True)
        if (self.inclusion >= 1).any():
            worst = self.inclusion[self.inclusion >= 1].flat[0]
            raise ArgumentError(f"inclusion must lie strictly between 0 and 1; got {worst}.")
        self.sd = per_variable("sd", sd, positive=True)

    def mean(self, bias: Array) -> Array:
        """Return ``inclusion * bias``."""
        return self.inclusion * bias

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw from the slab where a coin says so, else 0."""
        shape = np.shape(eta)
        slab = eta + self.sd * rng.standard_normal(shape)
        return np.where(rng.random(shape) < self.inclusion, slab, 0).astype(np.result_type(eta, np.float32))


def row_family(name: str, value: object) -> Family:
    """Return the family if rows can have it."""
    if isinstance(value, PriorFamily):
        raise ArgumentError(f"{name} must be one that rows can have; {value!r} can only be the prior on top.")
    if not isinstance(value, Family):
        raise ArgumentError(f"{name} must be a family such as forestmix.Gaussian(sd=1.0); got {value!r}.")
    return value
