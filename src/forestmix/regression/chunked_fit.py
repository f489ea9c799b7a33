"""A fit of a table in chunks, and predictions of such tables, chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.families import Bernoulli, Gaussian
from forestmix.model import DEF, Layer
from forestmix.posterior.component import Component
from forestmix.posterior.factor import BlockFactor
from forestmix.posterior.marginals import Mixture
from forestmix.posterior.posterior import Posterior
from forestmix.regression.by_chunks import ChunkedDesign, Plan
from forestmix.regression.cases import Extra, needed_columns
from forestmix.regression.fit import Fit
from forestmix.regression.formula import Design
from forestmix.regression.frames import row_labels
from forestmix.regression.prediction import Predictions, Wanted, predict_rows, wanted_rows
from forestmix.regression.priors import Priors
from forestmix.regression.solve import Solution
from forestmix.regression.table_chunks import TableChunks
from forestmix.regression.terms import column_name
from forestmix.weights import as_weights
from forestmix.weights.absent import AbsentWeights

COLUMNS = ("mean", "lower", "upper", "eta_mean", "eta_sd")


class ChunkedFit(Fit):
    """A regression that was fitted to a table in chunks; what needs rows reads the table again."""

    def __init__(
        self, family: str, found: ChunkedDesign, priors: Priors, model: DEF, solution: Solution, table: TableChunks
    ) -> None:
        super().__init__(family, found.design, priors, found.cases, model, solution)
        self._plan, self._table, self._learned_from = found.plan, table, found.learned_from

    def predict(
        self, new_data: Any = None, level: float = 0.9, *, trials: Any = None, offset: Any = None
    ) -> Any:  # fmt: skip
        """Return predictions of a table as ``Fit.predict`` does; those of the rows of the fit are in chunks."""
        if new_data is not None:
            return super().predict(new_data, level, trials=trials, offset=offset)
        if trials is not None or offset is not None:
            raise ArgumentError("trials and offset go with new_data; the rows of the fit have theirs.")
        frames = self._table.delayed(self._plan.columns)
        return ChunkedPredictions([_delayed(_own_rows)(frame, light(self), self._plan, level) for frame in frames])

    @property
    def _has_offset(self) -> bool:
        return self._plan.extra.offset is not None

    def save(self, path: Any, weights: str = "inside") -> None:
        """Write all but the table, which is not in memory; see ``FitWithoutRows``."""
        from forestmix.files import save

        save(FitWithoutRows.of(self), path, weights)


class FitWithoutRows(Fit):
    """A fit of a table in chunks as a file has it: effects, scales and how columns are made, and none of the rows.

    What it says of effects and scales, and predictions of tables, are those of the fit. Whatever needs the rows, such
    as ``loo()``, is an error that says so.
    """

    @classmethod
    def of(cls, fit: ChunkedFit) -> Self:
        """Return a fit without its rows; ``cases.frame`` is the small frame that its columns were learned from."""
        found = fit.posterior
        if not all(
            isinstance(one, BlockFactor) for part in found.mixture.components for one in part.covariance.distinct
        ):
            raise ForestmixError(
                "A fit of a table in chunks with more effects than a full covariance can hold cannot be saved: its "
                "covariance needs the rows. Keep fit.summary().to_pandas()."
            )
        absent = AbsentWeights(fit.model.layers[0].weights.shape)
        model = DEF(fit.model.layers[0].with_weights(absent), prior=fit.model.prior)
        components = [
            Component(part.mean, part.covariance.detached(), part.layer.with_weights(absent), part.scales)
            for part in found.mixture.components
        ]
        weights, kept = found.mixture.weights[0], {"scales": found.scales, "log_evidence": found._log_evidence}
        known = DEF(found.model.layers[0].with_weights(absent), prior=found.model.prior)
        posterior = Posterior(components, weights, known, found.data, found.kind, **kept)
        cases = replace(fit.cases, frame=fit._learned_from)
        return cls(fit.family, fit.design, fit.priors, cases, model, fit.solution._replace(posterior=posterior))

    def predict(
        self, new_data: Any = None, level: float = 0.9, *, trials: Any = None, offset: Any = None
    ) -> Any:  # fmt: skip
        """Return predictions of a table as ``Fit.predict`` does; of the table that was fitted too, if it is given."""
        if new_data is None:
            raise ArgumentError("new_data must be given, the fitted table too: the rows are not in the file of a fit.")
        return super().predict(new_data, level, trials=trials, offset=offset)


#: The predictions of no rows.
_NOTHING = Predictions([], {name: np.empty(0) for name in COLUMNS})


class ChunkedPredictions:
    """Predictions of a table in chunks: ``mean``, ``lower``, ``upper``, ``eta_mean`` and ``eta_sd`` as Dask arrays.

    Nothing is computed until it is asked for; ``compute()`` returns all rows as ``Predictions``.
    """

    mean: Any
    lower: Any
    upper: Any
    eta_mean: Any
    eta_sd: Any

    def __init__(self, chunks: list[Any]) -> None:
        import dask.array

        self._chunks, taken = chunks, _delayed(_column)
        for name in COLUMNS:
            parts = [dask.array.from_delayed(taken(one, name), (np.nan,), dtype=np.float64) for one in chunks]
            setattr(self, name, dask.array.concatenate(parts))

    def compute(self) -> Predictions:
        """Return the predictions of all rows as one table."""
        import dask

        parts = dask.compute(*self._chunks)
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in COLUMNS}
        return Predictions(
            [label for part in parts for label in part.names], columns, max(part.title for part in parts)
        )

    def __repr__(self) -> str:
        return f"<ChunkedPredictions of {len(self._chunks)} chunks>"


@dataclass(frozen=True)
class _Posterior:
    mixture: Mixture
    mean: Array
    sd: Array

    def variance(self, C: Any) -> Array:
        """Return the variance of ``c^T y`` for each row c of C."""
        return self.mixture.moments(as_weights(C))[1][0]


@dataclass(frozen=True)
class LightFit:
    """What predictions need of a fit, without its rows: it goes to workers."""

    family: str
    design: Design
    priors: Priors
    posterior: _Posterior
    solution: Solution


def detached_posterior(posterior: Any) -> Any:
    """Return what predictions need of a posterior: its components, without the rows."""
    components = []
    for part in posterior.mixture.components:
        one: Any = part.layer.family.unweighted
        rows = Gaussian(float(np.ravel(one.sd)[0])) if isinstance(one, Gaussian) else Bernoulli()
        layer = Layer(rows, np.ones((1, part.mean.shape[1])))
        components.append(Component(part.mean, part.covariance.detached(), layer, part.scales))
    mean, sd = np.asarray(posterior.mean), np.asarray(posterior.sd)
    return _Posterior(Mixture(components, posterior.mixture.weights), mean, sd)


def light(fit: Fit) -> LightFit:
    """Return what predictions need of a fit."""
    posterior = detached_posterior(fit.posterior)
    solution = fit.solution._replace(posterior=posterior)
    return LightFit(fit.family, fit.design, fit.priors, posterior, solution)


def predict_chunks(fit: Fit, table: TableChunks, extra: Extra, level: float) -> ChunkedPredictions:
    """Return the predictions of a table in chunks."""
    terms, context = fit.design.terms, fit.design.context
    columns = needed_columns(terms, table.columns, context, response=False, argument="new_data")
    frames = table.delayed(list(dict.fromkeys([*columns, *map(column_name, extra.columns)])))
    return ChunkedPredictions([_delayed(_new_rows)(frame, light(fit), extra, level) for frame in frames])


def _new_rows(native: Any, fit: Any, extra: Extra, level: float) -> Predictions:
    return predict_rows(fit, wanted_rows(fit, native, extra), level) if len(native) else _NOTHING


def _own_rows(native: Any, fit: Any, plan: Plan, level: float) -> Predictions:
    """Return the predictions of the rows of a chunk that the fit used, and of those that it kept without response."""
    cases, whole = plan.cases(native)
    keep = whole & ~np.isnan(cases.response) if plan.missing == "drop" else whole
    labels, kept = row_labels(native, len(whole)), cases.take(keep)
    if not keep.any():
        return _NOTHING
    rows = fit.design.rows(kept.frame)
    chosen = [labels[k] for k in np.flatnonzero(keep)]
    return predict_rows(fit, Wanted(rows, rows.offset + kept.offset, kept.trials, chosen), level)


def _column(predictions: Predictions, name: str) -> Array:
    return predictions.columns[name]


def _delayed(function: Any) -> Any:
    import dask

    return dask.delayed(function, pure=False, traverse=False)
