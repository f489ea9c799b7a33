"""The problem of a model whose latents are not all Gaussian: layer by layer, each with factors of its own family."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from forestmix.arrays import Array, inner
from forestmix.errors import ArgumentError
from forestmix.latents import Factors, GaussianFactors
from forestmix.model import DEF, Observations
from forestmix.partition import Partition
from forestmix.problem import latent_curvature
from forestmix.problem.base import Acceleration, Problem, out_of_range
from forestmix.problem.given import as_layers
from forestmix.problem.interfaces import GaussianRows, LayeredFactors, Stack
from forestmix.problem.objective import ROUNDING_UNITS
from forestmix.problem.schedules import sets_of_layers
from forestmix.problem.updates import part_way
from forestmix.weights.layered import slices_of

#: How many times further than its distance from the prior's centre a latent may have to go.
REACH = 10.0
#: A precision that leaves a latent where it is.
CERTAIN = 1e200


@dataclass(frozen=True)
class LatentPoint:
    """Factors with the bound at them: ``objective`` and ``rounding`` of each observation, (N,)."""

    q: LayeredFactors
    objective: Array
    rounding: Array
    carried: ClassVar[bool] = False

    def take(self, keep: Array) -> LatentPoint:
        """Return the point of the chosen observations."""
        return LatentPoint(self.q.take(keep), self.objective[keep], self.rounding[keep])


class LatentProblem(Problem):
    """Maximise the bound of a stack of interfaces over the factors of all layers."""

    gaussian: ClassVar[bool] = False

    def __init__(self, model: DEF, data: Observations, objective: str) -> None:
        self.model, self.data = model, data
        self.stack = Stack(model, data, objective)

    @property
    def objective_name(self) -> str:
        """The bound that is climbed; "fm" as soon as one interface needs it."""
        return self.stack.objective_name

    def default_start(self) -> LayeredFactors:
        """Return q at the prior."""
        return self.stack.prior_start()

    def start(self, init: Any) -> LayeredFactors:
        """Return a start that the user gave, checked."""
        layers = as_layers("init", init, self.model, self.n_observations)
        return self.stack.with_auxiliary(tuple(q.expanded(self.n_observations) for q in layers), solve=True)

    def split(self, q: LayeredFactors) -> tuple[Factors, ...]:
        """Return the factors of each latent layer."""
        return q.layers

    def take(self, keep: Array) -> LatentProblem:
        """Return the problem of the chosen observations."""
        chosen = copy(self)
        chosen.data, chosen.stack = self.data.take(keep), self.stack.take(keep)
        return chosen

    @property
    def climbed(self) -> str:
        """The bound whose value the objective is: "elbo", or "grouped" for one between the two."""
        return "elbo" if self.objective_name == "elbo" else "grouped"

    def evaluate(self, q: LayeredFactors, known: LatentPoint | None = None) -> LatentPoint:
        """Return the objective at q; nothing that is known at another point helps."""
        value, size = self.stack.bound(q)
        unit = ROUNDING_UNITS * float(np.finfo(self.model.dtype).eps)
        return LatentPoint(q, value, unit * (size + self.size))

    @property
    def acceleration(self) -> Acceleration:
        """Newton's steps in the means, where there is curvature for them."""
        return Acceleration.TILTED if self.has_curvature else Acceleration.NONE

    @cached_property
    def has_curvature(self) -> bool:
        """Whether there is one latent layer, under Gaussian rows, and the ELBO is climbed."""
        lowest = self.stack.interfaces[0]
        return self.stack.depth == 1 and isinstance(lowest, GaussianRows) and lowest.objective == "elbo"

    def distance(self, point: LatentPoint, *, exactly: bool) -> Array:
        """Return how far the optimum is by Newton's equations, in posterior standard deviations, (N,).

        It is ``(g^T C^-1 g)^(1/2)``, g the slope in the means and C its curvature, with that of a Gaussian prior added
        which is as wide as the latent may have to go: priors with straight tails do not say where to stop. Half its
        square is the nats that are missing. Where a model has no such curvature it is 0; at a
        saddle it is infinite.
        """
        if not self.has_curvature:
            return np.zeros(len(point.objective))
        rows, q, above = self.stack.interfaces[0], point.q.layers[0], self.stack.above(point.q, 0)
        zero = np.zeros_like(above.eta)
        start = rows.kind.tilted(above.family, above.eta, zero, zero)
        far = start.sd + np.abs(q.mean - start.mean) if q.straight_tails else start.sd
        slope = latent_curvature.gradient(rows, rows.slope(self.stack.seen(point.q, 0), q), q, above)
        with np.errstate(divide="ignore", over="ignore"):
            added = np.minimum((REACH * far) ** -2.0, CERTAIN) * (not q.several_optima)
        step, _ = latent_curvature.solve(rows, slope, q.sd, added, forcing=0.0)
        maximum: Array = np.all(np.isfinite(step), axis=1)
        return np.where(maximum, np.sqrt(np.maximum(inner(slope, np.where(maximum[:, None], step, 0.0)), 0.0)), np.inf)

    def gradient_rounding(self, point: LatentPoint) -> Array:
        """Return what rounding leaves of ``gradient_norm``, (N,): of the means themselves, and of the rows' slopes."""
        unit = float(np.finfo(self.model.dtype).eps)
        least = np.full(len(point.objective), ROUNDING_UNITS * unit)
        if not self.has_curvature:
            return least
        rows, q = self.stack.interfaces[0], point.q.layers[0]
        slope = rows.absolute.adjoint(rows.kappa * self.stack.row_sizes(point.q)).astype(np.float64)
        own = np.divide(np.abs(q.mean) + np.abs(getattr(q, "location", 0.0)), q.sd, out=0 * slope, where=q.sd > 0)
        moves = own + q.sd * slope
        return np.maximum(least, unit * np.sqrt(inner(moves, moves) / self.size))

    def gradient_norm(self, point: LatentPoint) -> Array:
        """Return how far each latent would still move by itself, in its standard deviations: root mean squares, (N,).

        A factor that is all but certain is measured by what it would become; counts that are certain of different
        values are very far apart. For Gaussian latents the relative error of the variance counts too, as in a model
        with one layer.
        """
        squares = np.zeros(len(point.objective))
        for k, q in enumerate(point.q.layers):
            goal = self.stack.target(point.q, k)
            sd = np.maximum(q.sd, np.maximum(goal.sd, np.finfo(np.float64).eps if q.discrete else 0.0))
            move = np.divide(goal.mean - q.mean, sd, out=np.zeros(q.mean.shape), where=sd > 0)
            squares += np.sum(move**2, axis=1)
            if isinstance(q, GaussianFactors):
                ratio = np.broadcast_to((q.sd / goal.sd) ** 2 - 1, q.mean.shape)
                squares = np.maximum(squares, np.sum(ratio**2, axis=1))
        return np.sqrt(squares / self.size)

    def check_range(self, start: LatentPoint) -> None:
        """Raise where the bound is beyond the range of numbers."""
        squares = self.model.layers[0].family.curvature_is_constant
        if not (np.isfinite(start.objective) if squares else ~np.isnan(start.objective)).all():
            raise out_of_range(self.model)

    def sets(self, schedule: str) -> list[list[int]]:
        """Return the sets of layers that share no rows."""
        return sets_of_layers(schedule, self.stack.depth)

    def plain_step(self, point: LatentPoint, members: list[int]) -> LayeredFactors:
        """Return the factors after a parallel step of some layers, each from the same point: they share no rows."""
        q = point.q
        for layer in members:
            q = q.replace(layer, self.stack.step(point.q, layer))
        return q

    def refined(self, q: LayeredFactors) -> LayeredFactors:
        """Return the factors with better auxiliary parameters of every row."""
        return self.stack.improve(q)

    def shorter(self, old: LayeredFactors, new: LayeredFactors, share: Array) -> LayeredFactors:
        """Return Gaussian layers part of the way, with the auxiliary parameters of the start, and others unmoved."""
        layers = [
            part_way(before, after, share) if isinstance(before, GaussianFactors) else before
            for before, after in zip(old.layers, new.layers, strict=True)
        ]
        return LayeredFactors(tuple(layers), old.auxiliary)

    def sweep(self, point: LatentPoint, groups: Partition, *, surrogate: bool) -> LayeredFactors:
        """Return the factors after every latent was set to its exact optimum in turn, layer after layer upwards."""
        if surrogate or np.any(groups.sizes != 1):
            raise ArgumentError("groups must be None, and blocks single latents, for latents that are not Gaussian.")
        q, stack = point.q, self.stack
        for layer, part in enumerate(slices_of(self.model.latent_sizes)):
            order = groups.members[(groups.members >= part.start) & (groups.members < part.stop)] - part.start
            rows, parents, above = stack.seen(q, layer), q.layers[layer], stack.above(q, layer)
            q = q.replace(layer, stack.interfaces[layer].sweep(rows, parents, above, order))
        return q
