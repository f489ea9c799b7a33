"""The posterior to report: moments, intervals, draws, predictions, and how far to trust it (docs/trust.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.arrays import Array, generator
from forestmix.checks import flag, whole_number
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.model import DEF, Observations
from forestmix.posterior.component import Component
from forestmix.posterior.importance import gaussian_elbo
from forestmix.posterior.kinds import corrected_component, factorised_component, is_factored
from forestmix.posterior.layer import only_layer
from forestmix.posterior.marginals import LayerMarginals, Mixture
from forestmix.posterior.prediction import Prediction, predict
from forestmix.posterior.system import LatentSystem
from forestmix.saving import Exported
from forestmix.weights.layered import slices_of

if TYPE_CHECKING:
    from forestmix.posterior.check import Check
    from forestmix.posterior.loo import LeaveOneOut
    from forestmix.posterior.result import Result
    from forestmix.posterior.table import Table


class Posterior(Exported):
    """The posterior of the latents, as ``Result.posterior`` returns it. For a batch arrays have a leading axis (N,).

    It is a mixture of components: one where all scales are known.

    Args:
        components: normal components, or the factors of q.
        weights: the weight of each component, (S,), or (N, S) where observations differ.
        model: the model.
        data: the observations.
        kind: what it is: "corrected", "factorised", "full" or "laplace".
        factors: means and standard deviations of the factorised q, to compare with in ``check``.
        scales: posteriors of unknown scales, by name.
        log_evidence: where it is known, one for each observation; found here for Gaussian rows.

    """

    def __init__(
        self, components: Sequence[Component], weights: Any, model: DEF, data: Observations, kind: str,
        *, factors: tuple[Array, Array] | None = None, scales: Mapping[str, Any] | None = None,
        log_evidence: Any = None,
    ) -> None:  # fmt: skip
        self.mixture = Mixture(components, np.asarray(weights, np.float64))
        self.model, self.data, self.kind = model, data, kind
        self.factors, self.scales = factors, dict(scales or {})
        self._log_evidence = log_evidence

    @cached_property
    def layers(self) -> tuple[LayerMarginals, ...]:
        """The latents of each layer, from the lowest up: mean, sd, interval, covariance, draws."""
        columns = slices_of(self.model.latent_sizes)
        return tuple(LayerMarginals(self.mixture, part, self.data.single, self.model.dtype) for part in columns)

    @property
    def mean(self) -> Array:
        """Posterior means of the one latent layer, (m,) or (N, m); deep models have them in ``layers``."""
        return self._only("mean").mean

    @property
    def sd(self) -> Array:
        """Posterior standard deviations, likewise."""
        return self._only("sd").sd

    @property
    def sd_error(self) -> Array | None:
        """Standard errors of ``sd`` where it is estimated from draws; ``None`` where it is not."""
        return self._only("sd_error").sd_error

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Return both ends of the central interval of each latent."""
        return self._only("interval").interval(level)

    def variance(self, C: Any) -> Any:
        """Return the variance of ``c^T y`` for each row c of C: (K, m), dense or sparse, or (m,) for one."""
        return self._only("variance").variance(C)

    def covariance(self, C: Any = None) -> Any:
        """Return the covariance matrix of ``C y``, (K, K); of all latents when C is left out."""
        return self._only("covariance").covariance(C)

    @property
    def correlation(self) -> Array:
        """The correlation matrix of the latents, (m, m)."""
        return self._only("correlation").correlation

    def sample(self, size: int | None = None, rng: np.random.Generator | int | None = None) -> Any:
        """Draw latents with their correlations: (m,) or (N, m), for a deep model a tuple of each layer's.

        Args:
            size: number of draws, as a leading axis; ``None`` for one draw without it.
            rng: a generator, or a seed.

        """
        drawn = LayerMarginals(self.mixture, slice(None), self.data.single, self.model.dtype).sample(size, rng)
        parts = tuple(drawn[..., part] for part in slices_of(self.model.latent_sizes))
        return parts[0] if len(parts) == 1 else parts

    def predict(self, rows: Any = None, level: float = 0.9) -> Prediction:
        """Return the posterior of the natural parameter of rows, and the predictive distribution of their x.

        Rows of 0 and 1 have the probability of 1 and its interval. Latents that are not Gaussian give a natural
        parameter that is not normal; it is taken as normal with the right mean and variance, which a row with many
        parents is close to.

        Args:
            rows: row numbers, or a mask, of the model's own rows; a ``Layer`` with the same latents for new rows, with
                a family of their own; a data frame with the columns of W by their names, for rows of the model's
                family; all rows of the model when left out.
            level: probability of the central intervals.

        """
        return predict(self.mixture, rows, level, self.data.single)

    @cached_property
    def log_evidence(self) -> Any:
        """``log p(x)``, exact for Gaussian rows and latents; ``None`` where it is not known.

        After ``covariance="full"``, and with unknown scales, it is an estimate for other rows, and not a bound: the
        ELBO and what that leaves out (``remainder.py``). With unknown scales it is integrated over them.
        """
        if self._log_evidence is None and self.kind == "corrected" and self.system.constant_curvature:
            return self.elbo
        return self._log_evidence

    @cached_property
    def elbo(self) -> Any:
        """The evidence lower bound of this posterior as q, correlations and all; ``None`` where it is not known.

        It is known for one Gaussian component whose covariance is factored, and is the evidence for Gaussian rows.
        """
        (first, *others) = self.mixture.components
        if others or not self.gaussian or not (self.kind == "factorised" or is_factored(first.covariance)):
            return None
        values = gaussian_elbo(self.system, first.fitted())
        return None if values is None else (float(values[0]) if self.data.single else values)

    @cached_property
    def system(self) -> LatentSystem:
        """Rows, weights and prior as one linear system, for Gaussian latents."""
        return LatentSystem(self.model, self.data)

    def take(self, keep: Any) -> Posterior:
        """Return the posterior of one observation of a batch, or of several."""
        chosen = self._chosen(keep)
        part, single = self.data.take(chosen), np.ndim(keep) == 0
        mixture = self.mixture.take(chosen)
        known = self._log_evidence if np.ndim(self._log_evidence) == 0 else self._log_evidence[chosen]
        return Posterior(
            mixture.components, mixture.weights, self.model.take_observations(chosen),
            Observations(part.x, part.observed, single, None if single else part.labels), self.kind,
            factors=None if self.factors is None else (self.factors[0][chosen], self.factors[1][chosen]),
            scales=self.scales, log_evidence=known if not single or np.ndim(known) == 0 else known[0],
        )  # fmt: skip

    def _chosen(self, keep: Any) -> Array:
        """Return the numbers of the chosen observations, or raise."""
        count, chosen = len(self.data.x), np.atleast_1d(np.asarray(keep))
        if self.data.single or chosen.dtype.kind not in "iu" or not ((chosen >= 0) & (chosen < count)).all():
            raise ArgumentError(f"keep must be one or more of the {count} observations of a batch; got {keep!r}.")
        return chosen

    def loo(self) -> LeaveOneOut:
        """Return how well each row is predicted by the others, without fitting again; see ``LeaveOneOut``."""
        from forestmix.posterior.loo import leave_one_out

        return leave_one_out(self)

    def check(self, rng: np.random.Generator | int | None = 0, size: int | None = None) -> Check:
        """Return a verdict on this posterior and the numbers behind it; see ``Check``.

        Args:
            rng: a generator, or a seed.
            size: number of draws; 2,000 when left out, fewer for large models.

        """
        from forestmix.posterior.check import check

        return check(self, generator(rng), whole_number("size", size, least=100, optional=True))

    def summary(self, level: float = 0.9, names: Sequence[Any] | None = None, layer: int = 0) -> Table:
        """Return a table with mean, sd and interval of each latent, for one observation.

        Args:
            level: probability of the central intervals.
            names: what to call the latents; the labels of W's columns, or ``y[0]``, ``y[1]``, ..., when left out.
            layer: which latent layer of a deep model, 0 for the lowest.

        """
        from forestmix.posterior.table import summary

        return summary(self, level, names, layer)

    def plot(self, axes: Any = None, level: float = 0.9, names: Sequence[Any] | None = None, layer: int = 0) -> Any:
        """Plot means and intervals of the latents, and return the axes; see ``summary`` for the arguments."""
        from forestmix.plots.intervals import plot_posterior

        return plot_posterior(self, axes, level, names, layer)

    @property
    def gaussian(self) -> bool:
        """Whether all latents are Gaussian."""
        return all(isinstance(family, Gaussian) for family in self.model.latent_families)

    def _only(self, name: str) -> LayerMarginals:
        found: LayerMarginals = only_layer("posterior", self.layers, name)
        return found

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.model.latent_sizes))
        batch = "" if self.data.single else f", {len(self.data.x)} observations"
        parts = f", {len(self.mixture.components)} components" if len(self.mixture.components) > 1 else ""
        return f"<Posterior ({self.kind}) of {sizes} latents{batch}{parts}, {self.model.dtype}>"


def made(result: Result, kind: str, tol: float, rng: Any, progress: bool) -> Posterior:
    """Return the posterior of a result, see ``Result.posterior``."""
    flag("progress", progress)
    model, data, q = result.model.on_host(), result.data, factorised_component(result)
    factors = q.mean, q.sd
    component = corrected_component(model, data, factors, tol, rng, progress) if kind == "corrected" else q
    return Posterior([component], [1.0], model, data, kind, factors=factors, scales=result.scales)
