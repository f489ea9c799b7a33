"""Gaussian expectations of softplus, sigmoid and its derivative with mpmath."""

import functools
import itertools

import mpmath as mp
from mpmath.calculus.quadrature import GaussLegendre

from forestmix.families.expectations import Expectations, lower_softplus

DIGITS = 40


@functools.cache
def legendre():
    """Return 24 Gauss-Legendre nodes and weights on [-1, 1]."""
    with mp.workdps(DIGITS):
        return GaussLegendre(mp.mp).calc_nodes(4, mp.mp.prec)


def panels(m, s):
    """Return break points in eta: panels short beside s, and beside pi and 1 where softplus bends or falls."""
    tilted = min(m + s * s, 0)
    low, high = min(m, tilted or m) - 13 * s, max(m, tilted) + 13 * s
    bottom = min(-72, tilted - 13 * s) if tilted else -72
    points = {low, high, *(low + 2 * s * k for k in range(int((high - low) / (2 * s)) + 1))}
    return sorted(points | {3.0 * k for k in range(int(bottom / 3), 25) if low < 3.0 * k < high})


@functools.cache
def exact(m, s):
    """Return the three expectations by Gauss-Legendre panels in 40 digits; the exponentials serve all three."""
    with mp.workdps(DIGITS):
        sums = [mp.mpf(0)] * 3
        points = [mp.mpf(p) for p in panels(m, s)]
        scale = 1 / (s * mp.sqrt(2 * mp.pi))
        for low, high in itertools.pairwise(points):
            half, middle = (high - low) / 2, (high + low) / 2
            for node, weight in legendre():
                eta = middle + half * node
                density = weight * half * scale * mp.exp(-(((eta - m) / s) ** 2) / 2)
                e = mp.exp(eta)
                parts = (mp.log1p(e), e / (1 + e), e / (1 + e) ** 2)
                sums = [total + density * part for total, part in zip(sums, parts, strict=True)]
        return tuple(sums)


def softplus(xp, m, s):
    """The expectations as forestmix has them, for m of either sign by symmetry."""
    lower, positive = lower_softplus(xp, -xp.abs(m), s), m > 0
    value = lower.value + xp.where(positive, m, xp.zeros_like(m))
    return Expectations(value, lower.excess, xp.where(positive, 1 - lower.slope, lower.slope), lower.curvature)
