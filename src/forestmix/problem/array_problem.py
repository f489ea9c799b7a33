"""The problem of a model whose weights are an array of another library: everything of size m or n stays where W is.

The reference engine evaluates it. To the host go one objective, one rounding and two norms for each observation, which
decide what is accepted and when a run ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import array_api_compat
import numpy as np

from forestmix.arrays import Array, host
from forestmix.engines.protocol import Statistics, Want
from forestmix.engines.reference import ReferenceEngine
from forestmix.engines.rows import expected_terms
from forestmix.errors import ArgumentError
from forestmix.problem.gaussian import ROUNDING_UNITS, UNITS_OF_VARIANCES, out_of_range
from forestmix.latents.arrays import ArrayFactors
from forestmix.model import DEF, Observations
from forestmix.problem.given import as_factors, prior_factors, prior_sd

#: The step of the differences that give the slopes of ``E a''``.
DIFFERENCE = 1e-3


@dataclass(frozen=True)
class ArrayPoint:
    """Factors with what was computed at them; ``objective`` and ``rounding``, (N,), are on the host."""

    q: ArrayFactors
    statistics: Statistics
    eta: Any
    spread: Any
    kappa: Any
    error: Any
    gradient: Any
    objective: Array
    rounding: Array
    tracked: ClassVar[bool] = False

    def take(self, keep: Array) -> ArrayPoint:
        """Return the point of the chosen observations: only what the loop asks of an old point."""
        chosen = {
            name: self.q.rows(getattr(self, name), keep) for name in ("eta", "spread", "kappa", "error", "gradient")
        }
        sums = {name: self.q.rows(getattr(self.statistics, name), keep) for name in _SUMS}
        statistics = Statistics(self.statistics.want, **sums)
        return ArrayPoint(
            self.q.take(keep), statistics, objective=self.objective[keep], rounding=self.rounding[keep], **chosen
        )


_SUMS = ("value", "magnitude", "gradient", "curvature_sd", "information")


class ArrayProblem:
    """Maximise ``sum_i (row terms) - KL(q || p)`` over q, for one layer of Gaussian latents."""

    curvature_is_constant: ClassVar[bool] = False
    joins_deviations: ClassVar[bool] = True
    factorable: ClassVar[bool] = False
    on_device: ClassVar[bool] = True

    def __init__(self, model: DEF, data: Observations, objective: Any) -> None:
        if len(model.layers) > 1:
            raise ArgumentError("layers must be one for W in an array of another library; give NumPy arrays instead.")
        self.model, self.data, self.objective = model, data, objective
        self.layer, self.weights, self.family = model.layers[0], model.layers[0].weights, model.layers[0].family
        self.engine = ReferenceEngine()
        self.observed = self.engine.observe(self.layer, data)
        like = self.weights.prototype()
        self.xp, self.device, self.dtype = (
            array_api_compat.array_namespace(like),
            array_api_compat.device(like),
            like.dtype,
        )
        m = model.n_latent
        self.prior_mean = self.moved(np.broadcast_to(model.prior.bias, m))
        self.prior_sd = self.moved(np.broadcast_to(prior_sd(model.prior), m))
        self.prior_precision = self.prior_sd**-2

    def moved(self, array: Any) -> Any:
        """Return a NumPy array in the library, precision and place of W."""
        return self.xp.asarray(np.array(array), dtype=self.dtype, device=self.device)

    @property
    def size(self) -> int:
        """Number of latents, m."""
        return self.model.n_latent

    @property
    def n_observations(self) -> int:
        """Number of observations in the batch, N."""
        return len(self.data.x)

    @property
    def single(self) -> bool:
        """Whether the caller gave one observation without a leading axis."""
        return self.data.single

    @property
    def objective_name(self) -> str:
        """The bound that is climbed."""
        return self.objective

    climbed = objective_name

    def take(self, keep: Array) -> ArrayProblem:
        """Return the problem of the chosen observations."""
        return ArrayProblem(self.model, self.data.take(keep), self.objective)

    def split(self, q: ArrayFactors) -> tuple[ArrayFactors, ...]:
        """Return the factors of the one latent layer."""
        return (q,)

    def default_start(self) -> ArrayFactors:
        """Return q at the prior; where rows would be wide, its standard deviations narrowed to leave spreads of 1."""
        start = self._factors(prior_factors(self.model, self.n_observations))
        if self.family.curvature_is_constant:
            return start
        widest = float(self.xp.max(abs(self.weights).forward(self.prior_sd)))
        return ArrayFactors(start.mean, start.sd / max(widest, 1.0))

    def start(self, init: Any) -> ArrayFactors:
        """Return a start that the user gave, checked."""
        return self._factors(as_factors("init", init, self.model, self.n_observations))

    def _factors(self, q: Any) -> ArrayFactors:
        shape = (self.n_observations, self.size)
        return ArrayFactors(*(self.moved(np.broadcast_to(host(part), shape)) for part in (q.mean, q.sd)))

    def evaluate(self, q: ArrayFactors, known: ArrayPoint | None = None) -> ArrayPoint:
        """Return the objective and its slope at q."""
        xp = self.xp
        sums, rows = self.engine.statistics(self.layer, self.observed, q, Want.ALL, self.objective)
        away, ratio = (q.mean - self.prior_mean) / self.prior_sd, (q.sd / self.prior_sd) ** 2
        divergence = 0.5 * xp.sum(xp.astype(away * away + ratio - 1 - xp.log(ratio), sums.value.dtype), axis=1)
        objective, size = host(sums.value - divergence), host(sums.magnitude + xp.abs(divergence))
        unit = ROUNDING_UNITS * float(np.finfo(self.model.dtype).eps)
        gradient = sums.gradient - away / self.prior_sd
        return ArrayPoint(
            q, sums, rows.eta, rows.spread, rows.kappa, rows.error, gradient, objective, unit * (size + self.size)
        )

    def information(self, point: ArrayPoint) -> Any:
        """Return what the rows add to the precision of q: ``D`` for the paper's bound, ``H`` for the ELBO."""
        paper = self.objective == "fm"
        return point.statistics.curvature_sd / point.q.sd if paper else point.statistics.information

    def precision(self, point: ArrayPoint) -> Any:
        """Return the precision that q would have at its optimum."""
        return self.prior_precision + self.information(point)

    def exact_information(self, point: ArrayPoint) -> Any:
        """Return ``H_j = sum_i w_ij^2 kappa_i``."""
        return point.statistics.information

    def row_curvature(self, point: ArrayPoint) -> Any:
        """Return ``kappa_i`` at ``point``."""
        return point.kappa

    def curvature_slopes(self, point: ArrayPoint) -> tuple[Any, Any]:
        """Return f and h of ``inference.dense_newton``, by differences of ``E a''`` in the row means."""
        low, here, high = (
            expected_terms(self.observed, point.eta + shift, point.spread)[2]
            for shift in (-DIFFERENCE, 0.0, DIFFERENCE)
        )
        third, fourth = (high - low) / (2 * DIFFERENCE), ((high - here) - (here - low)) / DIFFERENCE**2
        if self.objective == "fm":
            third, fourth = point.spread * third, point.kappa + point.spread**2 * fourth
        return self.xp.astype(third, self.dtype), self.xp.astype(fourth, self.dtype)

    def gradient_norm(self, point: ArrayPoint) -> Array:
        """Return the relative gradient norm of each observation, as ``Stopping`` defines it."""
        precision = self.precision(point)
        return np.maximum(self._rms(point.gradient / precision**0.5), self._rms(precision * point.q.sd**2 - 1))

    def distance_bound(self, point: ArrayPoint) -> Array:
        """Return how many posterior standard deviations no mean can be further from the optimum than."""
        excess = self._rms(self.precision(point) * point.q.sd**2 - 1)
        return np.sqrt(self.size) * np.hypot(self._rms(point.gradient * self.prior_sd), excess)

    def gradient_rounding(self, point: ArrayPoint) -> Array:
        """Return what rounding leaves of ``gradient_norm`` at a point."""
        xp, weights = self.xp, abs(self.weights)
        eta = weights.forward(xp.abs(point.q.mean)) + xp.abs(self.observed.bias)
        size = 2 * xp.abs(point.error) + point.kappa * (eta + xp.abs(point.eta))
        own = self.prior_precision * (xp.abs(point.q.mean) + xp.abs(self.prior_mean))
        left = self._rms((weights.adjoint(size) + own) / self.precision(point) ** 0.5)
        return float(np.finfo(self.model.dtype).eps) * np.maximum(UNITS_OF_VARIANCES, left)

    def check_range(self, start: ArrayPoint) -> None:
        """Raise where what the rows say of the latents is beyond the range of numbers."""
        if not bool(self.xp.all(self.xp.isfinite(self.information(start)))):
            raise out_of_range(self.model)

    def _rms(self, values: Any) -> Array:
        return np.sqrt(host(self.xp.mean(values * values, axis=1)).astype(np.float64))
