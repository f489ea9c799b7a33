"""Where a run starts when the user gives no start of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.inference.latent_problem import LatentProblem
from forestmix.posterior import GaussianFactors, prior_factors


def default_start(problem: Any) -> Any:
    """Return q at the prior, its standard deviations narrowed where the rows call for it.

    Rows of varying curvature see the spread of q through ``E a(m + s z)``, and a fast-growing ``a`` overflows at the
    prior's spread when weights are large. Where the largest spread ``s_i = sum_j |w_ij| sigma_j`` is above 1, all
    standard deviations are divided by it, which leaves every row with a spread of at most 1. The first step gives each
    latent a width of its own.
    """
    if isinstance(problem, LatentProblem):
        return problem.default_start()
    start = prior_factors(problem.model, problem.n_observations)
    if problem.curvature_is_constant:
        return start
    widest = np.max(problem.site.layer.weights.project(None, start.sd, absolute=True).absolute)
    return GaussianFactors(start.mean, start.sd / max(widest, 1))
