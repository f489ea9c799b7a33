"""The posterior of one unknown scale: a density of its logarithm on a fine grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array, generator
from forestmix.checks import between_zero_and_one, whole_number
from forestmix.scales import Scale

#: Points of the fine grid.
POINTS = 2001


class ScalePosterior:
    """The posterior of one unknown scale.

    Attributes:
        scale: the scale as it stands in the model, with its prior.
        mean: posterior mean.
        sd: posterior standard deviation.
        mode: its value where the density of the logarithms of all unknown scales together is largest.
        log_mean: posterior mean of its logarithm.
        log_sd: posterior standard deviation of that.

    """

    def __init__(
        self, scale: Scale, theta: Array, log_density: Array, moments: Array | None = None, mode: float | None = None
    ) -> None:  # fmt: skip
        self.scale, self._theta = scale, theta
        self.mode = float(np.exp(theta[np.argmax(log_density)] if mode is None else mode))
        density = np.exp(log_density - np.max(log_density))
        step = theta[1] - theta[0]
        self._density = density / (np.sum(density) * step)
        self._cumulative = scipy.integrate.cumulative_trapezoid(self._density, dx=step, initial=0)
        self._cumulative /= self._cumulative[-1]
        if moments is None:
            powers = np.stack([np.exp(theta), np.exp(2 * theta), theta, theta**2])
            moments = powers @ self._density * step
        self.mean, self.sd = float(moments[0]), _sd(moments[0], moments[1])
        self.log_mean, self.log_sd = float(moments[2]), _sd(moments[2], moments[3])

    def quantile(self, p: npt.ArrayLike) -> Array:
        """Return the scale that the unknown one is below with probability p."""
        return np.exp(np.interp(np.asarray(p, np.float64), self._cumulative, self._theta))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return both ends of the central interval."""
        between_zero_and_one("level", level)
        low, high = self.quantile([0.5 * (1 - level), 0.5 * (1 + level)])
        return float(low), float(high)

    def density(self, scale: npt.ArrayLike) -> Array:
        """Return the posterior density at each scale, for a plot."""
        scale = np.asarray(scale, np.float64)
        with np.errstate(divide="ignore"):
            theta = np.log(scale)
        return np.interp(theta, self._theta, self._density, left=0.0, right=0.0) / np.where(scale > 0, scale, 1.0)

    def sample(self, size: int | None = None, rng: Any = None) -> Array:
        """Draw scales, with an axis of ``size`` if that is given."""
        return self.quantile(generator(rng).random(whole_number("size", size, optional=True)))

    def __repr__(self) -> str:
        low, high = self.interval()
        return f"<posterior of {self.scale!r}: {self.mean:.4g} +- {self.sd:.2g}, 90 % in {low:.4g} to {high:.4g}>"


def from_grid(scale: Scale, mode: float, theta: Array, log_density: Array) -> ScalePosterior:
    """Return the posterior from log densities at the nodes of a grid, by a cubic spline between the finite ones.

    ``mode``: that of the logarithm.
    """
    known = np.isfinite(log_density)
    theta, log_density = theta[known], log_density[known]
    fine = np.linspace(theta[0], theta[-1], POINTS)
    return ScalePosterior(scale, fine, scipy.interpolate.CubicSpline(theta, log_density)(fine), mode=mode)


def from_weighted(scale: Scale, mode: float, theta: Array, weights: Array) -> ScalePosterior:
    """Return the posterior from weighted nodes, smoothed on the line of logarithms.

    Normal kernels of bandwidth h, at nodes drawn towards their mean so that the variance stays (West 1993). The moments
    are those of the nodes.
    """
    moments = np.stack([np.exp(theta), np.exp(2 * theta), theta, theta**2]) @ weights
    mean, sd = moments[2], max(_sd(moments[2], moments[3]), 1e-9)
    effective = 1 / np.sum(weights**2)
    share = min(1.06 * effective**-0.2, 0.9)
    centres = mean + np.sqrt(1 - share**2) * (theta - mean)
    width = share * sd
    fine = np.linspace(centres.min() - 5 * width, centres.max() + 5 * width, POINTS)
    exponents = -0.5 * ((fine[:, None] - centres) / width) ** 2
    return ScalePosterior(scale, fine, scipy.special.logsumexp(exponents, axis=1, b=weights), moments, mode)


def at_point(scale: Scale, theta: float) -> ScalePosterior:
    """Return all of the mass at one point, where the uncertainty of a scale is left out."""
    fine = np.linspace(theta - 1e-9, theta + 1e-9, POINTS)
    value = float(np.exp(theta))
    return ScalePosterior(scale, fine, np.zeros(POINTS), np.array([value, value**2, theta, theta**2]), theta)


def _sd(mean: float, square: float) -> float:
    return float(np.sqrt(max(square - mean**2, 0.0)))
