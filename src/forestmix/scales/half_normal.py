"""A normal distribution cut at 0."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array
from forestmix.scales.base import Scale, positive


class HalfNormal(Scale):
    """``p(s) = sqrt(2 / pi) / scale exp(-s^2 / (2 scale^2))``: a scale of about so much, and hardly three times it.

    Args:
        scale: standard deviation of the normal distribution that is cut.

    """

    parameters: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(self, scale: Any = 1.0) -> None:
        self.scale = positive("scale", scale)

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return ``log(2 / pi) / 2 - log scale - s^2 / (2 scale^2)``."""
        ratio = np.asarray(scale, np.float64) / self.scale
        return 0.5 * math.log(2 / math.pi) - math.log(self.scale) - 0.5 * ratio**2

    def log_density_slope(self, scale: npt.ArrayLike) -> Array:
        """Return ``-s / scale^2``."""
        return -np.asarray(scale, np.float64) / self.scale**2

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``scale Phi^-1((1 + p) / 2)``, which keeps its digits near 0 in the form of the error function."""
        return self.scale * math.sqrt(2) * scipy.special.erfinv(np.asarray(p, np.float64))
