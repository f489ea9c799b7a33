"""Sweeps in NumPy for rows that the compiled kernels do not know, and what the compiled sweeps are held to.

The row terms change as a sweep goes on: after each group, the means and squared spreads of the rows it touched are
brought up to date, and the next group sees them. ``inference.sweep`` chooses between these and the compiled ones.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy

from forestmix.arrays import Array, total
from forestmix.problem.gaussian import ROUNDING_UNITS, Point, Problem
from forestmix.partition import Partition
from forestmix.problem.given import GaussianFactors

#: How often a step that lowers the objective is halved before the group is left as it is.
HALVINGS = 30


class RowState:
    """The factors and, for each row, the mean and squared spread of eta; updated in place as a sweep goes on."""

    def __init__(self, problem: Problem, point: Point) -> None:
        self.problem = problem
        self.mean = point.q.mean.copy()
        self.sd = np.broadcast_to(point.q.sd, point.q.mean.shape).copy()
        self.eta = point.site.eta.copy()
        self.squared_spread = np.broadcast_to(problem.site.spread(point.q.sd) ** 2, self.eta.shape).copy()

    def copy(self) -> RowState:
        """Return a state of its own, for a block that is to see the others as they are now."""
        other = object.__new__(RowState)
        other.problem = self.problem
        for name in ("mean", "sd", "eta", "squared_spread"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def factors(self) -> GaussianFactors:
        """Return the factors as they are now."""
        return GaussianFactors(self.mean, self.sd)


class _Group:
    """One group of latents and the rows they reach."""

    def __init__(self, problem: Problem, members: Array) -> None:
        columns = problem.site.columns
        if len(members) == 1:
            part = slice(columns.indptr[members[0]], columns.indptr[members[0] + 1])
            self.rows, local = columns.indices[part], np.arange(part.stop - part.start)
            data, starts = columns.data[part], np.array([0, part.stop - part.start])
        else:
            chosen = columns[:, members]
            self.rows, local = np.unique(chosen.indices, return_inverse=True)
            data, starts = chosen.data, chosen.indptr
        self.members = members
        self.weights = scipy.sparse.csc_array((data, local, starts), shape=(len(self.rows), len(members)))
        self.by_sum = problem.site.objective == "fm"

    def forward(self, values: Array) -> Array:
        """Return ``W v`` on the rows of the group, for each observation."""
        return (self.weights @ values.T).T

    def adjoint(self, values: Array) -> Array:
        """Return ``W^T r`` from the rows of the group, for each observation."""
        return (self.weights.T @ values.T).T

    def absolute_spread(self, sd: Array) -> Array:
        """Return ``sum_{j in G} |w_ij| sigma_j``."""
        return (abs(self.weights) @ sd.T).T

    def squared_spread(self, sd: Array) -> Array:
        """Return what the group adds to the squared spread of its rows: L1 within the group for objective "fm"."""
        return self.absolute_spread(sd) ** 2 if self.by_sum else (self.weights.power(2) @ (sd**2).T).T

    def precisions(self, sd: Array, kappa: Array) -> tuple[Array, Array]:
        """Return the group's forest mixture curvature ``D`` and the exact information ``H``."""
        curvature = (abs(self.weights).T @ (self.absolute_spread(sd) * kappa).T).T / sd
        return curvature, (self.weights.power(2).T @ kappa.T).T


