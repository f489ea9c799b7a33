"""Predictions for new rows: known levels of groups by their effects, new ones by the group's distribution.

The effect of a new level has the group's prior: mean 0 and, in each component of the posterior, the variance ``tau^2``
of that component's scale, independent of all others. So it adds ``value^2 tau^2`` to the variance of a row's linear
predictor, with ``value`` that of the column it multiplies, and rows are predicted as any others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.posterior.component import Component
from forestmix.posterior.covariance import CovarianceBatch
from forestmix.posterior.marginals import Mixture
from forestmix.posterior.prediction import predict
from forestmix.posterior.table import Table
from forestmix.regression.cases import Extra, for_rows, needed_columns
from forestmix.regression.formula import Rows
from forestmix.regression.frames import column_names, plain_frame, row_labels
from forestmix.regression.solve import new_rows
from forestmix.regression.terms import column_name
from forestmix.scales import Scale
from forestmix.weights import Weights

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


class _WithNewLevels(CovarianceBatch):
    """The covariance of a fit's effects, for rows whose linear predictors have further variances by new levels."""

    def __init__(self, known: CovarianceBatch, further: Array) -> None:
        super().__init__(known.distinct, known.which)
        self._further = further

    def quadratic(self, C: Weights) -> Array:
        """Return the variance of each row's linear predictor."""
        return super().quadratic(C) + self._further


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
    known, context = column_names(new_data, "new_data"), fit.design.context
    columns = needed_columns(terms, known, context, response=False, argument="new_data")
    frame = plain_frame(new_data, list(dict.fromkeys([*columns, *map(column_name, extra.columns)])), "new_data")
    if not len(frame):
        raise ArgumentError("new_data must have at least one row; got none.")
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
    """Return the posterior with the wanted rows as those of each component."""
    components = []
    for part in fit.posterior.mixture.components:
        layer = new_rows(part, fit.family, wanted.rows.matrix, wanted.offset, wanted.trials)
        further = np.zeros(layer.size)
        for block, rows, values in wanted.rows.unseen:
            further[rows] += values**2 * _sd_of_groups(fit, block.name, part) ** 2
        covariance = _WithNewLevels(part.covariance, further) if wanted.rows.unseen else part.covariance
        components.append(Component(part.mean, covariance, layer))
    return Mixture(components, fit.posterior.mixture.weights)


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
