"""What an algorithm climbs: a bound on the evidence, as a function of the factors of all latents.

There is one problem for every depth and family of latents: layers of factors, and between them interfaces
(``problem.interfaces``), each of which knows what the rows below tell their parents above. The layers of a model with
Gaussian latents are stacked (``problem.flat``), so that one interface has them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.latents import GaussianFactors
from forestmix.model import DEF, Observations
from forestmix.partition import Partition
from forestmix.problem.given import as_layers
from forestmix.problem.interfaces.base import ROUNDING_UNITS, Acceleration, Interface, Place
from forestmix.problem.points import LayeredFactors, Point, stacked
from forestmix.problem.start import placed
from forestmix.problem.updates import part_way
from forestmix.weights.layered import slices_of

SCHEDULES = ("red-black", "bottom-up", "top-down")


class Problem:
    """Maximise the bound of all layers over their factors, for each observation of a batch (paper, appendix C).

    Args:
        model: the model.
        data: the observations.
        interfaces: those between its layers, the lowest first; or a single one for all layers.
        climbed: the bound whose value the objective is: "elbo", "fm", or "grouped" for one between the two.

    """

    def __init__(self, model: DEF, data: Observations, interfaces: Sequence[Any], climbed: str) -> None:
        self.model, self.data, self.interfaces, self.climbed = model, data, list(interfaces), climbed
        #: The bound that is climbed, "elbo" or "fm".
        self.objective_name = "elbo" if all(one.objective == "elbo" for one in self.interfaces) else "fm"

    @property
    def size(self) -> int:
        """Number of latents, m, in all layers."""
        return self.model.n_latent

    @property
    def n_observations(self) -> int:
        """Number of observations in the batch, N."""
        return len(self.data.x)

    @property
    def rows(self) -> Any:
        """The lowest interface, which is the only one where steps are accelerated."""
        return self.interfaces[0]

    @property
    def gaussian(self) -> bool:
        """Whether all latents are Gaussian, so that one interface has them all."""
        return self.rows.by_engine

    @property
    def acceleration(self) -> Acceleration:
        """The accelerated steps that this problem allows."""
        return self.rows.acceleration

    def take(self, keep: Array) -> Problem:
        """Return the problem of the chosen observations."""
        chosen = copy(self)
        chosen.data, chosen.interfaces = self.data.take(keep), [interface.take(keep) for interface in self.interfaces]
        return chosen

    def start(self, init: Any, name: str = "init") -> LayeredFactors:
        """Return factors that the user gave, checked; errors call them ``name``."""
        given = as_layers(name, init, self.model, self.n_observations)
        if self.gaussian:
            q = GaussianFactors(*(stacked([getattr(one, part) for one in given]) for part in ("mean", "sd")))
            return self._started([placed(self.rows, q)], best=True)
        return self._started([one.expanded(self.n_observations) for one in given], best=True)

    def default_start(self) -> LayeredFactors:
        """Return where a run starts that is given no start: q at the prior, each layer at its parents' means."""
        layers: list[Any] = []
        eta = self._top(self.n_observations)
        for k in range(len(self.interfaces) - 1, -1, -1):
            layers.insert(0, self.interfaces[k].first(eta))
            if k:
                eta = self.interfaces[k].eta(layers[0])
        return self._started(layers, best=False)

    def _started(self, layers: Sequence[Any], *, best: bool) -> LayeredFactors:
        """Return factors with auxiliary parameters to start with."""
        parts = zip(self.interfaces, layers, strict=True)
        return LayeredFactors(tuple(layers), tuple(interface.start(layer, best=best) for interface, layer in parts))

    def split(self, q: LayeredFactors) -> tuple[Any, ...]:
        """Return the factors of each latent layer."""
        if not self.gaussian:
            return q.layers
        kind: Any = type(q.layers[0])
        return tuple(kind(q.mean[:, own], q.sd[:, own]) for own in slices_of(self.model.latent_sizes))

    def _top(self, count: int) -> Array:
        """Return the mean of the top latents' natural parameter, for so many observations."""
        prior, top = self.model.prior, self.model.latent_sizes[-1]
        return np.broadcast_to(prior.bias, (count, top)).astype(np.float64)

    def place(self, q: LayeredFactors, k: int, known: Point | None = None) -> Place:
        """Return what interface k is given: its rows, their parents, and what these have above them."""
        seen = self.data.x if k == 0 else q.layers[k - 1].mean
        is_top = k == len(self.interfaces) - 1
        eta = self._top(1) if is_top else self.interfaces[k + 1].eta(q.layers[k + 1])
        return Place(seen, q.layers[k], q.auxiliary[k], eta, None if known is None else known.rows)

    def _places(self, q: LayeredFactors, known: Point | None) -> list[tuple[Interface, Place]]:
        """Return every interface with its place."""
        return [(interface, self.place(q, k, known)) for k, interface in enumerate(self.interfaces)]

    def evaluate(self, q: LayeredFactors, known: Point | None = None) -> Point:
        """Return the point at q; what is known at another point may help."""
        found = [interface.evaluate(place) for interface, place in self._places(q, known)]
        value, size, rows = zip(*found, strict=True)
        rounding = ROUNDING_UNITS * self.rows.rounding_unit * (sum(size) + self.size)
        return Point(q, np.asarray(sum(value)), np.asarray(rounding), rows[0])

    def gradient_norm(self, point: Point) -> Array:
        """Return the relative gradient norm of each observation, (N,), as ``Stopping`` defines it.

        That is how far each latent would still move by itself, in its standard deviations, in root mean squares; or
        the relative errors of the variances of Gaussian latents, where these are larger.
        """
        found = [interface.moves(place) for interface, place in self._places(point.q, point)]
        moves, ratios = (sum(part) for part in zip(*found, strict=True))
        return np.asarray(np.sqrt(np.maximum(moves, ratios) / self.size))

    def gradient_rounding(self, point: Point) -> Array:
        """Return what rounding leaves of ``gradient_norm`` at a point, (N,)."""
        found = [interface.gradient_rounding(place) for interface, place in self._places(point.q, point)]
        return np.max(found, axis=0)

    def distance(self, point: Point, *, exactly: bool) -> Array:
        """Return how many posterior standard deviations no mean can be further from the optimum than, (N,).

        ``exactly``: by a factor of the curvature, where that is affordable. It is 0 where nothing is known of it, as
        for layers of several families.
        """
        found = [interface.distance(place, exactly=exactly) for interface, place in self._places(point.q, point)]
        return np.max(found, axis=0)

    def check_range(self, start: Point) -> None:
        """Raise where what the rows say of the latents is beyond the range of numbers: no step could be made."""
        if not self.rows.in_range(start.rows, start.objective):
            raise ArgumentError(
                "W must be such that the sums of its squares, times the rows' curvature (1 / sd^2 for Gaussian rows), "
                f"are finite in {self.model.dtype}; they overflow. Rescale W, x, b or sd, or use float64."
            )

    def plain_step(self, point: Point, layers: Sequence[int] | None = None) -> LayeredFactors:
        """Return the factors after a forest mixture step of some layers, which share no rows, or of all."""
        q = point.q
        for k, (interface, place) in enumerate(self._places(point.q, point)):
            if self.gaussian or layers is None or k in layers:
                q = q.replace(k, interface.step(place, layers))
        return q

    def refined(self, q: LayeredFactors) -> LayeredFactors:
        """Return the factors with better auxiliary parameters of every row, where these are kept."""
        parts = zip(self.interfaces, q.layers, q.auxiliary, strict=True)
        return LayeredFactors(q.layers, tuple(interface.improve(layer, own) for interface, layer, own in parts))

    def shorter(self, old: LayeredFactors, new: LayeredFactors, share: Any) -> LayeredFactors:
        """Return factors the fraction ``share`` of the way, (N, 1), with the auxiliary parameters of the start.

        Where there is nothing between they are the old ones.
        """
        layers = tuple(
            part_way(before, after, share) if isinstance(before, GaussianFactors) else before
            for before, after in zip(old.layers, new.layers, strict=True)
        )
        return LayeredFactors(layers, old.auxiliary)

    def sweep(self, point: Point, groups: Partition, *, surrogate: bool) -> LayeredFactors:
        """Return the factors after groups of latents were updated one after another, the members of each at once.

        Where layers have families of their own, every latent is set to its exact optimum, layer after layer upwards.
        """
        if not self.gaussian and (surrogate or np.any(groups.sizes != 1)):
            raise ArgumentError("groups must be None, and blocks single latents, for latents that are not Gaussian.")
        q = point.q
        for k, (interface, part) in enumerate(zip(self.interfaces, slices_of(self.model.latent_sizes), strict=False)):
            own = groups if self.gaussian else groups.within(part)
            q = q.replace(k, interface.sweep(self.place(q, k, point), own, surrogate=surrogate))
        return q


def sets_of_layers(schedule: str, count: int) -> list[list[int]]:
    """Return the layers, 0 the lowest, that are updated at once, one set after another (paper, appendix C).

    Those of a set share no rows.
    """
    if schedule == "red-black":
        return [chosen for chosen in (list(range(0, count, 2)), list(range(1, count, 2))) if chosen]
    order = range(count) if schedule == "bottom-up" else range(count - 1, -1, -1)
    return [[layer] for layer in order]
