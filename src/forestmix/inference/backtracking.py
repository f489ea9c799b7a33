"""Shorter steps where the objective would fall: the one backtracking that every method uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.problem.base import sets_of_layers

#: How often the plain step is halved before no step is taken.
PLAIN_HALVINGS = 40


def fell(old: Any, new: Any) -> Array:
    """Return where the objective fell by more than rounding, (N,); NaN is a fall.

    A rise that rounding may have made is no gain either, so the larger rounding of the two counts.
    """
    return ~(new.objective - np.maximum(new.rounding, old.rounding) >= old.objective - 2 * old.rounding)


def backtrack(problem: Any, old: Any, new: Any, halvings: int = 30) -> Any:
    """Return the point after the longest of a step, a half, a quarter ... of it that does not lower the objective.

    Each observation has a length of its own; one that refuses every length stays where it is.
    """
    share = np.ones((len(old.objective), 1))
    for _ in range(halvings):
        point = problem.evaluate(new if np.all(share == 1) else problem.shorter(old.q, new, share), known=old)
        bad = ~(point.objective >= old.objective - old.rounding)
        if not bad.any():
            return point
        share = np.where(bad[:, None], 0.5 * share, share)
    return problem.evaluate(old.q.where(bad, point.q), known=old)


def step_sets(problem: Any, point: Any, schedule: str) -> tuple[Any, int]:
    """Return the factors after a plain step of every set of latents, one set after another, and how many sets.

    All sets but a single one are backtracked here; what the loop refuses of a single one it shortens itself.
    """
    sets = sets_of_layers(schedule, len(problem.model.layers))
    if len(sets) == 1 and problem.gaussian:
        return problem.plain_step(point, sets[0]), 1
    for layers in sets:
        point = backtrack(problem, point, problem.plain_step(point, layers))
    return problem.refined(point.q), len(sets)


def plain_retreats(problem: Any, point: Any) -> Iterator[Any]:
    """Yield the plain step of all latents, halves of it if they are Gaussian, and then none.

    For Gaussian rows the whole of it cannot lower the objective; for others some part of it does not, since it is a
    natural gradient step (docs/regression.md).
    """
    if not problem.gaussian:
        yield step_sets(problem, point, "red-black")[0]
        yield point.q
        return
    plain, everywhere = problem.plain_step(point, None), np.ones((len(point.objective), 1))
    for halvings in range(PLAIN_HALVINGS):
        yield problem.shorter(point.q, plain, 0.5**halvings * everywhere) if halvings else plain
    yield point.q
