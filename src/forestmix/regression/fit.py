"""A fitted regression: what to report, with names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from textwrap import shorten
from typing import Any

import numpy as np

from forestmix.arrays import Array, generator
from forestmix.checks import between_zero_and_one, one_of, whole_number
from forestmix.errors import ArgumentError
from forestmix.inference.status import Status
from forestmix.model import DEF
from forestmix.posterior.laplace import laplace_notes, laplace_posterior
from forestmix.posterior.posterior import Posterior
from forestmix.posterior.predictive_check import simulate
from forestmix.posterior.table import Table
from forestmix.regression.cases import Cases, Extra
from forestmix.regression.formula import Block, Design
from forestmix.regression.prediction import predict_rows, wanted_rows
from forestmix.regression.priors import Priors
from forestmix.regression.solve import Solution, at_scale_means
from forestmix.regression.table_chunks import table_chunks
from forestmix.saving import Saved

#: Letters of a formula that stand above a summary.
FORMULA = 160


class Fit(Saved):
    """A regression that was fitted to a table, as ``regress`` returns it.

    Attributes:
        family: "gaussian", "bernoulli", "binomial" or "poisson".
        design: the columns of the model: names, blocks, and how they are made of a table.
        priors: the priors, which print as a list.
        cases: the rows that were used; ``message`` says what was left out.
        model: the model that was fitted, a ``DEF`` with one layer.
        posterior: the posterior of all effects, in the order of ``names``: moments, draws, covariances.
        scales: the posterior of each unknown scale, by the scale's object in ``priors``.
        status, trace: how the run ended and went, as those of ``Result``.

    """

    def __init__(
        self, family: str, design: Design, priors: Priors, cases: Cases, model: DEF, solution: Solution
    ) -> None:
        self.family, self.design, self.priors = family, design, priors
        self.cases, self.model = cases, model
        self.solution = solution
        self.posterior, self.scales = solution.posterior, solution.scales
        self.status, self.trace = solution.status, solution.trace

    @property
    def formula(self) -> str:
        """The formula."""
        return self.design.terms.formula

    @property
    def names(self) -> list[str]:
        """The name of each effect, in the order of ``posterior.mean``: fixed effects, then those of groups."""
        return self.design.names

    @property
    def message(self) -> str:
        """What was done with missing entries; empty if there were none."""
        return self.cases.message

    def summary(self, level: float = 0.9) -> Table:
        """Return fixed effects and scales: mean, sd and the ends of the central interval of each.

        Args:
            level: probability of the intervals.

        """
        between_zero_and_one("level", level)
        fixed = self._effects(slice(0, self.design.n_fixed), level)
        scales = self._scales(level)
        columns = {name: np.concatenate([fixed[name], scales[name]]) for name in fixed}
        index = [*self.design.fixed_names, *(f"sd({name})" for name in self.priors.unknown)]
        formula = shorten(self.formula, FORMULA, placeholder=" ...")
        title = f"{formula}, {self.family}, {self.model.n_observed} rows"
        return Table(index, columns, title, self._notes())

    def groups(self, term: str | None = None, level: float = 0.9) -> Table:
        """Return the effects of each level of groups: mean, sd and interval.

        Args:
            term: such as "1 | subject"; may be left out if there is one.
            level: probability of the intervals.

        """
        between_zero_and_one("level", level)
        block = self._group_block(term)
        assert block.levels is not None
        return Table(block.levels.labels, self._effects(block.columns, level), block.name)

    def predict(self, new_data: Any = None, level: float = 0.9, *, trials: Any = None, offset: Any = None) -> Any:
        """Return the predictive distribution of the response for new rows, or for the rows of the fit.

        A level of a group that the fit did not see has an effect from the group's distribution, with its unknown scale;
        so has one that is missing. A new level of a fixed effect is an error.

        Args:
            new_data: a table with the columns that the formula needs; the rows of the fit when left out, and those that
                were kept without a response. A table in chunks has ``ChunkedPredictions``, in Dask arrays.
            level: probability of the central intervals.
            trials: of a binomial response in new rows: the name of a column, an array or a number; 1 when left out, so
                that the prediction is a probability.
            offset: as in ``regress``; to be given for new rows if the fit had one.

        """
        between_zero_and_one("level", level)
        if new_data is not None and offset is None and self._has_offset:
            raise ArgumentError("offset must be given with new_data, since the fit had offset=; 0 stands for none.")
        extra, table = Extra(trials=trials, offset=offset), table_chunks(new_data, "new_data")
        if table is not None:
            from forestmix.regression.chunked_fit import predict_chunks

            return predict_chunks(self, table, extra, level)
        return predict_rows(self, wanted_rows(self, new_data, extra), level)

    def simulate(self, size: int = 100, rng: np.random.Generator | int | None = None) -> Array:
        """Draw responses of the rows of the fit from the posterior predictive distribution, (size, rows)."""
        return simulate(self.posterior.mixture, whole_number("size", size), generator(rng))

    def loo(self) -> Any:
        """Return how well each row is predicted by the others, without fitting again; ``fmx.compare`` takes fits."""
        return self.posterior.loo()

    def check(self, rng: np.random.Generator | int | None = 0) -> Any:
        """Return a verdict on the posterior with unknown scales at their means, and the numbers behind it."""
        return self.at_scale_means().check(rng)

    def at_scale_means(self) -> Posterior:
        """Return the posterior with each unknown scale at its posterior mean, and the factorised q beside it."""
        found = at_scale_means(self.model, self.solution, self._responses())
        return laplace_posterior(found) if self.posterior.kind == "laplace" else found

    def laplace(self) -> Fit:
        """Return the same fit with the mode of the posterior in the place of its mean, and the Laplace covariance.

        With ``prior="flat"`` these are the estimates and standard errors of maximum likelihood, for Gaussian rows with
        the residual variance over its degrees of freedom. Unknown scales are at their mode (docs/trust.md).
        """
        chosen = copy(self)
        chosen.posterior = laplace_posterior(self.posterior)
        chosen.solution = self.solution._replace(posterior=chosen.posterior)
        return chosen

    def plot(self, level: float = 0.9, axes: Any = None, *, intercept: bool = False, units: str = "sd") -> Any:
        """Plot the intervals of fixed effects and scales, and return the axes.

        Args:
            level: probability of the wide intervals; the thick ones have half of it.
            axes: matplotlib axes to draw on; a new figure when left out.
            intercept: whether the intercept is drawn too, which often is on another scale.
            units: "sd" draws what one standard deviation of a column does, which stands behind its name, and of columns
                of 0 and 1 what 1 does: so all are on one scale. "column" draws the numbers of ``summary()``.

        """
        from forestmix.plots.intervals import plot_intervals

        wide, without = self.summary(level), () if intercept else ("Intercept",)
        factors = units_of(self) if one_of("units", units, ("sd", "column")) == "sd" else np.ones(len(wide))
        return plot_intervals(wide, self.summary(level / 2), axes, without, factors)

    def plot_groups(self, term: str | None = None, level: float = 0.9, axes: Any = None) -> Any:
        """Plot the effects of each level of groups, sorted, and return the axes.

        Args:
            term: such as "1 | subject"; may be left out if there is one.
            level: probability of the intervals.
            axes: matplotlib axes to draw on; a new figure when left out.

        """
        from forestmix.plots.intervals import plot_groups

        return plot_groups(self.groups(term, level), axes)

    def plot_predictive(self, size: int = 50, rng: np.random.Generator | int | None = 0, axes: Any = None) -> Any:
        """Plot the distribution of the response beside those of responses that the fit predicts, and return the axes.

        Args:
            size: number of drawn data sets.
            rng: a generator, or a seed.
            axes: matplotlib axes to draw on; a new figure when left out.

        """
        from forestmix.plots.rows import plot_predictive

        whole, drawn = self.family != "gaussian", self.simulate(size, rng)
        trials, weights = self._answered(self.cases.trials), self._answered(self.cases.weights)
        return plot_predictive(self._responses(), drawn, whole, axes, trials, weights)

    def to_xarray(self, level: float = 0.9) -> Any:
        """Return mean, sd and interval of every effect and scale as a labelled dataset of xarray (docs/files.md)."""
        from forestmix.files.views import fit_dataset

        return fit_dataset(self, level)

    def to_pandas(self, level: float = 0.9) -> Any:
        """Return the summary as a table of pandas."""
        return self.summary(level).to_pandas()

    def to_arviz(self, size: int = 1000, rng: Any = 0, sample_dims: Sequence[str] = ("chain", "draw")) -> Any:
        """Return draws of the effects, what they predict and the log-likelihood as a tree for ArviZ (docs/files.md)."""
        from forestmix.files.arviz import fit_tree

        return fit_tree(self, size, rng, sample_dims)

    def __repr__(self) -> str:
        return (
            f"<Fit of {self.formula!r}, {self.family}, {self.model.n_observed} rows, {self.design.n_columns} effects>"
        )

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    @property
    def _has_offset(self) -> bool:
        """Whether the fit had an offset that does not stand in the formula."""
        return bool(np.any(self.cases.offset))

    def _responses(self) -> Array:
        return self.cases.response[~np.isnan(self.cases.response)]

    def _answered(self, values: Array | None) -> Array | None:
        """Return the entries of a vector of cases for those with a response."""
        return None if values is None else values[~np.isnan(self.cases.response)]

    def _effects(self, columns: slice, level: float) -> dict[str, Array]:
        parts = (self.posterior.mean, self.posterior.sd, *self.posterior.interval(level))
        return interval_columns((np.asarray(part, np.float64)[columns] for part in parts), level)

    def _scales(self, level: float) -> dict[str, Array]:
        """Return the posteriors of the unknown scales, in the order of ``priors.unknown``."""
        found = [self.scales[scale] for scale in self.priors.unknown.values()]
        parts = np.array([(one.mean, one.sd, *one.interval(level)) for one in found], np.float64).reshape(-1, 4)
        return interval_columns(parts.T, level)

    def _notes(self) -> list[str]:
        several = [term.levels.factors for term in self.design.grouped if len(term.blocks) > 1]
        correlated = "Intercepts and slopes of a group have independent scales." if several else ""
        classes = self.cases.classes
        success = "" if classes is None else f"{self.design.terms.response} is 1 for {classes[1]!r}."
        ending = "" if self.status is Status.CONVERGED else self.status.value
        notes = (success, correlated, self.message, self.solution.message, ending, *laplace_notes(self.posterior))
        return [note for note in notes if note]

    def _group_block(self, term: str | None) -> Block:
        blocks = {block.name: block for part in self.design.grouped for block in part.blocks}
        if not blocks:
            raise ArgumentError(f"{self.formula!r} has no effects of groups, such as (1 | g).")
        if term is None and len(blocks) > 1:
            raise ArgumentError(f"term must say which: {', '.join(map(repr, blocks))}.")
        return blocks[next(iter(blocks)) if term is None else one_of("term", term, blocks)]


def interval_columns(parts: Iterable[Array], level: float) -> dict[str, Array]:
    """Return means, sds and both ends of intervals as columns with their titles, as ``Posterior.summary`` has them."""
    return dict(zip(("mean", "sd", f"{50 * (1 - level):g} %", f"{50 * (1 + level):g} %"), parts, strict=True))


#: Below this share of its size, the spread of a column is rounding: the column is constant.
CONSTANT = 1e-6


def units_of(fit: Fit) -> Array:
    """Return by what the entries of ``fit.summary()`` are multiplied: first fixed effects, then scales.

    The sd of the column, and 1 for columns of 0 and 1, for constants and for scales of the predictor; the scale of the
    slopes of a group has the sd of the column that the slopes are of.
    """
    weights = fit.model.layers[0].weights.in_double()
    given = fit._answered(fit.cases.weights)
    share = np.full(weights.shape[0], 1 / weights.shape[0]) if given is None else given / np.sum(given)
    n_fixed = fit.design.n_fixed
    fixed = _units(weights.adjoint(share)[:n_fixed], weights.square().adjoint(share)[:n_fixed])
    blocks = {block.name: block for block in fit.design.blocks}
    scales = []
    for name in fit.priors.unknown:
        unit = np.ones(1)
        if name in blocks and blocks[name].levels is not None:
            inside = np.zeros(weights.shape[1])
            inside[blocks[name].columns] = 1
            column = weights.forward(inside)
            unit = _units(share[None] @ column, share[None] @ column**2)
        elif name in blocks and blocks[name].size == 1:
            unit = fixed[blocks[name].columns]
        scales.append(float(unit[0]))
    return np.array([*fixed, *scales])


def _units(mean: Array, square: Array) -> Array:
    """Return the units of columns by their means and mean squares; those of a column of 0 and 1 are the same."""
    sd = np.sqrt(np.maximum(square - mean**2, 0))
    plain = np.isclose(mean, square, rtol=1e-9, atol=0) | (sd <= CONSTANT * np.abs(mean))
    return np.where(plain, 1.0, sd)
