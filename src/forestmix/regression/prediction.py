"""Predictions for new rows: known levels of groups by their effects, new ones by the group's distribution.

A new level is one more latent with the group's prior: mean 0 and, in each component of the posterior, the variance
``tau^2`` of that component's scale, independent of all others. So new rows are rows of a model with more columns, and
their predictive distribution is found as for any rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.model import Layer
from forestmix.posterior.component import Component
from forestmix.posterior.covariance import Covariance
from forestmix.posterior.marginals import Mixture
from forestmix.posterior.prediction import predict
from forestmix.posterior.table import Table
from forestmix.regression.cases import Extra, for_rows, needed_columns
from forestmix.regression.formula import Rows
from forestmix.regression.frames import column_names, plain_frame, row_labels
from forestmix.regression.solve import family_of
from forestmix.scales import Scale
from forestmix.weights import SparseWeights, Weights

if TYPE_CHECKING:
    from forestmix.regression.fit import Fit


def _column(name: str, text: str) -> Any:
    return property(lambda table: table.columns[name], doc=text)


class Predictions(Table):
    """The predictive distribution of rows, as a table: ``mean``, and ``lower`` and ``upper`` ends of the interval.

    ``eta_mean`` and ``eta_sd`` are those of the linear predictor. For a response of 0 and 1 the mean is the probability
    of 1, with its own interval.
    """

    mean = _column("mean", "The predictive mean of each row.")
    lower = _column("lower", "The lower end of each interval.")
    upper = _column("upper", "The upper end of each interval.")
    eta_mean = _column("eta_mean", "The mean of each linear predictor.")
    eta_sd = _column("eta_sd", "The standard deviation of each linear predictor.")


class ExtendedCovariance(Covariance):
    """The covariance of latents beside further ones that are independent: ``diag(Sigma, variance)``."""

    def __init__(self, inner: Any, extra: Array) -> None:
        self.inner, self.extra = inner, extra

    def variance(self) -> Array:
        """Return the variance of each latent."""
        return np.concatenate([self.inner.variance(), self.extra])

    def quadratic(self, C: Weights) -> Array:
        """Return the sum of both parts' ``c^T Sigma c``."""
        known, new = self._parts(C)
        return self.inner.quadratic(SparseWeights(known)) + new.power(2) @ self.extra

    def covariance(self, C: Weights) -> Array:
        """Return the sum of both parts' ``C Sigma C^T``."""
        known, new = self._parts(C)
        return self.inner.covariance(SparseWeights(known)) + ((new * self.extra) @ new.T).toarray()

    def sample(self, size: int, rng: np.random.Generator) -> Array:
        """Return draws of both parts, side by side."""
        further = np.sqrt(self.extra) * rng.standard_normal((size, len(self.extra)))
        return np.concatenate([self.inner.sample(size, rng), further], axis=1)

    def solve(self, right: Array) -> Array:
        """Return ``Sigma r`` of both parts."""
        split = right.shape[1] - len(self.extra)
        return np.concatenate([self.inner.solve(right[:, :split]), right[:, split:] * self.extra], axis=1)

    def _parts(self, C: Weights) -> tuple[Any, Any]:
        rows, split = scipy.sparse.csr_array(C.rows()), C.shape[1] - len(self.extra)
        return rows[:, :split], rows[:, split:]


@dataclass(frozen=True)
class Wanted:
    """The rows to predict: their design, offset, trials and labels."""

    rows: Rows
    offset: Array
    trials: Array | None
    labels: list[str]


def wanted_rows(fit: Fit, new_data: Any, extra: Extra) -> Wanted:
    """Return the rows of a new table, whose columns are checked, or those of the fit."""
    if new_data is None:
        if extra.trials is not None or extra.offset is not None:
            raise ArgumentError("trials and offset go with new_data; the rows of the fit have theirs.")
        rows = fit.design.rows(fit.cases.frame)
        return Wanted(rows, rows.offset + fit.cases.offset, fit.cases.trials, fit.cases.labels)
    terms = fit.design.terms
    columns = needed_columns(terms, column_names(new_data, "new_data"), fit.design.context, response=False)
    frame = plain_frame(new_data, list(dict.fromkeys([*columns, *extra.columns])), "new_data")
    grouping = {name for term in terms.groups for name in term.factors}
    missing = [name for name in columns if name not in grouping and frame[name].isna().any()]
    if missing:
        raise ArgumentError(f"new_data must have no missing entries but in groups; column {missing[0]!r} has some.")
    rows = fit.design.rows(frame)
    offset = np.zeros(len(frame)) if extra.offset is None else for_rows("offset", extra.offset, frame)
    return Wanted(rows, rows.offset + offset, _trials(fit.family, extra, frame), row_labels(new_data, len(frame)))


def predict_rows(fit: Fit, wanted: Wanted, level: float) -> Predictions:
    """Return the predictive distribution of rows under the mixture of the fit's components."""
    found = predict(mixture_of_rows(fit, wanted), None, level, single=True)
    names = ("mean", "lower", "upper", "eta_mean", "eta_sd")
    title = f"Predictions of {fit.design.terms.response}, intervals of {100 * level:.4g} %"
    return Predictions(wanted.labels, {name: getattr(found, name) for name in names}, title)


def mixture_of_rows(fit: Fit, wanted: Wanted) -> Mixture:
    """Return the posterior with the wanted rows as those of each component, and a latent for new levels of each block.

    Rows are predicted one by one, so one latent for all new levels of a block gives each row its right distribution.
    """
    matrix = scipy.sparse.csr_array(wanted.rows.matrix) if wanted.rows.unseen else wanted.rows.matrix
    for _, rows, values in wanted.rows.unseen:
        column = scipy.sparse.csr_array((values, (rows, np.zeros_like(rows))), shape=(matrix.shape[0], 1))
        matrix = scipy.sparse.hstack([matrix, column], format="csr")
    components = []
    for part in fit.posterior.mixture.components:
        one: Any = part.layer.family.unweighted
        noise = one.sd if isinstance(one, Gaussian) else None
        layer = Layer(family_of(fit.family, noise, wanted.trials), matrix, wanted.offset)
        sds = np.array([_sd_of_groups(fit, block.name, part) for block, _, _ in wanted.rows.unseen])
        components.append(_with_new_levels(part, sds, layer))
    return Mixture(components, fit.posterior.mixture.weights)


def _with_new_levels(part: Component, sds: Array, layer: Layer) -> Component:
    if not len(sds):
        return Component(part.mean, part.covariance, layer)
    mean = np.concatenate([part.mean[0], np.zeros(len(sds))])
    return Component(mean, ExtendedCovariance(part.covariance.distinct[0], sds**2), layer)


def _sd_of_groups(fit: Fit, name: str, part: Component) -> float:
    """Return the sd of a group's effects in one component: its unknown scale's value there, or the number given."""
    sd = fit.priors.blocks[name].sd
    return fit.solution.scale_in(part, sd) if isinstance(sd, Scale) else float(sd[0])


def _trials(family: str, extra: Extra, frame: Any) -> Array | None:
    """Return the trials of new rows; 1 when left out, so that the prediction is of the probability."""
    if family != "binomial":
        if extra.trials is not None:
            raise ArgumentError(f"trials go with family='binomial'; this fit is {family}.")
        return None
    return np.ones(len(frame)) if extra.trials is None else for_rows("trials", extra.trials, frame)
