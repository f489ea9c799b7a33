"""The exponential distribution as a prior, for codes that are not negative."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, per_variable
from forestmix.errors import ArgumentError
from forestmix.families.prior import PriorFamily


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
        if np.any(bias != 0):
            raise ArgumentError(f"bias must be 0 for an Exponential prior, which has no location; got {bias.max()}.")

    def mean(self, bias: Array) -> Array:
        """Return ``1 / rate``."""
        return np.broadcast_to(1 / self.rate, np.shape(bias))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw exponential values."""
        return (rng.standard_exponential(np.shape(eta)) / self.rate).astype(np.result_type(eta, np.float32))
