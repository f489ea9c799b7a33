"""What a run returns: the posterior, how it went, and what happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from forestmix.arrays import Array, host
from forestmix.bounds.values import elbo, fm_bound
from forestmix.checks import between_zero_and_one, one_of
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.families import Gaussian
from forestmix.inference.status import Status, Trace
from forestmix.model import DEF, Observations
from forestmix.posterior.each import EachPosterior
from forestmix.posterior.laplace import laplace_posterior
from forestmix.posterior.layer import LayerPosterior, only_layer
from forestmix.posterior.posterior import Posterior, made
from forestmix.saving import Exported

#: The kinds of posterior; "full" needs a run with a full covariance.
KINDS = ("corrected", "factorised", "full", "laplace")
#: A ratio of residuals to the noise sd that is beyond this factor, either way, is worth a word.
FACTOR = 2.0
#: With fewer observed entries the ratio says little.
LEAST_ENTRIES = 20


def _moved(name: str, where: str) -> Callable[..., None]:
    """Return a method that says where what was once a result's, and is a posterior's, has gone."""

    def gone(*_: Any, **__: Any) -> None:
        raise ForestmixError(
            f"result.{name} is gone, since what the factorised q says of uncertainty is too narrow to report. Use "
            f"result.{where}; posterior(kind='factorised') is q itself."
        )

    return gone


@dataclass(frozen=True, repr=False)
class Result(Exported):
    """The outcome of ``infer``. For a batch, entries described as one value are arrays (N,).

    ``layers``: the posterior of each latent layer; ``objective``: the bound that was climbed, named by
    ``objective_name`` ("elbo" or "fm") and more closely by ``climbed``, which is "grouped" for one between the two;
    ``elbo`` and ``fm_bound``: both bounds at the end; ``converged``: whether ``status`` is
    ``Status.CONVERGED``; ``message``: what happened, in words; ``n_iter``: iterations; ``trace``: how it went;
    ``model`` and ``data``: what it is the posterior of, with numbers in the place of unknown scales.

    After ``infer(..., covariance="full")``, and for models with unknown scales, ``joint`` holds the posterior with all
    its correlations, of which ``layers`` have the margins; ``scales`` has the posterior of each unknown scale by name,
    for a batch with ``scales="each"`` a tuple with one for each observation.
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
    joint: Posterior | None = None
    scales: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

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
        """Means of the factorised q, (m,) or (N, m), for one latent layer; deep models have them in ``layers``."""
        return self._only("mean").mean

    @property
    def sd(self) -> Array:
        """Standard deviations of the factorised q, (m,) or (N, m): of each latent with the others held.

        They are too small wherever latents share rows, often by far. Report those of ``posterior()``.
        """
        return self._only("sd").sd

    def _only(self, name: str) -> LayerPosterior:
        found: LayerPosterior = only_layer("result", self.layers, name)
        return found

    @cached_property
    def message(self) -> str:
        """What happened, and what to try; also whether the noise sd fits the residuals."""
        return "\n".join(filter(None, (self._ending, self.note, _noise_note(self))))

    @property
    def _ending(self) -> str:
        if isinstance(self.status, Status):
            return self.status.value
        kinds, counts = np.unique([status.name for status in self.status], return_counts=True)
        parts = [
            f"{count} of {len(self.status)} observations: {Status[kind].value}"
            for kind, count in zip(kinds, counts, strict=True)
        ]
        return "\n".join(parts)

    def posterior(
        self, kind: str = "corrected", *, tol: float = 0.01, rng: Any = 0, progress: bool = False
    ) -> Posterior:
        """Return the posterior to report: means, standard deviations, intervals, draws, predictions (docs/trust.md).

        "corrected" puts the correlations back that the factorised q leaves out, by linear response: the covariance is
        ``(diag(1 / sigma0^2) + W^T diag(kappa) W)^-1``, the exact one for Gaussian rows. With up to 6,000 latents,
        or 3,000 rows, it is factored, and the means are corrected too: exact for Gaussian rows, and for others those of
        the best Gaussian with that covariance. Beyond, standard deviations are estimated from draws, and the means are
        those of q.

        Args:
            kind: "corrected"; "factorised" for q itself, the only kind for latents that are not Gaussian; "full" after
                ``infer(..., covariance="full")`` and for models with unknown scales, where "corrected" means it too;
                "laplace" for the mode with the inverse of the curvature there, which are the estimates and standard
                errors of maximum likelihood where priors are flat; unknown scales are at their mode.
            tol: relative error of the standard deviations. Where they are estimated from draws, these are made until
                the median of the stated errors is at most this; where rounding leaves a larger one, an error is raised.
            rng: a generator, or a seed, for the draws behind standard deviations that are estimated.
            progress: show a progress bar while draws are made.

        """
        between_zero_and_one("tol", tol)
        one_of("kind", kind, KINDS)
        if kind == "laplace":
            if isinstance(self.joint, EachPosterior):
                raise ArgumentError(
                    "kind must not be 'laplace' for a batch with scales='each'; infer the observations one by one."
                )
            return laplace_posterior(self.joint or made(self, "factorised", tol, rng, progress))
        if self.joint is not None and kind != "factorised":
            return self.joint
        if kind == "full":
            raise ArgumentError(
                "kind must be 'corrected', 'factorised' or 'laplace' for a result whose q is factorised; got 'full'."
            )
        return made(self, kind, tol, rng, progress)

    corrected_sd = _moved("corrected_sd", "posterior().sd, or posterior().variance(C) for linear functionals")
    predict = _moved("predict", "posterior().predict(rows, level)")
    sample = _moved("sample", "posterior().sample(size, rng)")
    interval = _moved("interval", "posterior().interval(level)")

    def plot_trace(self, axes: Any = None) -> Any:
        """Plot the objective and the relative gradient norm against iterations; see ``forestmix.plots.trace``."""
        from forestmix.plots.trace import plot_trace

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


