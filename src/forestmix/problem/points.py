"""Points of a problem: factors, and what is known at them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import array_api_compat

from forestmix.arrays import Array
from forestmix.latents import Batch, Factors, GaussianFactors


@dataclass(frozen=True)
class LayeredFactors(Batch):
    """The factors above every interface, the lowest first, and the auxiliary parameters of the rows below each."""

    layers: tuple[Factors, ...]
    auxiliary: tuple[Batch | None, ...]

    @cached_property
    def mean(self) -> Array:
        """The means of all layers, stacked."""
        return stacked([q.mean for q in self.layers])

    @cached_property
    def sd(self) -> Array:
        """The standard deviations of all layers, stacked."""
        return stacked([q.sd for q in self.layers])

    def replace(self, layer: int, q: Factors) -> LayeredFactors:
        """Return the factors with one layer changed."""
        return LayeredFactors((*self.layers[:layer], q, *self.layers[layer + 1 :]), self.auxiliary)

    def moved(self, mean: Any, sd: Any) -> LayeredFactors:
        """Return Gaussian factors with other means and standard deviations, in arrays of the same library."""
        return self.replace(0, type(self.layers[0])(mean, sd))  # type: ignore[call-arg]


@dataclass(frozen=True)
class _Rows(Batch):
    """What is known at Gaussian factors q, for each observation of a batch.

    ``gradient``: slope of the objective in the means, (N, m); ``kappa``: the rows' ``E a''``, (N or 1, n);
    ``curvature``: ``D``, and ``exact``: ``H_j = sum_i w_ij^2 kappa_i``, (N or 1, m), each ``None`` where it was not
    asked for.
    """

    q: GaussianFactors
    gradient: Any
    kappa: Any
    curvature: Any
    exact: Any
    carried: ClassVar[bool]


@dataclass(frozen=True)
class RowsPoint(_Rows):
    """What an engine found when it looked at the rows: also ``eta`` and ``error``, ``t(x) - E a'``, (N, n)."""

    eta: Any
    error: Any
    carried: ClassVar[bool] = False


@dataclass(frozen=True)
class CarriedRows(_Rows):
    """What is known without a look at the rows, after a step along a line with the variances held.

    Such a step carries the gradient on; where the rows' curvature is constant, all else stays. ``moves``: what an
    interface says of them, which a step has at hand.
    """

    moves: tuple[Array, Array]
    carried: ClassVar[bool] = True


@dataclass(frozen=True)
class Point(Batch):
    """Factors with the bound at them.

    ``objective``, and ``rounding``, which says how far it may be off: (N,) each, on the host; ``rows``: what the lowest
    interface knows there, ``None`` where it keeps nothing.
    """

    q: LayeredFactors
    objective: Array
    rounding: Array
    rows: Any

    @property
    def carried(self) -> bool:
        """Whether the rows were not looked at."""
        return self.rows is not None and self.rows.carried


def stacked(parts: list[Any]) -> Any:
    """Return arrays side by side, one row for each observation; a single one as it is."""
    if len(parts) == 1:
        return parts[0]
    count = max(len(part) for part in parts)
    xp = array_api_compat.array_namespace(*parts)
    return xp.concat([xp.broadcast_to(part, (count, part.shape[1])) for part in parts], axis=1)
