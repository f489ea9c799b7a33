"""Points of a problem with Gaussian latents: factors, and what is known at them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from forestmix.arrays import Array
from forestmix.engines.protocol import RowTerms
from forestmix.latents import Batch, GaussianFactors


@dataclass(frozen=True)
class GaussianPoint(Batch):
    """Factors q with all that was computed at them, for each observation of a batch.

    ``objective`` and ``rounding``: (N,), on the host; ``gradient``: slope of the objective in the means, (N, m);
    ``terms``: of the rows; ``curvature``: ``D``, and ``exact``: ``H_j = sum_i w_ij^2 kappa_i``, (N or 1, m), each
    ``None`` where it was not asked for; ``divergence``: what the standard deviations add to KL(q || p), (N or 1,).
    """

    q: GaussianFactors
    objective: Array
    rounding: Array
    gradient: Any
    terms: RowTerms
    curvature: Any
    exact: Any
    divergence: Any
    carried: ClassVar[bool] = False

    @property
    def origin(self) -> GaussianPoint:
        """The point at which the rows were looked at: this one."""
        return self


@dataclass(frozen=True)
class CarriedPoint(Batch):
    """A point whose objective and gradient follow from a step along a line, with the variances held.

    The rows were last looked at in ``origin``. ``squared_norm``: ``gradient^T P^-1 gradient``, (N,), with P the
    precision of q at its optimum; ``None`` where it is not known.
    """

    origin: GaussianPoint
    q: GaussianFactors
    objective: Array
    gradient: Any
    squared_norm: Array | None
    carried: ClassVar[bool] = True

    @property
    def rounding(self) -> Array:
        """That of the point where the rows were looked at."""
        return self.origin.rounding
