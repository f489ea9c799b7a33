"""Where two layers of a model meet: rows below, and the latents above that are their parents (docs/deep.md).

With ``m_i = E eta_i`` the mean of a row's natural parameter, the bound of a whole model is a sum over its interfaces
(paper, appendix C)::

    sum_i log p(x_i | m_i) - sum_l [ KL(q^l || p(y^l | m^l)) + the excess of the rows below y^l ]
    excess_i = (E a(eta_i), or a bound on it) - a(m_i)

so an interface needs to know its excess, and what the rows tell each parent. What a row has seen of itself is
``E t(y_i)``: the data for the lowest layer, the moments of q for the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from enum import Enum, auto
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from forestmix.arrays import Array, total
from forestmix.errors import ArgumentError
from forestmix.latents import LATENTS, Batch, Factors, GaussianFactors, SpikeSlabFactors
from forestmix.latents.base import mapped, of_like_width
from forestmix.model import Layer, Observations
from forestmix.partition import Partition

#: How many units of rounding, relative to the size of its terms, an objective may seem to fall by.
ROUNDING_UNITS = 64
#: The largest standard deviation to start with, relative to the root of the largest number.
WIDEST = 1e-4


class Acceleration(Enum):
    """The accelerated steps that the only interface of a model allows.

    ``CONJUGATE``: the objective is quadratic in the means; ``NEWTON``: Gaussian latents under rows of varying
    curvature; ``TILTED``: latents of any family under Gaussian rows; ``NONE``: plain steps only.
    """

    CONJUGATE = auto()
    NEWTON = auto()
    TILTED = auto()
    NONE = auto()


class Place(NamedTuple):
    """What an interface is given.

    ``seen``: what its rows have seen; ``parents``: their factors, with ``auxiliary`` parameters; ``eta``: the mean of
    the parents' own natural parameter; ``known``: what an engine has found there, or elsewhere, if it has been asked.
    """

    seen: Array
    parents: Any
    auxiliary: Any
    eta: Array
    known: Any = None


class Interface(ABC):
    """The rows of a layer and their parents' factors.

    Args:
        layer: the layer of the rows.
        above: the family of the parents.
        data: the observations, where the rows are those of x, and ``None`` for latent rows.
        objective: the bound on ``E a(eta_i)``: "elbo" for itself, or "fm".

    """

    #: Whether the parents are all latents of a model with Gaussian ones, evaluated by an engine.
    by_engine: ClassVar[bool] = False
    acceleration = Acceleration.NONE

    def __init__(self, layer: Layer, above: Any, data: Observations | None, objective: str) -> None:
        self.layer, self.above, self.data, self.objective = layer, above, data, objective
        self.kind = LATENTS[type(above)]

    @property
    def observed(self) -> Array | None:
        """Which rows are there, (N, n), or ``None`` if all are."""
        return None if self.data is None else self.data.observed

    @property
    def rounding_unit(self) -> float:
        """The last place of the model's precision."""
        return float(np.finfo(self.layer.dtype).eps)

    def take(self, keep: Array) -> Self:
        """Return the interface of the chosen observations."""
        chosen = copy(self)
        chosen.layer = self.layer.take_observations(keep)
        chosen.data = None if self.data is None else self.data.take(keep)
        return chosen

    def majorant(self, kappa: Array, sd: Array) -> Array:
        """Return ``D_j = (1 / sd_j) sum_i |w_ij| s_i kappa_i``, which serves all parents at once (paper, Theorem 2)."""
        size = abs(self.layer.weights)
        return size.adjoint(kappa * size.forward(sd)).astype(np.float64) / sd

    def exact_curvature(self, kappa: Array) -> Array:
        """Return ``H_j = sum_i w_ij^2 kappa_i``, which serves one parent by itself."""
        return self.layer.weights.square().adjoint(kappa).astype(np.float64)

    def eta(self, parents: Factors) -> Array:
        """Return ``m_i``, the mean of the natural parameter of each row, (N, n); the factors remember it."""

        def row_means() -> Array:
            return self.layer.weights.forward(parents.mean).astype(np.float64) + self.layer.bias

        return parents.remembered(("eta", id(self.layer)), row_means)

    def masked(self, terms: Array) -> Array:
        """Return the terms of the rows, 0 where a row is missing."""
        return terms if self.observed is None else np.where(self.observed, terms, 0.0)

    def first(self, eta: Array) -> Any:
        """Return the parents to start with: those of the prior, whose natural parameter is eta.

        One so wide that the squares of its values would overflow is cut down to what is left, by a precision that
        others do not feel.
        """
        least = WIDEST**-2 / float(np.finfo(self.layer.dtype).max)
        return self.kind.tilted(self.above, eta, np.full_like(eta, least), np.zeros_like(eta))

    def start(self, parents: Any, *, best: bool = False) -> Batch | None:
        """Return auxiliary parameters to start with, safe ones or the best; ``None`` where there are none to keep."""
        return None

    def improve(self, parents: Any, auxiliary: Any) -> Any:
        """Return auxiliary parameters that are better for every row, or the same."""
        return auxiliary

    @abstractmethod
    def excess(self, parents: Any, auxiliary: Any) -> Array:
        """Return the excess of every row, (N, n); 0 for a missing one."""

    def total_excess(self, parents: Any, auxiliary: Any) -> Array:
        """Return the sum of the excesses of each observation, (N,)."""
        return total(self.excess(parents, auxiliary))

    def gap(self, place: Place, other: Interface, at_other: Place) -> Array:
        """Return by how much more the rows lose here than at another bound, (N, n)."""
        return self.excess(place.parents, place.auxiliary) - other.excess(at_other.parents, at_other.auxiliary)

    def evaluate(self, place: Place) -> tuple[Array, Array, Any]:
        """Return this part of the bound, the size of its terms, (N,) each, and what an engine has found there.

        What is known at another place may help.
        """
        parents = place.parents
        divergence = parents.relative_entropy(self.above, place.eta)
        excess = self.total_excess(parents, place.auxiliary)
        value, size = -total(divergence) - excess, total(np.abs(divergence)) + np.abs(excess)
        size = size + total(_cancelling(parents, self.above, place.eta))
        if self.data is None:
            return value, size, None
        terms = self.layer.family.expectations(self.data.x, self.eta(parents), np.zeros(()))
        rows, error = self.masked(terms.log_likelihood), self.masked(np.abs(terms.error))
        # What rounding leaves of eta counts with the slope of the likelihood, however small eta itself may be.
        return total(rows) + value, size + total(np.abs(rows)) + total(error * self.row_sizes(parents)), None

    def row_sizes(self, parents: Factors) -> Array:
        """Return the size of what each ``x_i - eta_i`` is made of, (N, n): weights times means, in root mean squares.

        The mean of a Laplace factor is the sum of its location and its distance from it, either of which may be large.
        """
        assert self.data is not None
        means = np.hypot(parents.mean, getattr(parents, "location", 0.0))
        terms = self._typical_weight * np.sqrt(np.sum(means**2, axis=1, keepdims=True))
        return terms + np.abs(self.eta(parents)) + np.abs(self.data.x) + np.abs(self.layer.bias)

    @cached_property
    def _typical_weight(self) -> Array:
        """The root mean square of each row of W, (1, n)."""
        m = self.layer.n_parents
        return np.sqrt(self.layer.weights.square().forward(np.full((1, m), 1 / m)).astype(np.float64))

    @abstractmethod
    def target(self, place: Place) -> Factors:
        """Return the factors that each parent would take by itself, the others held."""

    def step(self, place: Place, layers: Sequence[int] | None = None) -> Any:
        """Return the parents after a parallel step that is made not to lower the bound.

        That is the target itself where the parents are apart in the bound, so that all may go there at once. ``layers``
        are those of them to update, ``None`` for all.
        """
        return self.target(place)

    def sweep(self, place: Place, groups: Partition, *, surrogate: bool) -> Any:
        """Return the parents after the groups were updated one after another, the members of each at once."""
        raise ArgumentError(
            f"Coordinate ascent is not available for {type(self.above).__name__} latents under "
            f"{self.layer.family!r} rows in a model that also has latents of other families. Use algorithm='fm'."
        )

    def moves(self, place: Place) -> tuple[Array, Array]:
        """Return how far the parents would still move, each by itself, in their standard deviations, squared: (N,).

        And the relative errors of the variances of Gaussian ones, squared. A factor that is all but certain is measured
        by what it would become; counts that are certain of different values are very far apart.
        """
        q, goal = place.parents, self.target(place)
        sd = np.maximum(q.sd, np.maximum(goal.sd, np.finfo(np.float64).eps if q.discrete else 0.0))
        move = np.divide(goal.mean - q.mean, sd, out=np.zeros(q.mean.shape), where=sd > 0)
        ratio = (q.sd / goal.sd) ** 2 - 1 if isinstance(q, GaussianFactors) else np.zeros((1, 1))
        return np.sum(move**2, axis=1), np.sum(np.broadcast_to(ratio**2, q.mean.shape), axis=1)

    def gradient_rounding(self, place: Place) -> Array:
        """Return what rounding leaves of the relative gradient norm, (N,)."""
        return np.full(len(place.parents.mean), ROUNDING_UNITS * self.rounding_unit)

    def distance(self, place: Place, *, exactly: bool) -> Array:
        """Return how many posterior standard deviations a mean may be from the optimum, (N,); 0 where nobody knows.

        ``exactly``: by a factor of the curvature, where that is affordable.
        """
        return np.zeros(len(place.parents.mean))

    def in_range(self, known: Any, objective: Array) -> bool:
        """Return whether what the rows say of their parents at the start is within the range of numbers."""
        constant = self.layer.family.curvature_is_constant
        return bool((np.isfinite(objective) if constant else ~np.isnan(objective)).all())


def with_columns(factors: Factors, members: Array, other: Factors) -> Factors:
    """Return the factors with those of ``other``, one for each of ``members``, in their place."""

    def put(mine: Array, its: Array) -> Array:
        mine, its = of_like_width(mine, its)
        array = np.array(mine)
        array[:, members] = its
        return array

    return mapped(put, factors, other)


def _cancelling(q: Factors, above: Any, eta: Array) -> Array:
    """Return the size of what cancels in a divergence, besides its own: that of a normal mean's distance."""
    if not isinstance(q, GaussianFactors | SpikeSlabFactors):
        return np.abs(eta * q.mean)
    mean, share = (q.mean, 1.0) if isinstance(q, GaussianFactors) else (q.slab_mean, q.inclusion)
    return share * np.abs(mean - eta) * (np.abs(mean) + np.abs(eta)) / above.sd**2
