"""Plain forest mixture steps over a W that lies by columns, one reading of it for each."""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.column_passes import Latents, RowSums, project, reads_columns, settle, step
from forestmix.inference.problem import Problem
from forestmix.inference.rules import settled_unit
from forestmix.passes import Pass
from forestmix.posterior import GaussianFactors
from forestmix.statistics import Ahead, Site, SiteStatistics


class ColumnSite(Site):
    """A site whose statistics of one observation come with the plain step from there, and the row sums at its end.

    The next statistics, if they are asked for there, begin with these sums. A start, or a point that something else
    led to, takes one more reading of W, as every pass over columns does.
    """

    def __init__(self, problem: Problem) -> None:
        site = problem.site
        super().__init__(site.layer, site.data, site.objective)
        self.wants_curvature, self.wants_exact = site.wants_curvature, site.wants_exact
        self.prior = (problem.prior_mean, problem.prior_precision)

    def statistics(
        self, q: GaussianFactors, known: tuple[GaussianFactors, SiteStatistics] | None = None
    ) -> SiteStatistics:
        """Return the site statistics at q, with the step that follows."""
        if len(q.mean) > 1 or self.row_table is None:
            return super().statistics(q, known)
        assert reads_columns(self.layer.weights)
        curvature, exact = self._known_curvatures(q, known)
        paper, constant = self.objective == "fm", self.layer.family.curvature_is_constant
        wanted = (curvature is None, not paper and not constant)
        sums = self._row_sums(q, None if known is None else known[1].ahead, *wanted)
        weights, spread = self.layer.weights, None if constant else self.objective
        rows = settle(weights, self.row_table, self.row_bias, sums, spread, exact=exact is None and not paper)
        made = step(
            weights, rows, Latents(q.mean[0], q.sd[0], *self.prior), _first(curvature), _first(exact),
            paper=paper, ahead=wanted, unit=settled_unit(weights.dtype),
        )  # fmt: skip
        gradient, eta, error, kappa = (part[np.newaxis] for part in (made.gradient, rows.eta, rows.error, rows.kappa))
        sd = q.sd if made.settled else made.sd[np.newaxis]
        return self._assemble(
            q,
            Pass(rows.value, rows.magnitude, gradient, None, None, eta, error, kappa),
            made.curvature[np.newaxis],
            None if made.exact is None else made.exact[np.newaxis],
            np.array([made.spread_form]),
            Ahead(
                GaussianFactors(made.mean[np.newaxis], sd),
                made.sums,
                made.slope[np.newaxis],
                np.array([made.prior_form]),
            ),
        )

    def _row_sums(self, q: GaussianFactors, ahead: Ahead | None, absolute: bool, squared: bool) -> RowSums:
        """Return the row sums at q, those of the last step if it led there."""
        if ahead is not None and ahead.q is q and (ahead.sums.absolute or not absolute):
            return ahead.sums
        assert reads_columns(self.layer.weights)
        return project(self.layer.weights, q.mean[0], q.sd[0], absolute=absolute, squared=squared)


def _first(batch: Array | None) -> Array | None:
    return None if batch is None else batch[0]
