"""Points of a problem: factors, and what is known at them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.protocol import RowTerms
from forestmix.latents import Batch, Factors, GaussianFactors


@dataclass(frozen=True)
class GaussianPoint(Batch):
    """Factors q with all that was computed at them, for each observation of a batch.

    ``objective`` and ``rounding``: (N,), on the host; ``gradient``: slope of the objective in the means, (N, m);
    ``terms``: of the rows; ``curvature``: ``D``, and ``exact``: ``H_j = sum_i w_ij^2 kappa_i``, (N or 1, m), each
    ``None`` where it was not asked for.
    """

    q: GaussianFactors
    objective: Array
    rounding: Array
    gradient: Any
    terms: RowTerms
    curvature: Any
    exact: Any
    carried: ClassVar[bool] = False

    @property
    def origin(self) -> GaussianPoint:
        """The point at which the rows were looked at: this one."""
        return self


@dataclass(frozen=True)
class CarriedPoint(Batch):
    """A point whose objective and gradient follow from a step along a line, with the variances held.

    The rows were last looked at in ``origin``. ``squared_norm``: ``gradient^T P^-1 gradient``, (N,), with P the
    precision of q at its optimum, ``None`` where it is not known; ``variance_norm``: the variances' relative error,
    (N,), which such steps leave as it is.
    """

    origin: GaussianPoint
    q: GaussianFactors
    objective: Array
    gradient: Any
    squared_norm: Array | None
    variance_norm: Array
    carried: ClassVar[bool] = True

    @property
    def rounding(self) -> Array:
        """That of the point where the rows were looked at."""
        return self.origin.rounding


@dataclass(frozen=True)
class LayeredFactors(Batch):
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

    def replace(self, layer: int, q: Factors) -> LayeredFactors:
        """Return the factors with one layer changed."""
        return LayeredFactors((*self.layers[:layer], q, *self.layers[layer + 1 :]), self.auxiliary)


@dataclass(frozen=True)
class LatentPoint(Batch):
    """Factors with the bound at them: ``objective`` and ``rounding`` of each observation, (N,)."""

    q: LayeredFactors
    objective: Array
    rounding: Array
    carried: ClassVar[bool] = False
