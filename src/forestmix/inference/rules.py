"""Rules: how the members of a group are updated, as the precision of each variable's own quadratic problem.

Every rule moves a mean by ``gradient_j / P_j`` and sets a new standard deviation. They differ in ``P_j``::

    exact coordinate update    P_j = 1 / sigma0_j^2 + sum_i w_ij^2 kappa_i               safe for one variable
    forest mixture surrogate   P_j = 1 / sigma0_j^2 + sum_i kappa_i w_ij^2 / epsilon_ij  safe for a group (Theorem 2)
    damped                     the exact P_j, divided by the step
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from forestmix import vectors
from forestmix.arrays import Array, plain
from forestmix.inference.compiled import by_observations, plain_rows
from forestmix.problem.gaussian import Point, Problem
from forestmix.inference.sweep import sweeps
from forestmix.partition import Partition
from forestmix.problem.given import GaussianFactors

#: Units in the last place by which a standard deviation may change and count as the same.
SETTLED = 4


class Rule(Protocol):
    """A rule returns ``P_j``, the precision to step with, and the new standard deviation, each (N or 1, m)."""

    def __call__(self, problem: Problem, point: Point) -> tuple[Array, Array]:
        """Return the step precision and the new standard deviation of every variable."""


def exact(problem: Problem, point: Point) -> tuple[Array, Array]:
    """Return the exact coordinate update, each variable's optimum with the others held."""
    # The site's objective is the ELBO wherever this rule is used, so its information is sum_i w_ij^2 kappa_i.
    return problem.precision(point), spread_at(problem, point.site.information, point.q.sd)


def damped(step: float) -> Rule:
    """Return the exact update with the means going only the fraction ``step`` of the way."""

    def rule(problem: Problem, point: Point) -> tuple[Array, Array]:
        precision, sd = exact(problem, point)
        return precision / precision.dtype.type(step), sd

    return rule


def forest_mixture(problem: Problem, point: Point) -> tuple[Array, Array]:
    """Return the maximiser of the forest mixture surrogate (paper, Theorem 2; docs/guide.md for "elbo")."""
    sd = spread_at(problem, point.site.information, point.q.sd)
    return problem.prior_precision + problem.curvature(point), sd


def spread_at(problem: Problem, information: Array, old: Array) -> Array:
    """Return ``1 / sqrt(1 / sigma0_j^2 + information_j)``, the best spread, or ``old`` where it has settled."""
    return vectors.spreads(problem.prior_precision, information, old, settled_unit(information.dtype))


def settled_unit(dtype: np.dtype[Any]) -> float:
    """Return by how much, relatively, a standard deviation may change and count as the same."""
    return float(dtype.type(SETTLED * np.finfo(dtype).eps))


def settled(new: Array, old: Array) -> Array:
    """Return ``old`` itself once ``new`` equals it to rounding, so that what depends on it need not be recomputed."""
    if new.shape == old.shape and np.all(np.abs(new - old) <= settled_unit(new.dtype) * old):
        return old
    return new


def step_all(problem: Problem, point: Point, rule: Rule) -> GaussianFactors:
    """Update every latent at once."""
    precision, sd = rule(problem, point)
    return GaussianFactors(point.q.mean + point.gradient / precision, sd)


def step_forest(problem: Problem, point: Point) -> GaussianFactors:
    """Update every latent at once by the forest mixture rule, in one reading of the vectors."""
    information, old = point.site.information, point.q
    mean, sd = vectors.step(
        problem.prior_precision, problem.curvature(point), information, point.gradient, old.mean, old.sd,
        settled_unit(information.dtype),
    )  # fmt: skip
    return GaussianFactors(mean, sd)


def plain_step(problem: Any, point: Any) -> Any:
    """Update every latent at once by the forest mixture rule, in arrays of any library (paper, Theorem 2).

    With ``P`` the precision of q at its optimum::

        mu_j <- mu_j + gradient_j / (1 / sigma0_j^2 + D_j)        1 / sigma_j^2 <- P_j
    """
    D = point.statistics.curvature_sd / point.q.sd
    mean = point.q.mean + point.gradient / (problem.prior_precision + D)
    return type(point.q)(mean, problem.precision(point) ** -0.5)


def mix(old: Any, new: Any, share: float | Array) -> Any:
    """Return the factors that go the fraction ``share`` of the way, in the means and in the precisions."""
    precision = (1 - share) * old.sd**-2 + share * new.sd**-2
    return type(old)(old.mean + share * (new.mean - old.mean), precision**-0.5)


def step_groups(problem: Problem, point: Point, rule: Rule, groups: Partition) -> GaussianFactors:
    """Update the groups one after another, the members of each at once.

    For rows of constant curvature ``P_j`` depends on the standard deviations of j's own group only, so the precisions
    of all groups can be computed before the first of them moves. Other rows take a sweep that goes along with them,
    which halves steps that lower the objective; exact updates of several variables at once may lower it.
    """
    if not problem.curvature_is_constant:
        surrogate = rule is forest_mixture
        safe = surrogate or bool(np.all(groups.sizes == 1))
        return sweeps(problem).sweep_groups(problem, point, groups, surrogate=surrogate, safe=safe)
    from forestmix.engines.compiled import coordinate

    precision, sd = rule(problem, point)
    mean, error = point.q.mean.copy(), point.site.error.copy()
    prior = plain(problem.prior_mean), plain(problem.prior_precision)

    def run(part: slice) -> None:
        coordinate.relax_groups(
            problem.site.column_arrays, groups.starts, groups.members, mean[part], error[part],
            plain_rows(point.site.kappa, part), plain_rows(precision, part), prior,
        )  # fmt: skip

    by_observations(problem, run)
    return GaussianFactors(mean, visited_sd(sd, point.q.sd, groups.members))


def visited_sd(new: Array, old: Array, members: Array) -> Array:
    """Return the new standard deviations of the variables that were visited, the old ones of the rest."""
    if new is old or len(members) == new.shape[1]:
        return new
    rows = max(new.shape[0], old.shape[0])
    mixed = np.broadcast_to(old, (rows, old.shape[1])).copy()
    mixed[:, members] = new[:, members]
    return settled(mixed, old)
