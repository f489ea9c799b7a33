"""What a run returns: the posterior, how it went, and what happened."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from forestmix.arrays import Array, generator
from forestmix.bounds.values import elbo, fm_bound
from forestmix.checks import flag, whole_number
from forestmix.errors import ForestmixError
from forestmix.inference.status import Status, Trace
from forestmix.latents import GaussianFactors
from forestmix.model import DEF, Observations
from forestmix.posterior.layer import LayerPosterior
from forestmix.posterior.linear_response import deep_linear_response_sd, linear_response_sd
from forestmix.posterior.prediction import Prediction, predict


@dataclass(frozen=True, repr=False)
class Result:
    """The outcome of ``infer``. For a batch, entries described as one value are arrays (N,).

    ``layers``: the posterior of each latent layer; ``objective``: the bound that was climbed, named by
    ``objective_name`` ("elbo" or "fm") and more closely by ``climbed``, which is "grouped" for one between the two;
    ``elbo`` and ``fm_bound``: both bounds at the end; ``converged``: whether ``status`` is
    ``Status.CONVERGED``; ``message``: what happened, in words; ``n_iter``: iterations; ``trace``: how it went;
    ``model`` and ``data``: what it is the posterior of.
    """

    layers: tuple[LayerPosterior, ...]
    algorithm: str
    objective_name: str
    objective: Any
    climbed: str
    converged: Any
    status: Any
    n_iter: Any
    trace: Trace
    model: DEF
    data: Observations

    @cached_property
    def elbo(self) -> Any:
        """The evidence lower bound; computed when first asked for, unless it is what was climbed."""
        return self.objective if self.climbed == "elbo" else elbo(self.model, self._x, self.layers)

    @cached_property
    def fm_bound(self) -> Any:
        """The forest mixture bound, likewise."""
        return self.objective if self.climbed == "fm" else fm_bound(self.model, self._x, self.layers)

    @property
    def _x(self) -> Array:
        """The observations as they were given, with NaN where an entry is missing."""
        x = self.data.x if self.data.observed is None else np.where(self.data.observed, self.data.x, np.nan)
        return np.asarray(x[0] if self.data.single else x)

    @property
    def mean(self) -> Array:
        """Posterior means of the one latent layer, (m,) or (N, m); deep models have them in ``layers``."""
        return self._only("mean").mean

    @property
    def sd(self) -> Array:
        """Posterior standard deviations of the one latent layer, (m,) or (N, m)."""
        return self._only("sd").sd

    def _only(self, name: str) -> LayerPosterior:
        if len(self.layers) > 1:
            raise ForestmixError(
                f"result.{name} is for models with one latent layer; this one has {len(self.layers)}. Use "
                f"result.layers[k].{name}, with k = 0 for the lowest."
            )
        return self.layers[0]

    @property
    def message(self) -> str:
        """What happened, and what to try."""
        if isinstance(self.status, Status):
            return self.status.value
        kinds, counts = np.unique([status.name for status in self.status], return_counts=True)
        parts = [
            f"{count} of {len(self.status)} observations: {Status[kind].value}"
            for kind, count in zip(kinds, counts, strict=True)
        ]
        return "\n".join(parts)

    def corrected_sd(
        self, functionals: Any = None, tol: float = 1e-6, progress: bool = False, layer: int = 0
    ) -> float | Array:
        """Return standard deviations by linear response, which corrects those of mean field (docs/regression.md).

        ``sd``, from mean field, is too small where latents are correlated. At the optimum the corrected covariance is
        ``(diag(1 / sigma0^2) + W^T diag(kappa) W)^-1``; for Gaussian rows it is the exact one.

        Args:
            functionals: the vectors c whose ``c^T y`` is asked for: (K, m), dense or sparse, or (m,) for one; the
                latents themselves when left out.
            tol: relative error of the variances at most, from below; rounding sets a limit.
            progress: show a progress bar.
            layer: which latent layer of a deep model, 0 for the lowest; the response is that of all layers together.

        Returns:
            (m,) or (K,), with a leading axis (N,) for a batch; for a vector c a float or (N,).

        """
        layer = whole_number("layer", layer, 0, len(self.layers) - 1)
        flag("progress", progress)
        first = self.layers[0]
        # What is beyond the range of the precision is infinite.
        with np.errstate(over="ignore"):
            if len(self.layers) == 1 and isinstance(first.factors, GaussianFactors):
                return linear_response_sd(
                    self.model.on_host(), self.data, first.mean, first.sd, functionals, tol, progress
                )
            factors = tuple(part.factors for part in self.layers)
            return deep_linear_response_sd(self.model, self.data, factors, functionals, tol, progress, layer)

    def predict(self, rows: Any = None, level: float = 0.9, corrected: bool = False) -> Prediction:
        """Return the posterior of the natural parameter of rows, and the predictive distribution of their x.

        Latents that are not Gaussian give a natural parameter that is not normal; it is taken as normal with the right
        mean and variance, which a row with many parents is close to.

        Args:
            rows: row numbers, or a mask, of the model's own rows; a ``Layer`` with the same latents for new rows, with
                a family of their own; all rows of the model when left out.
            level: probability of the central intervals.
            corrected: use variances by linear response in place of those of mean field.

        """
        lowest = self.layers[0]
        response = self.corrected_sd if flag("corrected", corrected) else None
        with np.errstate(over="ignore"):
            return predict(self.model.on_host(), self.data, lowest.mean, lowest.sd, rows, level, response)

    def sample(self, rng: np.random.Generator | int | None = None, size: int | None = None) -> Any:
        """Draw latents from q, (m,) or (N, m); for a deep model a tuple with those of each layer.

        Args:
            rng: a generator, or a seed.
            size: number of draws, as a leading axis; ``None`` for one draw without it.

        """
        rng = generator(rng)
        drawn = tuple(layer.sample(rng, size) for layer in self.layers)
        return drawn[0] if len(drawn) == 1 else drawn

    def plot_trace(self, axes: Any = None) -> Any:
        """Plot the objective and the relative gradient norm against iterations; see ``forestmix.plots``."""
        from forestmix.plots import plot_trace

        return plot_trace(self, axes)

    def __repr__(self) -> str:
        shape = ", ".join("x".join(map(str, layer.mean.shape)) for layer in self.layers)
        single, dtype = self.layers[0].single, self.layers[0].dtype
        status = self.status.name if single else f"{int(np.sum(self.converged))} of {len(self.converged)} CONVERGED"
        bound = f"{self.objective:.6g}" if single else f"{np.mean(self.objective):.6g} on average"
        count = int(np.max(self.n_iter))
        return (
            f"<Result of {self.algorithm!r}: {status} after {count} iteration{'s' if count != 1 else ''}, "
            f"{self.objective_name} = {bound}, mean and sd of shape {shape}, {dtype}>"
        )
