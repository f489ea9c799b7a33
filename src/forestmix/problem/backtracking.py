"""Shorter steps where a whole one is refused: the one backtracking that every method uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def longest_step(
    at: Callable[[Any], Any], accepted: Callable[[Any, Any], Any], rho: Any, halvings: int
) -> tuple[Any, Any, Any]:
    """Return the point after the longest of a step, a half, a quarter ... of it that is accepted.

    Args:
        at: gives the point after a step of length rho, a number or one for each observation.
        accepted: whether a point after such a length is taken.
        rho: the first length.
        halvings: lengths that are tried.

    Returns:
        The last point, its length, and where it was accepted.

    """
    for _ in range(halvings):
        point = at(rho)
        found = np.asarray(accepted(point, rho))
        if found.all():
            break
        rho = np.where(found, rho, 0.5 * rho)
    return point, rho, found
