"""Plain forest mixture steps over a W that lies by columns, one reading of it for each."""

from __future__ import annotations

import numpy as np

from forestmix.arrays import Array
from forestmix.column_passes import Latents, project, reads_columns, step
from forestmix.inference.problem import Problem
from forestmix.inference.rules import settled
from forestmix.passes import Pass, settle_rows
from forestmix.posterior import GaussianFactors
from forestmix.statistics import Ahead, Site, SiteStatistics
from forestmix.weights.base import Projection


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
        eta = (sums.linear + self.row_bias)[np.newaxis]
        spread = None if constant else (sums.absolute if paper else np.sqrt(sums.squared))[np.newaxis]
        value, magnitude, error, kappa = settle_rows(self.row_bias, self.row_table, eta, spread)
        weighted = kappa[0] if sums.absolute is None else sums.absolute * kappa[0]
        made = step(
            self.layer.weights, (error[0], weighted, kappa[0]), Latents(q.mean[0], q.sd[0], *self.prior),
            _first(curvature), _first(exact), paper=paper, ahead=wanted,
        )  # fmt: skip
        sd = settled(made.sd[np.newaxis], q.sd)
        return self._assemble(
            q,
            Pass(value, magnitude, made.gradient[np.newaxis], None, None, eta, error, kappa),
            made.curvature[np.newaxis],
            None if made.exact is None else made.exact[np.newaxis],
            Ahead(GaussianFactors(made.mean[np.newaxis], sd), made.sums),
        )

    def _row_sums(self, q: GaussianFactors, ahead: Ahead | None, absolute: bool, squared: bool) -> Projection:
        """Return the row sums at q, those of the last step if it led there."""
        if ahead is not None and ahead.q is q and (ahead.sums.absolute is not None or not absolute):
            return ahead.sums
        assert reads_columns(self.layer.weights)
        return project(self.layer.weights, q.mean[0], q.sd[0], absolute=absolute, squared=squared)


def _first(batch: Array | None) -> Array | None:
    return None if batch is None else batch[0]
