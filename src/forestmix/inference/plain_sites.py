"""Sites for plain forest mixture steps: the statistics of one observation come with the step that follows.

So everything that belongs to an iteration takes one reading of W and one of its vectors.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.column_passes import column_step, project, reads_columns, settle
from forestmix.inference.problem import Problem
from forestmix.inference.rules import settled_unit
from forestmix.passes import Pass, has_fused_pass, pass_parts
from forestmix.posterior import GaussianFactors
from forestmix.statistics import Ahead, Site, SiteStatistics
from forestmix.steps import Latents, Step, StepArrays, row_step


def with_plain_steps(problem: Problem) -> Site:
    """Return the site of a problem whose latents are all updated at once, as its weights allow."""
    weights = problem.site.layer.weights
    if problem.site.plain_rows is not None or problem.site.row_table is None:
        return problem.site
    if reads_columns(weights):
        return ColumnSite(problem)
    return RowSite(problem) if has_fused_pass(weights) else problem.site


class PlainSite(Site):
    """A site whose statistics of one observation come with the plain step from there."""

    def __init__(self, problem: Problem) -> None:
        site = problem.site
        super().__init__(site.layer, site.data, site.objective)
        self.wants_curvature, self.wants_exact = site.wants_curvature, site.wants_exact
        self.prior = (problem.prior_mean, problem.prior_precision)

    def statistics(
        self, q: GaussianFactors, known: tuple[GaussianFactors, SiteStatistics] | None = None
    ) -> SiteStatistics:
        """Return the site statistics at q, with the step that follows."""
        if len(q.mean) > 1:
            return super().statistics(q, known)
        curvature, exact = self._known_curvatures(q, known)
        ahead, weights = None if known is None else known[1].ahead, self.layer.weights
        arrays = StepArrays(
            weights, Latents(q.mean[0], q.sd[0], *self.prior), _first(curvature), _first(exact),
            paper=self.objective == "fm", unit=settled_unit(weights.dtype),
        )  # fmt: skip
        value, magnitude, rows, made = self._step(q, arrays, ahead.prepared if ahead and ahead.q is q else None)
        gradient, slope, mean, *terms = (part[np.newaxis] for part in (made.gradient, made.slope, made.mean, *rows))
        sd = q.sd if made.settled else made.sd[np.newaxis]
        return self._assemble(
            q,
            Pass(value, magnitude, gradient, None, None, *terms),
            made.curvature[np.newaxis],
            None if made.exact is None else made.exact[np.newaxis],
            np.array([made.spread_form]),
            Ahead(GaussianFactors(mean, sd), slope, np.array([made.prior_form]), made.prepared),
        )

    @property
    def spread_entering(self) -> str | None:
        """What enters the row terms, as in ``passes.fused_pass``."""
        return None if self.layer.family.curvature_is_constant else self.objective

    @abstractmethod
    def _step(self, q: GaussianFactors, arrays: StepArrays, prepared: Any) -> tuple[Array, Array, Any, Step]:
        """Return value and magnitude, (1,), ``eta``, ``error`` and ``kappa`` of the rows, (n,), and the step.

        ``prepared`` is what the last step left for this one, if it led here.
        """


class RowSite(PlainSite):
    """W is read by rows: the step comes after the pass."""

    def _step(self, q: GaussianFactors, arrays: StepArrays, prepared: Any) -> tuple[Array, Array, Any, Step]:
        weights, table = self.layer.weights, self.row_table
        assert table is not None
        parts, totals, rows = pass_parts(
            weights, self.row_bias, table, q.mean[0], q.sd[0], self.spread_entering, curvature=arrays.absolute,
            exact=arrays.squared, pairs=prepared,
        )  # fmt: skip
        return totals[:1], totals[1:], rows, row_step(weights, parts, arrays)


class ColumnSite(PlainSite):
    """W is read by columns: the step leaves the row sums at its end, with which the next statistics begin.

    A start, or a point that something else led to, takes one more reading of W, as every pass over columns does.
    """

    def _step(self, q: GaussianFactors, arrays: StepArrays, prepared: Any) -> tuple[Array, Array, Any, Step]:
        weights, table, spread = self.layer.weights, self.row_table, self.spread_entering
        assert reads_columns(weights)
        assert table is not None
        wanted = (arrays.absolute, spread == "elbo")
        if prepared is None or (wanted[0] and not prepared.absolute):
            prepared = project(weights, q.mean[0], q.sd[0], absolute=wanted[0], squared=wanted[1])
        rows = settle(weights, table, self.row_bias, prepared, spread, exact=arrays.squared)
        return rows.value, rows.magnitude, rows[2:5], column_step(weights, rows, arrays, wanted)


def _first(batch: Array | None) -> Array | None:
    return None if batch is None else batch[0]
