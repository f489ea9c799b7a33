"""What a report is about: a fit, a result or a posterior, seen as one thing."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import forestmix as fmx
from forestmix.arrays import Array
from forestmix.posterior.predictive_check import simulate
from forestmix.posterior.result import reported
from forestmix.posterior.table import Table

#: Probability of the intervals in a report.
LEVEL = 0.9


@dataclass(frozen=True)
class Subject:
    """One observation's posterior, with the fit or the result that it came from.

    ``posterior``: of one observation; ``names``: of the latents of a model with one layer, or ``None``; ``notes``: what
    a reader must know first, such as which observation of a batch is shown.
    """

    title: str
    posterior: Any
    fit: Any = None
    result: Any = None
    names: list[str] | None = None
    notes: list[str] = field(default_factory=list)

    @cached_property
    def known(self) -> Any:
        """The posterior with unknown scales at their means, where they are those of a fit; else the posterior."""
        return self.posterior if self.fit is None else self.fit.at_scale_means()

    @cached_property
    def check(self) -> Any:
        """The verdict, found once."""
        return self.known.check()

    @property
    def model(self) -> Any:
        """The model."""
        return self.posterior.model

    @property
    def scales(self) -> dict[str, Any]:
        """Posteriors of unknown scales, by the names in the summary."""
        if self.fit is None:
            return dict(self.posterior.scales)
        return {f"sd({name})": self.fit.scales[scale] for name, scale in self.fit.priors.unknown.items()}

    @property
    def observed(self) -> Array:
        """Which rows of x were seen."""
        data = self.posterior.data
        return np.ones(data.x.shape[1], bool) if data.observed is None else data.observed[0]

    @property
    def x(self) -> Array:
        """The rows of x, NaN where an entry is missing."""
        return np.where(self.observed, self.posterior.data.x[0].astype(np.float64), np.nan)

    @property
    def q(self) -> Any:
        """Means and sds of a factorised q for this observation, a pair for each layer; ``None`` if there are none."""
        if self.known.factors is None:
            return None
        ends = np.cumsum(self.model.latent_sizes)[:-1]
        pairs = list(zip(*(np.split(part[0], ends) for part in self.known.factors), strict=True))
        return pairs[0] if len(pairs) == 1 else pairs

    def summaries(self, level: float = LEVEL) -> list[Table]:
        """Return the table of effects, or of the latents of each layer."""
        if self.fit is not None:
            return [self.fit.summary(level)]
        return [self.posterior.summary(level, self.names, layer) for layer in range(len(self.posterior.layers))]

    def replicated(self, size: int) -> Array:
        """Return drawn data sets, (size, rows seen)."""
        return simulate(self.posterior.mixture, size, np.random.default_rng(0))[:, self.observed]


def subject_of(saved: Any, names: list[str] | None = None) -> Subject:
    """Return what a report of a fit, a result or a posterior is about; of a batch, its first observation."""
    if isinstance(saved, fmx.Fit):
        return Subject(f"Regression: {saved.formula}", saved.posterior, fit=saved)
    result = saved if isinstance(saved, fmx.Result) else None
    posterior = saved if result is None else reported(result)
    if not isinstance(posterior, fmx.Posterior):
        raise fmx.ArgumentError(
            f"A report is for a Fit, Result, Posterior or fitted ForestMixtureModel; got {type(saved).__name__}."
        )
    notes, count = [], len(posterior.data.x)
    if not posterior.data.single:
        posterior = posterior.take(0)
        notes.append(f"This is a batch of {count:,} observations. The report shows the first.")
    rows, family = posterior.model.n_observed, posterior.model.layers[0].family.name
    title = f"Posterior of {sum(posterior.model.latent_sizes):,} latents given {rows:,} {family} rows"
    return Subject(title, posterior, result=result, names=names, notes=notes)
