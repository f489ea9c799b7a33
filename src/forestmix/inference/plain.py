"""Plain forest mixture steps, with no accelerator: all latents at once, or one group after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from forestmix.inference.base import Proposal, Steps
from forestmix.partition import Partition
from forestmix.problem.backtracking import longest_step
from forestmix.problem.interfaces.base import Acceleration
from forestmix.problem.problem import sets_of_layers

#: How often the plain step is halved before no step is taken.
PLAIN_HALVINGS = 40
#: The same for the step of one set of several.
SET_HALVINGS = 30


class PlainSteps(Steps):
    """One forest mixture step of all latents in every iteration, the layers in the order of a schedule."""

    def __init__(self, schedule: str) -> None:
        self.schedule = schedule

    def propose(self, problem: Any, point: Any) -> Proposal:
        """Make one parallel step over all latents, or one for each set of layers (paper, Algorithm 1)."""
        q, steps = step_sets(problem, point, self.schedule)
        return Proposal(q, steps, problem.size, retreats=shorter_if_needed(problem, point))


def group_steps(groups: Partition, problem: Any, point: Any) -> Proposal:
    """Make one forest mixture step for each group of latents, one after another."""
    q = problem.sweep(point, groups, surrogate=True)
    return Proposal(q, len(groups.sizes), problem.size, retreats=shorter_if_needed(problem, point))


def shorter_if_needed(problem: Any, point: Any) -> Iterable[Any]:
    """Return shorter plain steps; those of Gaussian rows need none."""
    return plain_retreats(problem, point) if problem.acceleration is Acceleration.NEWTON else ()


def step_sets(problem: Any, point: Any, schedule: str) -> tuple[Any, int]:
    """Return the factors after a plain step of every set of latents, one set after another, and how many sets.

    All sets but a single one are backtracked here; what the loop refuses of a single one it shortens itself.
    """
    sets = sets_of_layers(schedule, len(problem.model.layers))
    if len(sets) == 1 and problem.gaussian:
        return problem.plain_step(point, sets[0]), 1
    for layers in sets:
        point = _risen(problem, point, problem.plain_step(point, layers))
    return problem.refined(point.q), len(sets)


def _risen(problem: Any, old: Any, new: Any) -> Any:
    """Return the point after the longest part of a step that does not lower the objective, for each observation."""

    def at(share: Any) -> Any:
        return problem.evaluate(new if np.all(share == 1) else problem.shorter(old.q, new, share), known=old)

    def accepted(point: Any, share: Any) -> Any:
        return (point.objective >= old.objective - old.rounding)[:, None]

    point, _, found = longest_step(at, accepted, np.ones((len(old.objective), 1)), SET_HALVINGS)
    return point if found.all() else problem.evaluate(point.q.where(found[:, 0], old.q), known=old)


def plain_retreats(problem: Any, point: Any) -> Iterator[Any]:
    """Yield the plain step of all latents, halves of it if they are Gaussian, and then none.

    For Gaussian rows the whole of it cannot lower the objective; for others some part of it does not, since it is a
    natural gradient step (docs/regression.md).
    """
    if not problem.gaussian:
        yield step_sets(problem, point, "red-black")[0]
        yield point.q
        return
    plain, everywhere = problem.plain_step(point), np.ones((len(point.objective), 1))
    for halvings in range(PLAIN_HALVINGS):
        yield problem.shorter(point.q, plain, 0.5**halvings * everywhere) if halvings else plain
    yield point.q
