"""The Laplace distribution as a prior, for codes of which many are near zero."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, per_variable
from forestmix.families.prior import PriorFamily


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
