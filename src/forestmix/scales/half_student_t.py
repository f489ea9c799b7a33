"""A Student t distribution cut at 0, and Cauchy's, which is that of one degree of freedom."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array
from forestmix.scales.base import Scale, positive


class HalfStudentT(Scale):
    """``p(s) ∝ (1 + (s / scale)^2 / df)^(-(df + 1) / 2)``: like ``HalfNormal``, with room for surprises.

    Args:
        df: degrees of freedom; the fewer, the heavier the tail.
        scale: scale of the t distribution that is cut.

    """

    parameters: ClassVar[tuple[str, ...]] = ("df", "scale")

    def __init__(self, df: Any, scale: Any = 1.0) -> None:
        self.df, self.scale = positive("df", df), positive("scale", scale)

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return the logarithm of twice the t density."""
        half = 0.5 * self.df
        constant = math.lgamma(half + 0.5) - math.lgamma(half) - 0.5 * math.log(math.pi * self.df)
        ratio = np.asarray(scale, np.float64) / self.scale
        return math.log(2 / self.scale) + constant - (half + 0.5) * np.log1p(ratio**2 / self.df)

    def log_density_slope(self, scale: npt.ArrayLike) -> Array:
        """Return ``-(df + 1) s / (df scale^2 + s^2)``."""
        scale = np.asarray(scale, np.float64)
        return -(self.df + 1) * scale / (self.df * self.scale**2 + scale**2)

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return the t quantile of ``(1 + p) / 2``, from the tail beyond it where p is near 1."""
        return -self.scale * scipy.special.stdtrit(self.df, 0.5 * (1 - np.asarray(p, np.float64)))


class HalfCauchy(HalfStudentT):
    """``p(s) = 2 / (pi scale (1 + (s / scale)^2))``: it has no mean, and a tenth of it is beyond ``6.3 scale``.

    Args:
        scale: the median.

    """

    parameters: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(self, scale: Any = 1.0) -> None:
        super().__init__(1.0, scale)

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``scale tan(pi p / 2)``."""
        return self.scale * np.tan(0.5 * math.pi * np.asarray(p, np.float64))
