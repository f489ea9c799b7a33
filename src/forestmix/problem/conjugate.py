"""Conjugate gradients for a batch of linear systems ``A x = b``, in arrays of any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_compat

from forestmix.arrays import inner

Product = Callable[[Any], tuple[Any, Any]]


class Step(NamedTuple):
    """A step of ``length``, (N, 1), along ``direction`` p; ``image`` is ``A p`` and ``curvature`` is ``p^T A p``."""

    length: Any
    direction: Any
    image: Any
    curvature: Any


#: A direction, (N, m), and the squared norm ``r^T P^-1 r``, (N, 1), of the residual that it was made from.
Last = tuple[Any, Any]


def conjugate_step(residual: Any, preconditioned: Any, squared: Any, last: Last | None, product: Product) -> Step:
    """Return the step to the optimum along the next conjugate direction, ``p = P^-1 r + beta p``.

    Args:
        residual: r, (N, m).
        preconditioned: ``P^-1 r``.
        squared: ``r^T P^-1 r``, (N, 1).
        last: what the step before was made from; ``None`` for the first. Zeros begin anew.
        product: gives ``A p``, (N, m), and ``p^T A p``, (N, 1).

    """
    direction = preconditioned
    if last is not None:
        direction = direction + _like(residual, quotient(squared, last[1])) * last[0]
    image, curvature = product(direction)
    # By the slope along p and not by the residual's norm: rounding, or a new start, may have parted the two.
    length = quotient(dot(residual, direction), curvature)
    return Step(_like(residual, length), direction, image, curvature)


class Solution(NamedTuple):
    """``x``: (N, m); ``unfinished``: which systems are not solved yet though more could be gained, (N, 1)."""

    x: Any
    unfinished: Any
    iterations: int


def conjugate_gradients(
    right: Any,
    product: Product,
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
    x, residual, last, iteration = xp.zeros_like(right), right, None, 0
    preconditioned = precondition(residual)
    squared = dot(residual, preconditioned)
    more = squared > 0
    while iteration < limit and bool(xp.any(more)):
        step = conjugate_step(residual, preconditioned, squared, last, product)
        last = step.direction, squared
        if keep is not None:
            keep(step.direction, step.image)
        positive = step.curvature > 0
        if iteration == 0:
            x = xp.where(positive, x, step.direction)
        length = xp.where(more, step.length, xp.zeros_like(step.length))
        x, residual = x + length * step.direction, residual - length * step.image
        preconditioned = precondition(residual)
        squared = dot(residual, preconditioned)
        more = more & positive & ~enough(residual, squared)
        iteration += 1
    return Solution(x, more, iteration)


def dot(first: Any, second: Any) -> Any:
    """Return the inner product of each observation in double precision, (N, 1)."""
    return inner(first, second)[:, None]


def _like(vector: Any, number: Any) -> Any:
    """Return numbers in the precision of a vector."""
    return array_api_compat.array_namespace(vector).astype(number, vector.dtype)


def quotient(numerator: Any, denominator: Any) -> Any:
    """Return the quotient, 0 where the denominator is not positive: there is nothing to gain in that direction."""
    xp = array_api_compat.array_namespace(denominator)
    positive = denominator > 0
    safe = xp.where(positive, denominator, xp.ones_like(denominator))
    return xp.where(positive, numerator / safe, xp.zeros_like(denominator))
