"""The one-dimensional problem that Gaussian rows give each latent (docs/latents.md), for any family.

It is::

    maximise  E log p(y) + entropy(q) - D (mu - c)^2 / 2 - H Var / 2
    q(y) ∝ p(y) exp{ -H y^2 / 2 + h y },      h = D c - (D - H) mu

with ``mu`` the mean of that very q. As a function of h its mean M rises, with slope Var, and ``D >= H``, so that
``h + (D - H) M(h) - D c`` rises with a slope of at least 1 and has one root, which is no farther from any h than its
value there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.latents.base import Factors

#: Newton steps or halvings at most; a handful is the rule.
STEPS = 80
#: What rounding leaves of the equation, relative to its terms.
ROUNDING = 256 * float(np.finfo(np.float64).eps)


def settle(kind: type[Factors], family: Any, eta: Array, H: Array, D: Array, drive: Array, start: Array) -> Factors:
    """Return the factors that solve the problem, with ``drive = D c`` and h searched for from ``start`` on."""
    extra = np.maximum(D - H, 0.0)
    h = np.broadcast_to(start, np.broadcast_shapes(np.shape(start), np.shape(drive))).astype(np.float64)
    q = kind.tilted(family, eta, H, h)
    value = h + extra * q.mean - drive
    low, high = h - np.abs(value), h + np.abs(value)
    for _ in range(STEPS):
        size = np.abs(h) + extra * np.abs(q.mean) + np.abs(drive)
        if np.all(np.abs(value) <= ROUNDING * size):
            break
        low, high = np.where(value < 0, np.maximum(low, h), low), np.where(value > 0, np.minimum(high, h), high)
        newton = h - value / (1 + extra * q.variance)
        inside = (newton > low) & (newton < high)
        h = np.where(value == 0, h, np.where(inside, newton, 0.5 * (low + high)))
        q = kind.tilted(family, eta, H, h)
        value = h + extra * q.mean - drive
    return q
