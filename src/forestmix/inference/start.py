"""Where a run starts when the user gives no start of their own."""

from __future__ import annotations

import numpy as np

from forestmix.inference.problem import Problem
from forestmix.posterior import GaussianFactors, prior_factors


def default_start(problem: Problem) -> GaussianFactors:
    """Return q at the prior, its standard deviations narrowed where the rows call for it.

    Rows of varying curvature see the spread of q through ``E a(m + s z)``, and a fast-growing ``a`` overflows at the
    prior's spread when weights are large. Dividing each standard deviation by the largest spread
    ``s_i = sum_j |w_ij| sigma_j`` above 1 among its rows leaves every row with a spread of at most 1.
    """
    start = prior_factors(problem.model, problem.n_observations)
    if problem.curvature_is_constant:
        return start
    columns = abs(problem.site.layer.weights).columns()
    spread = problem.site.absolute.forward(start.sd)[0]
    widest = np.ones_like(start.sd[0])
    np.maximum.at(widest, np.repeat(np.arange(problem.size), np.diff(columns.indptr)), spread[columns.indices])
    return GaussianFactors(start.mean, start.sd / widest)
