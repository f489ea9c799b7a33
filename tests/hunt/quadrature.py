"""Gaussian expectations of softplus and its derivatives in long double, by rules that need no thought at the kink."""

import numpy as np

from .precise import LONG

#: Up to this spread the trapezoidal rule on the whole line takes few nodes; beyond it, panels are laid around the kink.
WIDE = LONG(8)
REACH = LONG(12)
#: With poles at a distance of pi / spread from the real line, the rule's error is exp(-2 pi^2 / (spread * STEP)).
STEP = LONG(0.05)
NODES = np.arange(-REACH / STEP, REACH / STEP + 1).astype(LONG) * STEP
LEGENDRE = np.polynomial.legendre.leggauss(24)


def refined_legendre():
    """Return the nodes and weights of Gauss and Legendre, improved to long double by Newton steps."""
    x, n = LEGENDRE[0].astype(LONG), len(LEGENDRE[0])
    for _ in range(3):
        before, value = np.ones_like(x), x
        for k in range(2, n + 1):
            before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
        slope = n * (x * value - before) / (x**2 - 1)
        x = x - value / slope
    return x, 2 / ((1 - x**2) * slope**2)


LEGENDRE_NODES, LEGENDRE_WEIGHTS = refined_legendre()


def softplus_terms(eta):
    """Return softplus, and its first four derivatives, without cancellation."""
    small = np.exp(-np.abs(eta))
    s = np.where(eta >= 0, 1, small) / (1 + small)
    second = small / (1 + small) ** 2
    difference = np.where(eta >= 0, -1, 1) * (1 - small) / (1 + small)
    return np.maximum(eta, 0) + np.log1p(small), s, second, second * difference, second * (1 - 6 * second)


def softplus_expectations(mean, spread):
    """Return ``E f(mean + spread z)`` of softplus and its first four derivatives, (5, n)."""
    mean, spread = np.asarray(mean, LONG), np.asarray(spread, LONG)
    out = np.empty((5, len(mean)), LONG)
    narrow = spread <= WIDE
    if narrow.any():
        weights = np.exp(-(NODES**2) / 2)
        terms = softplus_terms(mean[narrow, None] + spread[narrow, None] * NODES)
        out[:, narrow] = [term @ weights / weights.sum() for term in terms]
    for i in np.flatnonzero(~narrow):
        out[:, i] = _wide(mean[i], spread[i])
    return out


def _wide(mean, spread):
    """Integrate over eta, in panels that grow away from the kink at 0 and are at most half a spread long."""
    low, high = mean - REACH * spread, mean + REACH * spread
    powers = LONG(2) ** np.arange(0, 60)
    powers = powers[powers < np.maximum(abs(low), abs(high))]
    even = np.linspace(low, high, 49, dtype=LONG)
    cuts = np.concatenate([even, powers, -powers, [LONG(0)]])
    cuts = np.unique(cuts[(cuts >= low) & (cuts <= high)])
    centre, half = (cuts[1:] + cuts[:-1]) / 2, (cuts[1:] - cuts[:-1]) / 2
    eta = centre[:, None] + half[:, None] * LEGENDRE_NODES
    density = np.exp(-(((eta - mean) / spread) ** 2) / 2) / (spread * np.sqrt(2 * LONG(np.pi)))
    weights = half[:, None] * LEGENDRE_WEIGHTS * density
    return [np.sum(weights * term) for term in softplus_terms(eta)]
