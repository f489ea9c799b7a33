"""Priors of a scale for each column: automatic relevance determination."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array
from forestmix.posterior.integrate import MOST_SCALES
from forestmix.scales import HalfNormal, Scale

#: Logarithms on either side of the middle of a log-uniform prior.
HALF_WIDTH = 20.0


class LogUniform(Scale):
    """``p(s) = 1 / (40 s)`` for s within a factor ``e^20`` of ``middle``: no preference for any size."""

    parameters: ClassVar[tuple[str, ...]] = ("middle",)

    def __init__(self, middle: float) -> None:
        self.middle = middle

    def log_density(self, scale: npt.ArrayLike) -> Array:
        """Return ``-log(40 s)``, and minus infinity outside."""
        theta = np.log(np.asarray(scale, np.float64))
        inside = np.abs(theta - math.log(self.middle)) <= HALF_WIDTH
        return np.where(inside, -theta - math.log(2 * HALF_WIDTH), -np.inf)

    def log_density_slope(self, scale: npt.ArrayLike) -> Array:
        """Return ``-1 / s``."""
        return -1 / np.asarray(scale, np.float64)

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return ``middle exp(40 (p - 1/2))``."""
        return self.middle * np.exp(2 * HALF_WIDTH * (np.asarray(p, np.float64) - 0.5))


def relevance(width: float, count: int) -> Scale:
    """Return the prior of one of ``count`` columns' scales; ``width`` is the sd of the weak default.

    Few scales are integrated over, with a half-normal prior. Many are put at their mode, where a flat prior of the
    logarithm lets the scale of a column that explains nothing go to 0, as in scikit-learn's ``ARDRegression``.
    """
    # One more scale is that of the noise.
    return HalfNormal(width) if count + 1 <= MOST_SCALES else LogUniform(width)
