"""Conjugate gradients for a batch of linear systems ``A x = b``, in arrays of any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_compat

from forestmix.arrays import Array, inner

Product = Callable[[Any], tuple[Any, Any]]


class Step(NamedTuple):
    """A step of ``length``, (N, 1), along ``direction`` p; ``image`` is ``A p`` and ``curvature`` is ``p^T A p``."""

    length: Any
    direction: Any
    image: Any
    curvature: Any


class ConjugateDirections:
    """The next conjugate direction from each residual, for a batch; it keeps the last direction and squared norm.

    Args:
        precondition: gives the approximate inverse of A times a residual, (N, m).

    """

    def __init__(self, precondition: Callable[[Any], Any]) -> None:
        self.precondition = precondition
        self.direction: Any = None
        self.squared: Any = None

    def take(self, keep: Array, precondition: Callable[[Any], Any]) -> ConjugateDirections:
        """Return the directions of the chosen systems, in arrays of NumPy, with their own preconditioner."""
        chosen = ConjugateDirections(precondition)
        if self.direction is not None:
            chosen.direction, chosen.squared = self.direction[keep], self.squared[keep]
        return chosen

    def forget(self, which: Any) -> None:
        """Begin anew from the residual in the marked systems, (N, 1)."""
        if self.direction is not None:
            xp = array_api_compat.array_namespace(self.direction)
            self.direction = xp.where(which, xp.zeros_like(self.direction), self.direction)
            self.squared = xp.where(which, xp.zeros_like(self.squared), self.squared)

    def look(self, residual: Any) -> Any:
        """Precondition the next residual, and return its squared norm ``r^T P^-1 r``, (N, 1)."""
        self._preconditioned = self.precondition(residual)
        self._next = dot(residual, self._preconditioned)
        return self._next

    def advance(self, residual: Any, product: Product) -> Step:
        """Return the step to the optimum along ``p = P^-1 r + beta p``, for the residual that was looked at last.

        ``product`` gives ``A p``, (N, m), and ``p^T A p``, (N, 1).
        """
        if self.direction is None:
            self.direction = self._preconditioned
        else:
            share = _like(residual, quotient(self._next, self.squared))
            self.direction = self._preconditioned + share * self.direction
        self.squared = self._next
        image, curvature = product(self.direction)
        # By the slope along p and not by the residual's norm: rounding, or a new start, may have parted the two.
        length = quotient(dot(residual, self.direction), curvature)
        return Step(_like(residual, length), self.direction, image, curvature)


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
    directions = ConjugateDirections(precondition)
    x, residual, iteration = xp.zeros_like(right), right, 0
    more = directions.look(residual) > 0
    while iteration < limit and bool(xp.any(more)):
        step = directions.advance(residual, product)
        if keep is not None:
            keep(step.direction, step.image)
        positive = step.curvature > 0
        if iteration == 0:
            x = xp.where(positive, x, step.direction)
        length = xp.where(more, step.length, xp.zeros_like(step.length))
        x, residual = x + length * step.direction, residual - length * step.image
        more = more & positive & ~enough(residual, directions.look(residual))
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
