"""Compiled sweeps for rows whose curvature varies with q, and how sweeps are launched: on threads, in plain arrays.

Threads share out the observations of a batch, or the blocks of an unsynchronised method.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.arrays import Array, plain
from forestmix.problem.gaussian import ROUNDING_UNITS, Point, Problem
from forestmix.partition import Partition
from forestmix.problem.given import GaussianFactors

if TYPE_CHECKING:  # Numba takes a second to load
    from forestmix.engines.compiled.rows import RowTable


def plain_rows(array: Array, part: slice) -> Array:
    """Return some rows of a batch array, or its only row where one serves the whole batch, as a plain array."""
    return plain(array if array.shape[0] == 1 else array[part])


def by_observations(problem: Problem, run: Callable[[slice], None]) -> None:
    """Run ``run`` on the observations of a batch, shared out on threads where that pays."""
    from forestmix.engines.compiled import threaded

    batch, columns = problem.n_observations, problem.site.column_arrays
    cuts = threaded.even_cuts(batch, min(batch, threaded.threads(batch * len(columns.values))))
    threaded.run_all([partial(run, slice(low, high)) for low, high in pairwise(cuts)])


def by_blocks(blocks: Partition, run: Callable[[Array], None]) -> None:
    """Run ``run`` on numbers of blocks, shared out on threads whatever their size: that they meet is the method."""
    from forestmix.engines.compiled import threaded

    count = len(blocks.starts) - 1
    cuts = threaded.even_cuts(count, threaded.threads(threaded.WORTH_A_THREAD * count))
    parts = np.split(np.arange(count), cuts[1:-1])
    threaded.run_all([partial(run, part) for part in parts])


class _Sweep:
    """The arrays of a sweep: factors that it changes, in float64, and what it starts from."""

    def __init__(self, problem: Problem, point: Point) -> None:
        self.problem, self.columns = problem, problem.site.column_arrays
        self.mean = point.q.mean.astype(np.float64)
        self.sd = np.broadcast_to(point.q.sd, point.q.mean.shape).astype(np.float64)
        self.eta, self.squared = plain(point.site.eta), plain(problem.site.spread(point.q.sd) ** 2)
        self.prior = plain(problem.prior_mean, np.float64), plain(problem.prior_precision, np.float64)
        self.unit = ROUNDING_UNITS * float(np.finfo(point.q.mean.dtype).eps)

    def table(self, part: slice) -> RowTable:
        """Return the rows of some observations as the kernels know them."""
        table = self.problem.site.row_table
        assert table is not None
        kind, constant = plain_rows(table.kind, part), plain_rows(table.constant, part)
        return type(table)(kind, plain(table.x[part]), plain(table.scale), constant)

    def start(self, part: slice) -> tuple[Any, ...]:
        """Return the arguments that all sweeps have, for some observations."""
        squared = plain_rows(self.squared, part)
        return self.eta[part], squared, self.mean[part], self.sd[part], self.prior, self.unit

    def factors(self) -> GaussianFactors:
        """Return the factors as they are now, in the precision of the model."""
        dtype = self.problem.model.dtype
        return GaussianFactors(self.mean.astype(dtype, copy=False), self.sd.astype(dtype, copy=False))


def sweep_groups(problem: Problem, point: Point, groups: Partition, *, surrogate: bool, safe: bool) -> GaussianFactors:
    """Update the groups one after another, the members of each at once."""
    from forestmix.engines.compiled import climb

    sweep = _Sweep(problem, point)
    options = (problem.site.objective == "fm", surrogate, safe)

    def run(part: slice) -> None:
        arguments = sweep.table(part), sweep.columns
        if safe and len(groups.members) == len(groups.starts) - 1:
            climb.climb_ones(*arguments, groups.members, *sweep.start(part))
        else:
            climb.climb_groups(*arguments, groups.starts, groups.members, options, *sweep.start(part))

    by_observations(problem, run)
    return sweep.factors()


def sweep_blocks(problem: Problem, point: Point, blocks: Partition, synchronous: bool) -> GaussianFactors:
    """Sweep the blocks on threads, each as the others were at the start or, unsynchronised, as they are."""
    from forestmix.engines.compiled import climb

    sweep = _Sweep(problem, point)
    table = sweep.table(slice(None))
    states = climb.row_states(table, sweep.eta, sweep.squared)

    def run(which: Array) -> None:
        climb.climb_blocks(
            table, sweep.columns, blocks.starts, blocks.members, which, synchronous,
            states, sweep.mean, sweep.sd, sweep.prior, sweep.unit,
        )  # fmt: skip

    by_blocks(blocks, run)
    return sweep.factors()


def sweep_greedy(problem: Problem, point: Point, steps: int) -> GaussianFactors:
    """Update ``steps`` times, for each observation, the variable with the largest predicted gain."""
    from forestmix.engines.compiled import greedy

    sweep, by_rows = _Sweep(problem, point), problem.site.row_arrays
    gradient = point.gradient.astype(np.float64)
    precision = np.broadcast_to(problem.precision(point), gradient.shape).astype(np.float64)

    def run(part: slice) -> None:
        start = sweep.start(part)
        greedy.climb_greedy(sweep.table(part), sweep.columns, by_rows, steps, gradient[part], precision[part], *start)

    by_observations(problem, run)
    return sweep.factors()
