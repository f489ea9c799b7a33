"""Where two layers of a deep model meet: rows below, and the latents above that are their parents (docs/deep.md).

With ``m_i = E eta_i`` the mean of a row's natural parameter, the bound of a whole model is a sum over layers::

    sum_i log p(x_i | m_i) - sum_l KL(q^l || p(y^l | m^l)) - sum of the excesses of all interfaces
    excess_i = (E a(eta_i), or a bound on it) - a(m_i)

so an interface needs to know its excess, and what the rows tell each parent. What a row has seen of itself is
``E t(y_i)``: the data for the lowest layer, the moments of q for the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from forestmix.arrays import Array, total
from forestmix.engines.protocol import Want
from forestmix.engines.reference import ReferenceEngine
from forestmix.errors import ArgumentError
from forestmix.latents import Batch, Factors
from forestmix.model import Layer


@dataclass(frozen=True)
class Above:
    """What a layer of latents has above it: its family, and the mean of its natural parameter."""

    family: Any
    eta: Array


class Interface(ABC):
    """The rows of a layer and their parents' factors.

    Args:
        layer: the layer of the rows.
        kind: the class of the parents' factors.
        observed: which rows are there, (N, n), or ``None`` if all are.
        objective: the bound on ``E a(eta_i)``: "elbo" for itself, or "fm".

    """

    #: Whether the rows are Gaussian, so that the bound is quadratic in the means.
    quadratic: ClassVar[bool] = False

    def __init__(self, layer: Layer, kind: type[Factors], observed: Array | None, objective: str) -> None:
        self.layer, self.kind, self.observed, self.objective = layer, kind, observed, objective

    def take(self, keep: Array) -> Self:
        """Return the interface of the chosen observations."""
        chosen = copy(self)
        chosen.layer = self.layer.take_observations(keep)
        chosen.observed = None if self.observed is None else self.observed[keep]
        return chosen

    def majorant(self, kappa: Array, sd: Array) -> Array:
        """Return ``D_j = (1 / sd_j) sum_i |w_ij| s_i kappa_i``, which serves all parents at once (paper, Theorem 2)."""
        found = ReferenceEngine().curvatures(self.layer, kappa, sd, Want.CURVATURE)[0]
        return found.astype(np.float64) / sd

    def exact_information(self, kappa: Array) -> Array:
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

    def start(self, parents: Factors, *, best: bool = False) -> Batch | None:
        """Return auxiliary parameters to start with, safe ones or the best; ``None`` where there are none to keep."""
        return None

    def improve(self, parents: Factors, auxiliary: Any) -> Any:
        """Return auxiliary parameters that are better for every row, or the same."""
        return auxiliary

    @abstractmethod
    def excess(self, parents: Factors, auxiliary: Any) -> Array:
        """Return the excess of every row, (N, n); 0 for a missing one."""

    def total_excess(self, parents: Factors, auxiliary: Any) -> Array:
        """Return the sum of the excesses of each observation, (N,)."""
        return total(self.excess(parents, auxiliary))

    @abstractmethod
    def target(self, seen: Array, parents: Factors, auxiliary: Any, above: Above) -> Factors:
        """Return the factors that each parent would take by itself, the others held."""

    def step(self, seen: Array, parents: Factors, auxiliary: Any, above: Above) -> Factors:
        """Return the parents after a parallel step that is made not to lower the bound.

        That is the target itself where the parents are apart in the bound, so that all may go there at once.
        """
        return self.target(seen, parents, auxiliary, above)

    def sweep(self, seen: Array, parents: Factors, above: Above, order: Array) -> Factors:
        """Return the parents after each was updated to its exact optimum in turn, in this order."""
        raise ArgumentError(
            f"Coordinate ascent is not available for {type(above.family).__name__} latents under "
            f"{self.layer.family!r} rows in a model that also has latents of other families. Use algorithm='fm'."
        )


def with_columns(factors: Factors, members: Array, other: Factors) -> Factors:
    """Return the factors with those of ``other``, one for each of ``members``, in their place."""
    mine, its = factors.aligned(other)
    changed = []
    for name in mine._names():
        array = np.array(getattr(mine, name))
        array[:, members] = getattr(its, name)
        changed.append(array)
    return type(factors)(*changed)