def reported(result: Result) -> Posterior:
    """Return the posterior to report: corrected for Gaussian latents, and that of q for others, which has no other."""
    gaussian = all(isinstance(family, Gaussian) for family in result.model.latent_families)
    return result.posterior("corrected" if gaussian else "factorised")


def _noise_note(result: Result) -> str | None:
    """Return a sentence for a run whose Gaussian rows have a noise sd far from the residuals', or ``None``.

    With ``rms^2 = mean_i ((x_i - m_i) / sd_i)^2`` over observed entries, it is said where ``rms > 2``, and where
    ``rms < sqrt(1 - m / n) / 2``, since m latents fit that much of n rows' noise.
    """
    of_each = any(isinstance(one, tuple) for one in result.scales.values())
    if of_each or not isinstance(result.model.layers[0].family, Gaussian):
        return None
    square, count = _squared_residuals(result)
    share = 1 - result.model.latent_sizes[0] * len(result.data.x) / max(count, 1)
    rms = float(np.sqrt(square / max(count, 1)))
    if count < LEAST_ENTRIES or (FACTOR * rms >= np.sqrt(max(share, 0.0)) and rms <= FACTOR):
        return None
    return (
        f"The residuals are {rms:.2g} times as large as the noise sd of the rows says (root mean square of residual / "
        "sd), so intervals are off by about that factor too. Give an sd near that of the residuals, or leave it "
        "unknown."
    )


def _squared_residuals(result: Result) -> tuple[float, float]:
    """Return the sum of ``w_i ((x_i - m_i) / sd_i)^2`` over observed entries, and that of the case weights ``w_i``."""
    layer, data = result.model.layers[0], result.data
    mean: Array = np.atleast_2d(host(layer.weights.forward(result.layers[0].mean))) + layer.bias
    residual = (data.x.astype(np.float64) - mean) / layer.family.row_sd  # type: ignore[attr-defined]
    observed = np.ones(data.x.shape, bool) if data.observed is None else np.broadcast_to(data.observed, data.x.shape)
    cases = np.broadcast_to(layer.family.weight, data.x.shape)[observed]
    return float(np.sum(residual[observed] ** 2)), float(np.sum(cases))
