"""The problem of a model whose latents are not all Gaussian: layer by layer, each with factors of its own family."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from forestmix.arrays import Array
from forestmix.inference.problem import ROUNDING_UNITS, out_of_range
from forestmix.interfaces import LayeredFactors, Stack
from forestmix.latents import Factors, GaussianFactors
from forestmix.model import DEF, Observations
from forestmix.posterior import as_layers


@dataclass(frozen=True)
class LatentPoint:
    """Factors with the bound at them: ``objective`` and ``rounding`` of each observation, (N,)."""

    q: LayeredFactors
    objective: Array
    rounding: Array
    tracked: ClassVar[bool] = False

    def take(self, keep: Array) -> LatentPoint:
        """Return the point of the chosen observations."""
        return LatentPoint(self.q.take(keep), self.objective[keep], self.rounding[keep])


class LatentProblem:
    """Maximise the bound of a stack of interfaces over the factors of all layers."""

    curvature_is_constant = False
    on_device = False

    def __init__(self, model: DEF, data: Observations, objective: str) -> None:
        self.model, self.data = model, data
        self.stack = Stack(model, data, objective)

    @property
    def size(self) -> int:
        """Number of latents in all layers."""
        return self.model.n_latent

    @property
    def n_observations(self) -> int:
        """Number of observations in the batch, N."""
        return len(self.stack.data.x)

    @property
    def single(self) -> bool:
        """Whether the caller gave one observation without a leading axis."""
        return self.data.single

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
        chosen.stack = self.stack.take(keep)
        return chosen

    @property
    def climbed(self) -> str:
        """The bound whose value the objective is: "elbo", or "grouped" for one between the two."""
        return "elbo" if self.objective_name == "elbo" else "grouped"

    def evaluate(
        self, q: LayeredFactors, eta: None = None, gradient: None = None, known: LatentPoint | None = None
    ) -> LatentPoint:
        """Return the objective at q; nothing that is known helps."""
        value, size = self.stack.bound(q)
        unit = ROUNDING_UNITS * float(np.finfo(self.model.dtype).eps)
        return LatentPoint(q, value, unit * (size + self.size))

    def gradient_norm(self, point: LatentPoint) -> Array:
        """Return how far each latent would still move by itself, in its standard deviations: root mean squares, (N,).

        For Gaussian latents the relative error of the variance counts too, as in a model with one layer.
        """
        squares = np.zeros(len(point.objective))
        for k, q in enumerate(point.q.layers):
            goal = self.stack.target(point.q, k)
            move = np.divide(goal.mean - q.mean, q.sd, out=np.zeros(q.mean.shape), where=q.sd > 0)
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

    def gradient_rounding(self, point: LatentPoint) -> Array:
        """Return what rounding leaves of ``gradient_norm``, (N,)."""
        return np.full(len(point.objective), ROUNDING_UNITS * float(np.finfo(self.model.dtype).eps))

    def distance_bound(self, point: LatentPoint) -> Array:
        """Return 0: these bounds have several optima, and no bound is known on the way to the next."""
        return np.zeros(len(point.objective))
