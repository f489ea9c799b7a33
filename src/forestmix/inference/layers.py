"""Steps of a deep model: one set of layers after another, all latents of a set at once (paper, appendix C).

Layers that are not neighbours share no rows, so a set without neighbours is updated as if it were one layer.
"""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.checks import one_of
from forestmix.problem.flat_problem import FlatProblem
from forestmix.problem.gaussian import Point
from forestmix.latents import GaussianFactors

SCHEDULES = ("red-black", "bottom-up", "top-down")
#: How often a step that lowers the objective is halved before a set of layers is left as it is.
HALVINGS = 30


def check_schedule(schedule: str) -> str:
    """Return ``schedule`` if it is known."""
    return one_of("schedule", schedule, SCHEDULES)


def sets_of_layers(schedule: str, count: int) -> list[list[int]]:
    """Return the layers, 0 the lowest, that are updated at once, one set after another."""
    if schedule == "red-black":
        return [chosen for chosen in (list(range(0, count, 2)), list(range(1, count, 2))) if chosen]
    order = range(count) if schedule == "bottom-up" else range(count - 1, -1, -1)
    return [[layer] for layer in order]


def step_layers(problem: FlatProblem, point: Point, schedule: str) -> GaussianFactors:
    """Update the sets of layers one after another; rows of varying curvature may shorten a step."""
    for layers in sets_of_layers(schedule, len(problem.layers)):
        members = np.concatenate([np.arange(problem.size)[problem.layers[layer]] for layer in layers])
        point = _step_members(problem, point, members)
    return point.q


def _step_members(problem: FlatProblem, point: Point, members: Array) -> Point:
    """Update the members, each observation by the longest of the steps 1, 1/2, 1/4, ... that does not lower it."""
    curvature = problem.curvature_at(point.q.sd, point)
    step = np.zeros_like(point.q.mean)
    precision = problem.prior_precision + curvature
    step[:, members] = (point.gradient / precision)[:, members]
    goal = problem.precision(point)
    share = np.ones((len(step), 1), step.dtype)
    for _ in range(HALVINGS):
        inverse = np.broadcast_to(point.q.sd**-2, goal.shape).copy()
        wide = np.broadcast_to(share, (len(goal), 1)) if len(goal) > 1 else share.min(axis=0, keepdims=True)
        inverse[:, members] = ((1 - wide) * inverse + wide * goal)[:, members]
        new = problem.evaluate(GaussianFactors(point.q.mean + share * step, inverse**-0.5))
        fell = ~(new.objective >= point.objective - point.rounding)
        if not fell.any():
            return new
        share[fell] /= 2
    return problem.evaluate(new.q.where(~fell, point.q))
