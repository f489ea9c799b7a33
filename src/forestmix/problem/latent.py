"""The problem of a model whose latents are not all Gaussian: layer by layer, each with factors of its own family.

Where two layers meet, an interface (``problem.interfaces``) knows what the rows below tell their parents above.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from forestmix.arrays import Array, inner, total
from forestmix.errors import ArgumentError
from forestmix.latents import LATENTS, Factors, GaussianFactors, SpikeSlabFactors
from forestmix.model import DEF, Observations
from forestmix.partition import Partition
from forestmix.problem.base import ROUNDING_UNITS, Acceleration, Problem, out_of_range
from forestmix.problem.given import as_layers
from forestmix.problem.interfaces.base import Above
from forestmix.problem.interfaces.choose import make_interfaces
from forestmix.problem.points import LatentPoint, LayeredFactors
from forestmix.problem.updates import part_way
from forestmix.weights.layered import slices_of

#: How many times further than its distance from the prior's centre a latent may have to go.
REACH = 10.0
#: A precision that leaves a latent where it is.
CERTAIN = 1e200
#: The largest standard deviation to start with, relative to the root of the largest number.
WIDEST = 1e-4


class LatentProblem(Problem):
    """Maximise the bound of all layers over their factors; ``objective`` is that of ``make_interfaces``."""

    gaussian: ClassVar[bool] = False

    def __init__(self, model: DEF, data: Observations, objective: str) -> None:
        self.model, self.data = model, data
        self.interfaces: Any = make_interfaces(model, data, objective)
        exact = all(interface.objective == "elbo" for interface in self.interfaces)
        self.objective_name, self.climbed = ("elbo", "elbo") if exact else ("fm", "grouped")
        tilted = exact and len(self.interfaces) == 1 and self.interfaces[0].quadratic
        self.acceleration = Acceleration.TILTED if tilted else Acceleration.NONE

    def take(self, keep: Array) -> LatentProblem:
        """Return the problem of the chosen observations."""
        chosen = copy(self)
        chosen.data, chosen.interfaces = self.data.take(keep), [interface.take(keep) for interface in self.interfaces]
        return chosen

    def start(self, init: Any, name: str = "init") -> LayeredFactors:
        """Return factors that the user gave, checked, with the best auxiliary parameters."""
        return self._with_auxiliary(as_layers(name, init, self.model, self.n_observations), best=True)

    def default_start(self) -> LayeredFactors:
        """Return q at the prior, each layer at what its parents' means give.

        A prior so wide that the squares of its values would overflow is cut down to what is left, by a precision that
        others do not feel.
        """
        least = WIDEST**-2 / float(np.finfo(self.model.dtype).max)
        count = self.n_observations
        layers: list[Factors] = []
        eta = np.broadcast_to(self.model.prior.bias, (count, self.model.latent_sizes[-1])).astype(np.float64)
        for family, interface in zip(self.model.latent_families[::-1], self.interfaces[::-1], strict=True):
            start = LATENTS[type(family)].tilted(family, eta, np.full_like(eta, least), np.zeros_like(eta))
            layers.insert(0, start)
            eta = interface.eta(start)
        return self._with_auxiliary(layers, best=False)

    def _with_auxiliary(self, layers: Sequence[Factors], *, best: bool) -> LayeredFactors:
        """Return factors with a row for each observation, and auxiliary parameters to start with."""
        wide = tuple(q.expanded(self.n_observations) for q in layers)
        parts = zip(self.interfaces, wide, strict=True)
        return LayeredFactors(wide, tuple(interface.start(layer, best=best) for interface, layer in parts))

    def split(self, q: LayeredFactors) -> tuple[Factors, ...]:
        """Return the factors of each latent layer."""
        return q.layers

    def seen(self, q: LayeredFactors, layer: int) -> Array:
        """Return what the rows below a latent layer have seen of themselves: x, or the means of q."""
        return self.data.x.astype(np.float64, copy=False) if layer == 0 else q.layers[layer - 1].mean

    def above(self, q: LayeredFactors, layer: int) -> Above:
        """Return the family of a latent layer and the mean of its natural parameter."""
        family = self.model.latent_families[layer]
        if layer == len(self.interfaces) - 1:
            bias = np.broadcast_to(self.model.prior.bias, (1, self.model.latent_sizes[-1]))
            return Above(family, bias.astype(np.float64))
        return Above(family, self.interfaces[layer + 1].eta(q.layers[layer + 1]))

    def _around(self, q: LayeredFactors, layer: int) -> tuple[Array, Factors, Any, Above]:
        """Return what an interface is given: rows, parents, their auxiliary parameters, and what they have above."""
        return self.seen(q, layer), q.layers[layer], q.auxiliary[layer], self.above(q, layer)

    def evaluate(self, q: LayeredFactors, known: LatentPoint | None = None) -> LatentPoint:
        """Return the bound of each observation (paper, appendix C); nothing known at another point helps."""
        bottom = self.interfaces[0]
        terms = bottom.layer.family.expectations(self.data.x, bottom.eta(q.layers[0]), np.zeros(()))
        rows = bottom.masked(terms.log_likelihood)
        # What rounding leaves of eta counts with the slope of the likelihood, however small eta itself may be.
        value, size = total(rows), total(np.abs(rows)) + total(bottom.masked(np.abs(terms.error)) * self._row_sizes(q))
        for k, (interface, layer) in enumerate(zip(self.interfaces, q.layers, strict=True)):
            above = self.above(q, k)
            divergence = layer.relative_entropy(above.family, above.eta)
            excess = interface.total_excess(layer, q.auxiliary[k])
            value = value - total(divergence) - excess
            size = size + total(np.abs(divergence)) + np.abs(excess) + total(_cancelling(layer, above))
        unit = ROUNDING_UNITS * float(np.finfo(self.model.dtype).eps)
        return LatentPoint(q, value, unit * (size + self.size))

    def _row_sizes(self, q: LayeredFactors) -> Array:
        """Return the size of what each ``x_i - eta_i`` is made of, (N, n): weights times means, in root mean squares.

        The mean of a Laplace factor is the sum of its location and its distance from it, either of which may be large.
        """
        parents, bottom = q.layers[0], self.interfaces[0]
        means = np.hypot(parents.mean, getattr(parents, "location", 0.0))
        terms = self._typical_weight * np.sqrt(np.sum(means**2, axis=1, keepdims=True))
        return terms + np.abs(bottom.eta(parents)) + np.abs(self.data.x) + np.abs(bottom.layer.bias)

    @cached_property
    def _typical_weight(self) -> Array:
        """The root mean square of each row of W, (1, n)."""
        m = self.model.latent_sizes[0]
        return np.sqrt(self.interfaces[0].layer.weights.square().forward(np.full((1, m), 1 / m)).astype(np.float64))

    def distance(self, point: LatentPoint, *, exactly: bool) -> Array:
        """Return how far the optimum is by Newton's equations, in posterior standard deviations, (N,).

        It is ``(g^T C^-1 g)^(1/2)``, g the slope in the means and C its curvature, with that of a Gaussian prior added
        which is as wide as the latent may have to go: priors with straight tails do not say where to stop. Half its
        square is the nats that are missing. Where a model has no such curvature it is 0; at a
        saddle it is infinite.
        """
        if self.acceleration is Acceleration.NONE:
            return np.zeros(len(point.objective))
        rows, q, above = self.interfaces[0], point.q.layers[0], self.above(point.q, 0)
        zero = np.zeros_like(above.eta)
        start = rows.kind.tilted(above.family, above.eta, zero, zero)
        far = start.sd + np.abs(q.mean - start.mean) if q.straight_tails else start.sd
        slope = rows.gradient(rows.slope(self.seen(point.q, 0), q), q, above)
        with np.errstate(divide="ignore", over="ignore"):
            added = np.minimum((REACH * far) ** -2.0, CERTAIN) * (not q.several_optima)
        step, _ = rows.solve(slope, q.sd, added, forcing=0.0)
        maximum: Array = np.all(np.isfinite(step), axis=1)
        return np.where(maximum, np.sqrt(np.maximum(inner(slope, np.where(maximum[:, None], step, 0.0)), 0.0)), np.inf)

    def gradient_rounding(self, point: LatentPoint) -> Array:
        """Return what rounding leaves of ``gradient_norm``, (N,): of the means themselves, and of the rows' slopes."""
        unit = float(np.finfo(self.model.dtype).eps)
        least = np.full(len(point.objective), ROUNDING_UNITS * unit)
        if self.acceleration is Acceleration.NONE:
            return least
        rows, q = self.interfaces[0], point.q.layers[0]
        slope = abs(rows.layer.weights).adjoint(rows.kappa * self._row_sizes(point.q)).astype(np.float64)
        own = np.divide(np.abs(q.mean) + np.abs(getattr(q, "location", 0.0)), q.sd, out=0 * slope, where=q.sd > 0)
        moves = own + q.sd * slope
        return np.maximum(least, unit * np.sqrt(inner(moves, moves) / self.size))

    def gradient_norm(self, point: LatentPoint) -> Array:
        """Return how far each latent would still move by itself, in its standard deviations: root mean squares, (N,).

        A factor that is all but certain is measured by what it would become; counts that are certain of different
        values are very far apart. For Gaussian latents the relative errors of the variances count too where they are
        larger, as in a model with one layer.
        """
        moves, ratios = np.zeros((2, len(point.objective)))
        for k, q in enumerate(point.q.layers):
            goal = self.interfaces[k].target(*self._around(point.q, k))
            sd = np.maximum(q.sd, np.maximum(goal.sd, np.finfo(np.float64).eps if q.discrete else 0.0))
            move = np.divide(goal.mean - q.mean, sd, out=np.zeros(q.mean.shape), where=sd > 0)
            moves += np.sum(move**2, axis=1)
            if isinstance(q, GaussianFactors):
                ratios += np.sum(np.broadcast_to((q.sd / goal.sd) ** 2 - 1, q.mean.shape) ** 2, axis=1)
        return np.sqrt(np.maximum(moves, ratios) / self.size)

    def check_range(self, start: LatentPoint) -> None:
        """Raise where the bound is beyond the range of numbers."""
        squares = self.model.layers[0].family.curvature_is_constant
        if not (np.isfinite(start.objective) if squares else ~np.isnan(start.objective)).all():
            raise out_of_range(self.model)

    def plain_step(self, point: LatentPoint, layers: list[int]) -> LayeredFactors:
        """Return the factors after a parallel step of some layers, each from the same point: they share no rows."""
        q = point.q
        for layer in layers:
            q = q.replace(layer, self.interfaces[layer].step(*self._around(point.q, layer)))
        return q

    def refined(self, q: LayeredFactors) -> LayeredFactors:
        """Return the factors with better auxiliary parameters of every row."""
        parts = zip(self.interfaces, q.layers, q.auxiliary, strict=True)
        return LayeredFactors(q.layers, tuple(interface.improve(layer, own) for interface, layer, own in parts))

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
        q = point.q
        for layer, part in enumerate(slices_of(self.model.latent_sizes)):
            order = groups.members[(groups.members >= part.start) & (groups.members < part.stop)] - part.start
            seen, parents, _, above = self._around(q, layer)
            q = q.replace(layer, self.interfaces[layer].sweep(seen, parents, above, order))
        return q


def _cancelling(q: Factors, above: Above) -> Array:
    """Return the size of what cancels in a divergence, besides its own: that of a normal mean's distance."""
    if isinstance(q, GaussianFactors | SpikeSlabFactors):
        mean = q.mean if isinstance(q, GaussianFactors) else q.slab_mean
        share = 1.0 if isinstance(q, GaussianFactors) else q.inclusion
        sizes = (np.abs(mean) + np.abs(above.eta)) / above.family.sd
        return share * np.abs(mean - above.eta) / above.family.sd * sizes
    return np.abs(above.eta * q.mean)
