"""Shorter steps where the objective would fall: the one backtracking that every method uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from forestmix.arrays import Array

#: How often the plain step is halved before no step is taken.
PLAIN_HALVINGS = 40


def fell(old: Any, new: Any) -> Array:
    """Return where the objective fell by more than rounding, (N,); NaN is a fall.

    A rise that rounding may have made is no gain either, so the larger rounding of the two counts.
    """
    return ~(new.objective - np.maximum(new.rounding, old.rounding) >= old.objective - 2 * old.rounding)


def backtrack(
    problem: Any, old: Any, step: Callable[[Array], Any], *, refused: Callable[[Any, Array], Array], limit: int,
    shrink: float = 0.5, first: Array | None = None,
) -> tuple[Any, Array, int]:  # fmt: skip
    """Return the point after the longest step that is not refused, the share of each observation, and the tries.

    Args:
        problem: the problem.
        old: where the step begins; an observation that refuses every length stays there.
        step: gives the factors after the share, (N, 1), of the step.
        refused: says which observations refuse a new point that was made by these shares.
        limit: lengths that are tried at most.
        shrink: what a refused share is multiplied with.
        first: the shares to begin with, (N, 1); 1 when left out.

    """
    share = np.ones((len(old.objective), 1)) if first is None else first
    for tries in range(1, limit + 1):
        new = problem.evaluate(step(share), known=old)
        bad = refused(new, share)
        if not bad.any():
            return new, share, tries
        share = np.where(bad[:, None], share * shrink, share)
    share = np.where(bad[:, None], 0.0, share)
    return problem.evaluate(old.q.where(bad, new.q), known=old), share, limit + 1


def step_sets(problem: Any, point: Any, schedule: str, halvings: int = 30) -> tuple[Any, int]:
    """Return the factors after a plain step of every set of latents, one set after another, and how many sets.

    All sets but a single one are backtracked here; what the loop refuses of a single one it shortens itself.
    """
    sets = problem.sets(schedule)
    if len(sets) == 1 and problem.gaussian:
        return problem.plain_step(point, sets[0]), 1
    for members in sets:
        start, new = point, problem.plain_step(point, members)

        def part(share: Array, start: Any = start, new: Any = new) -> Any:
            return new if np.all(share == 1) else problem.shorter(start.q, new, share)

        def lower(found: Any, share: Array, start: Any = start) -> Array:
            return ~(found.objective >= start.objective - start.rounding)

        point, _, _ = backtrack(problem, start, part, refused=lower, limit=halvings)
    return problem.refined(point.q), len(sets)


def plain_retreats(problem: Any, point: Any) -> Iterator[Any]:
    """Yield the plain step of all latents, halves of it, and then none.

    For Gaussian rows the whole of it cannot lower the objective; for others some part of it does not, since it is a
    natural gradient step (docs/regression.md).
    """
    plain, everywhere = problem.plain_step(point, None), np.ones((len(point.objective), 1))
    for halvings in range(PLAIN_HALVINGS):
        yield problem.shorter(point.q, plain, 0.5**halvings * everywhere) if halvings else plain
    yield point.q
