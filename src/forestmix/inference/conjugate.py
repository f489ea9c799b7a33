"""Conjugate gradients for a batch of linear systems, in arrays of any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_compat


class Solution(NamedTuple):
    """``x``: (N, m); ``unfinished``: which systems are not solved yet though more could be gained, (N, 1)."""

    x: Any
    unfinished: Any
    iterations: int


def conjugate_gradients(
    right: Any,
    product: Callable[[Any], tuple[Any, Any]],
    precondition: Callable[[Any], Any],
    enough: Callable[[Any, Any], Any],
    limit: int,
    keep: Callable[[Any, Any], None] | None = None,
) -> Solution:
    """Solve ``A x = right`` for each row of ``right``, (N, m).

    Args:
        right: the right-hand sides.
        product: gives ``A p``, (N, m), and ``p^T A p``, (N, 1), for directions p.
        precondition: gives the approximate inverse of A times a residual.
        enough: whether a residual, (N, m), and its squared norm in that metric, (N, 1), end a system.
        limit: iterations at most.
        keep: is given each direction and its image.

    A system whose curvature is not positive in some direction ends there: at the first direction itself, if it has
    gone nowhere yet.
    """
    xp = array_api_compat.array_namespace(right)
    x, residual = xp.zeros_like(right), right
    direction = precondition(residual)
    squared = dot(residual, direction)
    more, iteration = squared > 0, 0
    while iteration < limit and bool(xp.any(more)):
        image, curvature = product(direction)
        if keep is not None:
            keep(direction, image)
        positive = curvature > 0
        if iteration == 0:
            x = xp.where(positive, x, direction)
        length = quotient(squared, curvature)
        x, residual = x + length * direction, residual - length * image
        preconditioned = precondition(residual)
        before, squared = squared, dot(residual, preconditioned)
        more = more & positive & ~enough(residual, squared)
        direction = xp.where(more, preconditioned + quotient(squared, before) * direction, xp.zeros_like(direction))
        iteration += 1
    return Solution(x, more, iteration)


def dot(first: Any, second: Any) -> Any:
    """Return the inner product of each observation, (N, 1)."""
    return array_api_compat.array_namespace(first).sum(first * second, axis=1, keepdims=True)


def quotient(numerator: Any, denominator: Any) -> Any:
    """Return the quotient, 0 where the denominator is not positive: there is nothing to gain in that direction."""
    xp = array_api_compat.array_namespace(denominator)
    positive = denominator > 0
    safe = xp.where(positive, denominator, xp.ones_like(denominator))
    return xp.where(positive, numerator / safe, xp.zeros_like(denominator))