def update_group(state: RowState, members: Array, *, surrogate: bool = False, safe: bool = True) -> None:
    """Update one group; each observation takes the longest of the steps 1, 1/2, 1/4, ... that does not lower it.

    ``surrogate`` and ``safe`` as in ``inference.sweep``.
    """
    problem, group = state.problem, _Group(state.problem, members)
    mean, sd = state.mean[:, members], state.sd[:, members]
    eta, squared = state.eta[:, group.rows], state.squared_spread[:, group.rows]
    log_likelihood, error, kappa = problem.site.row_terms(eta, np.sqrt(squared), group.rows)
    kappa = np.broadcast_to(kappa, eta.shape)
    prior_mean, prior_precision = problem.prior_mean[members], problem.prior_precision[members]
    curvature, exact = group.precisions(sd, kappa)
    slope = group.adjoint(error) - (mean - prior_mean) * prior_precision
    change = slope / (prior_precision + (curvature if surrogate else exact))
    precision = prior_precision + (curvature if group.by_sum else exact)

    def objective(likelihood: Array, mean: Array, sd: Array) -> Array:
        divergence = 0.5 * (((mean - prior_mean) ** 2 + sd**2) * prior_precision) - np.log(sd)
        return total(likelihood) - total(divergence)

    before = objective(log_likelihood, mean, sd)
    slack = ROUNDING_UNITS * float(np.finfo(mean.dtype).eps) * (total(np.abs(log_likelihood)) + len(members))
    share = np.full((len(mean), 1), 1, mean.dtype)
    for _ in range(HALVINGS if safe else 1):
        new_mean = mean + share * change
        new_sd = ((1 - share) * sd**-2 + share * precision) ** -0.5
        new_eta = eta + group.forward(new_mean - mean)
        new_squared = np.maximum(squared + group.squared_spread(new_sd) - group.squared_spread(sd), 0)
        if not safe:
            break
        after = objective(problem.site.row_terms(new_eta, np.sqrt(new_squared), group.rows)[0], new_mean, new_sd)
        fell = ~(after >= before - slack)
        if not fell.any():
            break
        share[fell] /= 2
    else:
        for new, old in ((new_mean, mean), (new_sd, sd), (new_eta, eta), (new_squared, squared)):
            new[fell] = old[fell]
    state.mean[:, members], state.sd[:, members] = new_mean, new_sd
    # Added rather than set: threads that share the state do not undo each other's updates altogether.
    state.eta[:, group.rows] += new_eta - eta
    state.squared_spread[:, group.rows] += new_squared - squared


def sweep_groups(problem: Problem, point: Point, groups: Partition, *, surrogate: bool, safe: bool) -> GaussianFactors:
    """Update the groups one after another, the members of each at once."""
    state = RowState(problem, point)
    for members in groups.lists():
        update_group(state, members, surrogate=surrogate, safe=safe)
    return state.factors()


def sweep_blocks(problem: Problem, point: Point, blocks: Partition, synchronous: bool) -> GaussianFactors:
    """Sweep every block on a thread of its own, on a copy of the state or, unsynchronised, on the one all share."""
    shared = RowState(problem, point)
    states = [shared.copy() if synchronous else shared for _ in blocks.lists()]

    def sweep(state: RowState, block: Array) -> None:
        # The caller's error state is its thread's own; overflow is a status of the result here too.
        with np.errstate(all="ignore"):
            for j in block:
                update_group(state, np.array([j]))

    with ThreadPoolExecutor(max_workers=min(len(states), 32)) as threads:
        list(threads.map(sweep, states, blocks.lists()))
    if not synchronous:
        return shared.factors()
    for state, block in zip(states, blocks.lists(), strict=True):
        shared.mean[:, block], shared.sd[:, block] = state.mean[:, block], state.sd[:, block]
    return shared.factors()


def sweep_greedy(problem: Problem, point: Point, steps: int) -> GaussianFactors:
    """Update ``steps`` times, for each observation, the variable with the largest predicted gain."""
    for _ in range(steps):
        precision = problem.precision(point)
        ratio = point.q.sd**2 * precision
        gain = 0.5 * point.gradient**2 / precision + 0.5 * (ratio - 1 - np.log(ratio))
        best = np.argmax(gain, axis=1)
        state = RowState(problem, point)
        for j in np.unique(best):
            trial = state.copy()
            update_group(trial, np.array([j]))
            rows = best == j
            state.mean[rows, j], state.sd[rows, j] = trial.mean[rows, j], trial.sd[rows, j]
        point = problem.evaluate(state.factors())
    return point.q
