"""One-dimensional factors ``q(y) ∝ p(y) exp(-H y^2 / 2 + h y)`` with eighty digits, for every family of latents."""

from typing import NamedTuple

import mpmath
import numpy as np
from mpmath import mpf

from .precise import LONG

DIGITS = 80
#: Standard deviations from the cut beyond which the series takes a dozen terms for all digits.
FAR = 10_000


class Factor(NamedTuple):
    """The tilt h, ``log E_p exp(-H y^2 / 2 + h y)``, the mean, the variance, and ``KL(q || p)``."""

    h: mpf
    log_mass: mpf
    mean: mpf
    variance: mpf
    divergence: mpf


def make_factor(family, prior, H, h):
    """Return the factor with the tilt h; ``prior`` has the parameters of this latent as numbers of mpmath's."""
    log_mass, mean, second, variance = FAMILIES[family](prior, H, h)
    return Factor(h, log_mass, mean, variance, h * mean - H * second / 2 - log_mass)


def factor_of_mean(family, prior, H, mean, start=None):
    """Return the factor with this mean, the root of an increasing function, by Newton's steps inside a bracket."""
    low, high = tilts(family, prior) if H == 0 else (None, None)
    width = mpf(1)
    h = H * mean if start is None else start
    scale = abs(mean) + mpf(10) ** -300
    for trial in range(400):
        factor = make_factor(family, prior, H, h)
        error = factor.mean - mean
        if abs(error) <= scale * mpf(10) ** -40 or abs(error) <= mpf(10) ** -30 * mpmath.sqrt(factor.variance):
            break
        low, high = (h, high) if error < 0 else (low, h)
        new = h - error / factor.variance if factor.variance > 0 else None
        if low is not None and high is not None:
            if high - low <= mpf(10) ** -60 * (abs(low) + abs(high)):
                break
            inside = new is not None and low < new < high
            # A step that hardly moves one end is followed by a bisection, so that the bracket always shrinks.
            h = new if inside and trial % 3 < 2 else (low + high) / 2
        else:
            width *= 4
            far = new is None or abs(new - h) > width
            h = (h - width if error > 0 else h + width) if far else new
    return factor


def tilts(family, prior):
    """Return the tilts between which a prior without curvature has a mass; ``None`` where there is no end."""
    if family == "exponential":
        return None, prior["rate"]
    if family == "laplace":
        return -1 / prior["scale"], 1 / prior["scale"]
    return None, None


def half_line(H, g):
    """Return the mass, mean and variance of ``exp(-H u^2 / 2 + g u)`` on ``u > 0``."""
    if H == 0:
        return -1 / g, -1 / g, 1 / g**2
    t = g / mpmath.sqrt(H)
    if t < -FAR:
        return _far_half_line(H, -g)
    mass = mpmath.sqrt(mpmath.pi / (2 * H)) * mpmath.erfc(-t / mpmath.sqrt(2)) * mpmath.exp(t**2 / 2)
    hazard = 1 / (mass * mpmath.sqrt(H))
    return mass, (g + 1 / mass) / H, (1 - hazard * (t + hazard)) / H


def _far_half_line(H, rate):
    """Where the cut is far out in the tail: ``exp(-H u^2 / 2)`` by its series, under an exponential distribution."""
    ratio = H / rate**2
    sums = []
    for k in range(3):
        term, total = mpf(mpmath.factorial(k)), mpf(0)
        for n in range(1, 14):
            total += term
            term *= -ratio / 2 * (k + 2 * n - 1) * (k + 2 * n) / n
        sums.append(total / rate ** (k + 1))
    mean = sums[1] / sums[0]
    return sums[0], mean, sums[2] / sums[0] - mean**2


def _exponential(prior, H, h):
    mass, mean, variance = half_line(H, h - prior["rate"])
    return mpmath.log(prior["rate"] * mass), mean, variance + mean**2, variance


def _laplace(prior, H, h):
    location, rate = prior["bias"], 1 / prior["scale"]
    tilt = h - H * location
    up, down = half_line(H, tilt - rate), half_line(H, -tilt - rate)
    mass = up[0] + down[0]
    above, below = up[0] / mass, down[0] / mass
    mean = location + above * up[1] - below * down[1]
    variance = above * up[2] + below * down[2] + above * below * (up[1] + down[1]) ** 2
    log_mass = mpmath.log(rate / 2 * mass) + h * location - H * location**2 / 2
    return log_mass, mean, variance + mean**2, variance


def _spike_slab(prior, H, h):
    inclusion, sd, location = prior["inclusion"], prior["sd"], prior["bias"]
    precision = H + 1 / sd**2
    slab = (h + location / sd**2) / precision
    gain = precision * slab**2 / 2 - location**2 / (2 * sd**2)
    odds = inclusion / mpmath.sqrt(sd**2 * precision) * mpmath.exp(gain)
    share = odds / (odds + 1 - inclusion)
    mean, second = share * slab, share * (slab**2 + 1 / precision)
    variance = share * (1 / precision + (1 - share) * slab**2)
    return mpmath.log(odds + 1 - inclusion), mean, second, variance


def _bernoulli(prior, H, h):
    odds, base = mpmath.exp(prior["bias"] + h - H / 2), mpmath.exp(prior["bias"])
    mean = odds / (1 + odds)
    return mpmath.log((1 + odds) / (1 + base)), mean, mean, mean / (1 + odds)


def _poisson(prior, H, h):
    """Sum around the largest term, in long double but for the slope there, which cancels."""
    slope, H = prior["bias"] + h, mpf(H)
    top = _largest_term(slope, H)
    reach = int(np.ceil(np.sqrt(160 / (float(H) + 1 / (top + 1))))) + 80
    first = max(0, top - reach)
    y = np.arange(first, top + reach + 1)
    local, curve = LONG(float(slope - H * top)), LONG(float(H))
    steps = np.log(np.maximum(y, 1).astype(LONG))
    log_factorial = np.cumsum(steps)
    log_factorial -= log_factorial[top - first]
    d = (y - top).astype(LONG)
    with np.errstate(under="ignore"):
        terms = np.exp(local * d - curve * d**2 / 2 - log_factorial)
    total, shift = np.sum(terms), np.sum(terms * d) / np.sum(terms)
    spread = np.sum(terms * (d - shift) ** 2) / total
    at_top = slope * top - H * mpf(top) ** 2 / 2 - mpmath.loggamma(top + 1) - mpmath.exp(prior["bias"])
    mean, variance = top + mpf(float(shift)), mpf(float(spread))
    return at_top + mpmath.log(mpf(float(total))), mean, variance + mean**2, variance


def _largest_term(slope, H):
    """Return the y where ``slope y - H y^2 / 2 - log y!`` is largest, by bisection on its differences."""

    def rises(y):
        return slope - H * (y + mpf(1) / 2) - mpmath.log(y + 1) > 0

    high = 1
    while rises(high - 1):
        high *= 2
    low = 0
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if rises(middle) else (low, middle)
    return low


FAMILIES = {
    "exponential": _exponential, "laplace": _laplace, "spike_slab": _spike_slab, "bernoulli": _bernoulli,
    "poisson": _poisson,
}  # fmt: skip
