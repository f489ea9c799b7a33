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

#: Newton steps and halvings at most; a handful is the rule.
STEPS = 200
#: What rounding leaves of the equation, relative to its terms.
ROUNDING = 256 * float(np.finfo(np.float64).eps)


def solve_tilt(kind: type[Factors], family: Any, eta: Array, H: Array, D: Array, drive: Array, start: Array) -> Factors:
    """Return the factors that solve the problem, with ``drive = D c`` and h searched for from ``start`` on.

    The mean can rise in a jump, as that of a spike and slab does, between whose ends Newton's method would go to and
    fro. So its step is taken only while the last one halved the value; else the bracket is halved. Each entry stops by
    itself, so that it does not depend on the others.
    """
    extra = np.maximum(D - H, 0.0)
    largest = kind.largest_tilt(eta, H, drive / np.where(D > 0, D, 1.0))
    h = np.minimum(start, largest)
    low, high = np.full(h.shape, -np.inf), np.full(h.shape, np.inf)
    last, solved = np.full(h.shape, np.inf), np.zeros(h.shape, bool)
    for _ in range(STEPS):
        q = kind.tilted(family, eta, H, h)
        value = h + extra * q.mean - drive
        size = np.abs(h) + extra * np.abs(q.mean) + np.abs(drive)
        low = np.where(value < 0, h, np.maximum(low, h - value))
        high = np.where(value > 0, h, np.minimum(high, h - value))
        newton, middle = h - value / (1 + extra * q.variance), 0.5 * (low + high)
        fast = (newton > low) & (newton < high) & (np.abs(value) <= 0.5 * last)
        new = np.minimum(np.where(fast, newton, middle), largest)
        solved |= ~(np.abs(value) > ROUNDING * size) | ~((new > low) & (new < high))
        if solved.all():
            break
        h, last = np.where(solved, h, new), np.where(fast, np.abs(value), np.inf)
    return q
