"""What a family must offer that can only be the prior of the topmost latents.

It need not be an exponential family in its location, so it has no log-partition function and cannot be a row's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import ClassVar, Self

import numpy as np

from forestmix.arrays import Array, fits
from forestmix.errors import ArgumentError
from forestmix.families.base import Family


class PriorFamily(ABC):
    """A distribution of latents without parents; ``parameters`` names its own, one number or one per variable."""

    name: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]

    def __repr__(self) -> str:
        values = [getattr(self, name) for name in self.parameters]
        shown = [value.item() if value.ndim == 0 else f"<{value.size} values>" for value in values]
        pairs = ", ".join(f"{name}={value}" for name, value in zip(self.parameters, shown, strict=True))
        return f"{type(self).__name__}({pairs})"

    def check_size(self, size: int, what: str) -> None:
        """Raise unless the parameters fit ``size`` variables, which the message calls ``what``."""
        for name in self.parameters:
            fits(name, getattr(self, name), size, what)

    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with its parameters in float64, whatever the weights have: factors are computed in it."""
        chosen = copy(self)
        for name in self.parameters:
            setattr(chosen, name, getattr(self, name).astype(np.float64))
        return chosen

    def take(self, variables: Array) -> Self:
        """Return the family of the chosen variables."""
        chosen = copy(self)
        for name in self.parameters:
            value = getattr(self, name)
            setattr(chosen, name, value if value.ndim == 0 else value[variables])
        return chosen

    def check_bias(self, bias: Array) -> None:  # noqa: B027 - most have a location
        """Raise if the prior's bias has no meaning for this family."""

    @abstractmethod
    def mean(self, bias: Array) -> Array:
        """Return the prior mean of each variable."""

    @abstractmethod
    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw one value for each entry of ``eta``, the bias."""


def probability(name: str, value: Array) -> Array:
    """Return a parameter that lies strictly between 0 and 1."""
    outside = (value <= 0) | (value >= 1)
    if outside.any():
        raise ArgumentError(f"{name} must lie strictly between 0 and 1; got {value[outside].flat[0]}.")
    return value


def row_family(name: str, value: object) -> Family:
    """Return the family if rows can have it."""
    if isinstance(value, PriorFamily):
        raise ArgumentError(f"{name} must be one that rows can have; {value!r} can only be the prior on top.")
    if not isinstance(value, Family):
        raise ArgumentError(f"{name} must be a family such as forestmix.Gaussian(sd=1.0); got {value!r}.")
    return value
