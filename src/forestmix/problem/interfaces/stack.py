"""All interfaces of a deep model together: the bound at any factors, and what each layer has above and below it."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from forestmix.arrays import Array, total
from forestmix.latents import LATENTS, Batch, Factors, GaussianFactors, SpikeSlabFactors
from forestmix.model import DEF, Observations
from forestmix.problem.interfaces.base import Above
from forestmix.problem.interfaces.choose import make_interfaces
from forestmix.problem.interfaces.count_parents import CountParents
from forestmix.problem.interfaces.exact import ExactCounts
from forestmix.problem.interfaces.solver import FULL

#: The largest standard deviation to start with, relative to the root of the largest number.
WIDEST = 1e-4


@dataclass(frozen=True)
class LayeredFactors:
    """The factors of every latent layer, the lowest first, and the auxiliary parameters of the rows below each."""

    layers: tuple[Factors, ...]
    auxiliary: tuple[Batch | None, ...]

    @cached_property
    def mean(self) -> Array:
        """The means of all layers, stacked."""
        return np.concatenate([q.mean for q in self.layers], axis=1)

    @cached_property
    def sd(self) -> Array:
        """The standard deviations of all layers, stacked."""
        return np.concatenate([np.broadcast_to(q.sd, q.mean.shape) for q in self.layers], axis=1)

    def take(self, keep: Array) -> LayeredFactors:
        """Return the factors of the chosen observations."""
        return self._map(lambda part: part.take(keep))

    def expanded(self, count: int) -> LayeredFactors:
        """Return factors with a row of its own for each of ``count`` observations."""
        return self._map(lambda part: part.expanded(count))

    def where(self, which: Array, other: LayeredFactors) -> LayeredFactors:
        """Return these factors for the observations marked in ``which``, the other ones elsewhere."""
        return self._join(other, lambda mine, its: mine.where(which, its))

    def with_rows(self, rows: Array, other: LayeredFactors) -> LayeredFactors:
        """Return these factors with ``other`` in place of the observations ``rows``; writes into their arrays."""
        return self._join(other, lambda mine, its: mine.with_rows(rows, its))

    def replace(self, layer: int, q: Factors) -> LayeredFactors:
        """Return the factors with one layer changed."""
        return LayeredFactors((*self.layers[:layer], q, *self.layers[layer + 1 :]), self.auxiliary)

    def _map(self, function: Callable[[Any], Any]) -> LayeredFactors:
        parts = [None if part is None else function(part) for part in self.auxiliary]
        return LayeredFactors(tuple(map(function, self.layers)), tuple(parts))

    def _join(self, other: LayeredFactors, function: Callable[[Any, Any], Any]) -> LayeredFactors:
        layers = tuple(function(mine, its) for mine, its in zip(self.layers, other.layers, strict=True))
        pairs = zip(self.auxiliary, other.auxiliary, strict=True)
        return LayeredFactors(layers, tuple(None if mine is None else function(mine, its) for mine, its in pairs))


class Stack:
    """The interfaces of a model and its data."""

    def __init__(self, model: DEF, data: Observations, objective: str) -> None:
        self.model, self.data = model, data
        self.interfaces: Any = make_interfaces(model, data, objective)

    def take(self, keep: Array) -> Stack:
        """Return the stack of the chosen observations."""
        chosen = copy(self)
        chosen.data = self.data.take(keep)
        chosen.interfaces = [interface.take(keep) for interface in self.interfaces]
        return chosen

    @property
    def depth(self) -> int:
        """Number of latent layers."""
        return len(self.interfaces)

    @property
    def objective_name(self) -> str:
        """The bound: "elbo" if every interface has it, else "fm"."""
        exact = [getattr(interface, "objective", "elbo") == "elbo" for interface in self.interfaces]
        counts = [isinstance(interface, CountParents) for interface in self.interfaces]
        return "elbo" if all(exact) and not any(counts) else "fm"

    @property
    def has_count_parents(self) -> bool:
        """Whether an interface has parents that are counts under rows that are not Gaussian."""
        return any(isinstance(interface, CountParents | ExactCounts) for interface in self.interfaces)

    def prior_start(self) -> LayeredFactors:
        """Return q at the prior, each layer at what its parents' means give.

        A prior so wide that the squares of its values would overflow is cut down to what is left, by a precision that
        others do not feel.
        """
        least = WIDEST**-2 / float(np.finfo(self.model.dtype).max)
        count = len(self.data.x)
        top = np.broadcast_to(self.model.prior.bias, (count, self.model.latent_sizes[-1])).astype(np.float64)
        layers: list[Factors] = []
        eta, families = top, self.model.latent_families
        for k in range(self.depth - 1, -1, -1):
            start = LATENTS[type(families[k])].tilted(families[k], eta, np.full_like(eta, least), np.zeros_like(eta))
            layers.insert(0, start.expanded(count))
            eta = self.interfaces[k].eta(layers[0])
        return self.with_auxiliary(tuple(layers))

    def with_auxiliary(self, layers: tuple[Factors, ...], solve: bool = False) -> LayeredFactors:
        """Return factors with auxiliary parameters of their own: safe ones, or the best."""
        parts: list[Any] = [interface.start(q) for interface, q in zip(self.interfaces, layers, strict=True)]
        if solve:
            for k, interface in enumerate(self.interfaces):
                if isinstance(interface, CountParents):
                    parts[k] = interface.improve(layers[k], parts[k], FULL)
        return LayeredFactors(layers, tuple(parts))

    def seen(self, q: LayeredFactors, layer: int) -> Array:
        """Return what the rows below a latent layer have seen of themselves: x, or the means of q."""
        return self.data.x.astype(np.float64, copy=False) if layer == 0 else q.layers[layer - 1].mean

    def above(self, q: LayeredFactors, layer: int) -> Above:
        """Return the family of a latent layer and the mean of its natural parameter."""
        family = self.model.latent_families[layer]
        if layer == self.depth - 1:
            bias = np.broadcast_to(self.model.prior.bias, (1, self.model.latent_sizes[-1]))
            return Above(family, bias.astype(np.float64))
        return Above(family, self.interfaces[layer + 1].eta(q.layers[layer + 1]))

    def step(self, q: LayeredFactors, layer: int) -> Factors:
        """Return a latent layer after a parallel step."""
        interface = self.interfaces[layer]
        return interface.step(self.seen(q, layer), q.layers[layer], q.auxiliary[layer], self.above(q, layer))

    def target(self, q: LayeredFactors, layer: int) -> Factors:
        """Return the factors that each variable of a latent layer would take by itself."""
        interface = self.interfaces[layer]
        return interface.target(self.seen(q, layer), q.layers[layer], q.auxiliary[layer], self.above(q, layer))

    def improve(self, q: LayeredFactors) -> LayeredFactors:
        """Return the factors with better auxiliary parameters."""
        parts = zip(self.interfaces, q.layers, q.auxiliary, strict=True)
        return LayeredFactors(q.layers, tuple(interface.improve(layer, own) for interface, layer, own in parts))

    def bound(self, q: LayeredFactors) -> tuple[Array, Array]:
        """Return the bound of each observation, and the size of the terms that it sums, (N,) each."""
        bottom = self.interfaces[0]
        eta = bottom.eta(q.layers[0])
        terms = bottom.layer.family.expectations(self.data.x, eta, np.zeros(()))
        rows = bottom.masked(terms.log_likelihood)
        value, size = total(rows), total(np.abs(rows))
        # What rounding leaves of eta counts with the slope of the likelihood, however small eta itself may be.
        size = size + total(bottom.masked(np.abs(terms.error)) * self.row_sizes(q))
        for k, (interface, layer) in enumerate(zip(self.interfaces, q.layers, strict=True)):
            above = self.above(q, k)
            divergence = layer.relative_entropy(above.family, above.eta)
            excess = interface.total_excess(layer, q.auxiliary[k])
            value = value - total(divergence) - excess
            size = size + total(np.abs(divergence)) + np.abs(excess) + total(_cancelling(layer, above))
        return value, size

    def row_sizes(self, q: LayeredFactors) -> Array:
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
        return np.sqrt(self.interfaces[0].squared.forward(np.full((1, m), 1 / m)).astype(np.float64))


def _cancelling(q: Factors, above: Above) -> Array:
    """Return the size of what cancels in a divergence, besides its own: that of a normal mean's distance."""
    if isinstance(q, GaussianFactors | SpikeSlabFactors):
        mean = q.mean if isinstance(q, GaussianFactors) else q.slab_mean
        share = 1.0 if isinstance(q, GaussianFactors) else q.inclusion
        sizes = (np.abs(mean) + np.abs(above.eta)) / above.family.sd
        return share * np.abs(mean - above.eta) / above.family.sd * sizes
    return np.abs(above.eta * q.mean)
