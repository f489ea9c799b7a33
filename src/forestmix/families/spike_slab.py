"""Spike and slab as a prior: most latents are exactly zero, and which are not is part of the question."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, per_variable
from forestmix.errors import ArgumentError
from forestmix.families.prior import PriorFamily, probability


class SpikeSlab(PriorFamily):
    """0 with probability ``1 - inclusion``, else ``N(bias, sd^2)``; a prior of the topmost latents.

    Args:
        inclusion: prior probability of not being zero, one number or one for each variable.
        sd: standard deviation of the slab, likewise.

    """

    name: ClassVar[str] = "spike_slab"
    parameters: ClassVar[tuple[str, ...]] = ("inclusion", "sd")

    def __init__(self, inclusion: npt.ArrayLike = 0.1, sd: npt.ArrayLike = 1.0) -> None:
        self.inclusion = probability("inclusion", per_variable("inclusion", inclusion, positive=True))
        self.sd = per_variable("sd", sd, positive=True)

    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with its parameters in ``dtype``; an ``inclusion`` that becomes 1 there is refused."""
        chosen = super().astype(dtype)
        if (chosen.inclusion >= 1).any():
            raise ArgumentError(
                f"inclusion does not fit {np.dtype(dtype)}, in which {self.inclusion.max()} is 1. Give float64 weights."
            )
        return chosen

    def mean(self, bias: Array) -> Array:
        """Return ``inclusion * bias``."""
        return self.inclusion * bias

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw from the slab where a coin says so, else 0."""
        shape = np.shape(eta)
        slab = eta + self.sd * rng.standard_normal(shape)
        return np.where(rng.random(shape) < self.inclusion, slab, 0).astype(np.result_type(eta, np.float32))
