"""Steps of a model whose latents are not all Gaussian: sets of layers in turn, each at once (docs/latents.md)."""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.problem.latent_problem import LatentPoint, LatentProblem
from forestmix.inference.layers import HALVINGS, sets_of_layers
from forestmix.problem.interfaces import LayeredFactors
from forestmix.latents import Factors, GaussianFactors


def step_latents(problem: LatentProblem, point: LatentPoint, schedule: str) -> LayeredFactors:
    """Update the sets of layers one after another, then the auxiliary parameters of every row."""
    for layers in sets_of_layers(schedule, problem.stack.depth):
        q = point.q
        for layer in layers:
            # Layers of a set share no rows, so each may be updated from the same point.
            q = q.replace(layer, problem.stack.step(point.q, layer))
        point = _not_lower(problem, point, problem.evaluate(q), layers)
    return problem.stack.improve(point.q)


def sweep_latents(problem: LatentProblem, point: LatentPoint, rng: np.random.Generator | None) -> LayeredFactors:
    """Update every variable to its exact optimum in turn, layer after layer from the lowest up."""
    q, stack = point.q, problem.stack
    for layer in range(stack.depth):
        size = q.layers[layer].mean.shape[1]
        order = np.arange(size) if rng is None else rng.permutation(size)
        swept = stack.interfaces[layer].sweep(stack.seen(q, layer), q.layers[layer], stack.above(q, layer), order)
        q = q.replace(layer, swept)
    return q


def _not_lower(problem: LatentProblem, old: LatentPoint, new: LatentPoint, layers: list[int]) -> LatentPoint:
    """Return the new point, with shorter Gaussian steps, or none, for the observations that it would lower."""
    fell = _fell(old, new)
    for _ in range(HALVINGS):
        if not fell.any() or not all(isinstance(old.q.layers[k], GaussianFactors) for k in layers):
            break
        q = new.q
        for k in layers:
            q = q.replace(k, _mix(old.q.layers[k], q.layers[k], 0.5).where(fell, q.layers[k]))
        new = problem.evaluate(q)
        fell = _fell(old, new)
    return problem.evaluate(old.q.where(fell, new.q)) if fell.any() else new


def _fell(old: LatentPoint, new: LatentPoint) -> Array:
    return ~(new.objective >= old.objective - old.rounding)


def _mix(old: Factors, new: Factors, share: float) -> Factors:
    precision = (1 - share) * old.sd**-2 + share * new.sd**-2
    mean = old.mean + share * (new.mean - old.mean)
    return GaussianFactors(mean, np.broadcast_to(precision**-0.5, mean.shape))
