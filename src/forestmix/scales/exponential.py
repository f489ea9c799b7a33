"""The exponential distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array
from forestmix.scales.base import Scale, positive


class Exponential(Scale):
    """``p(s) = rate exp(-rate s)``: of mean ``1 / rate``, with a tail between those of a normal and a t.

    Args:
        rate: one over the mean.

    """

    parameters: ClassVar[tuple[str, ...]] = ("rate",)

    def __init__(self, rate: Any = 1.0) -> None:
        self.rate = positive("rate", rate)

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return ``log rate - rate s``."""
        return math.log(self.rate) - self.rate * np.asarray(scale, np.float64)

    def log_density_slope(self, scale: npt.ArrayLike) -> Array:
        """Return ``-rate``."""
        return np.full(np.shape(scale), -self.rate)

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``-log(1 - p) / rate``."""
        return -np.log1p(-np.asarray(p, np.float64)) / self.rate
