"""The sweeps of the compiled engine: arrays for its kernels, and threads over observations or blocks."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled import rows as row_kernels
from forestmix.engines.compiled import threaded
from forestmix.engines.compiled.columns import columns_of, rows_of
from forestmix.engines.protocol import Factors, Spread, SweepStart
from forestmix.partition import Partition

#: By how many units in the last place of its terms the objective may seem to fall through rounding.
ROUNDING_UNITS = 64


class Sweep:
    """The arrays of a sweep in float64: factors and states of rows, which it changes, and what it is given.

    ``terms``: the function for the terms of rows; ``None`` where no ``kappa`` depends on q.
    """

    def __init__(self, start: SweepStart) -> None:
        layer, rows, q, terms, prior = start
        self.layer, self.rows, self.columns = layer, rows, columns_of(layer.weights, layer.weights.storage())
        # By rows also where all observations share an sd: for another layout Numba would compile the kernels again.
        self.mean = np.array(q.mean, np.float64, order="C")
        self.sd = np.array(np.broadcast_to(q.sd, q.mean.shape), np.float64, order="C")
        self.states = np.zeros((len(self.mean), 5, layer.size))
        self.states[:, 0], self.states[:, 3], self.states[:, 4] = terms.eta, terms.error, terms.kappa
        self.prior = tuple(np.require(np.broadcast_to(part, layer.n_parents), np.float64, ["C", "W"]) for part in prior)
        self.unit = ROUNDING_UNITS * float(np.finfo(layer.dtype).eps)
        self.terms = None if rows.curvature_is_constant else rows.terms

    def fill_states(self, sd: Array) -> None:
        """Write the squared spreads of the ELBO and the terms at them into the states."""
        from forestmix.engines.compiled import group_sweeps

        if self.terms is not None:
            self.states[:, 1] = self.layer.weights.square().forward(np.square(sd))
            for k, state in enumerate(self.states):
                group_sweeps.start_state(self.rows.observation(k), state, self.terms, row_kernels.new_workspace())

    def call(self, kernel: Any, k: int, *own: Any, options: tuple[Any, ...] = ()) -> None:
        """Call a kernel for one observation, with what is its own between W and the states, and options after them."""
        kernel(
            self.rows.observation(k), self.columns, *own, self.states[k], self.mean[k], self.sd[k], self.prior,
            self.unit, *options, self.terms, row_kernels.new_workspace(),
        )  # fmt: skip

    def factors(self) -> Factors:
        """Return the factors as they are now, in the precision of the layer."""
        dtype = self.layer.dtype
        return Factors(self.mean.astype(dtype, copy=False), self.sd.astype(dtype, copy=False))

    def each_observation(self, run: Any) -> None:
        """Call ``run(k)`` for every observation, on threads where that pays."""
        count = len(self.mean)
        cuts = threaded.even_cuts(count, min(count, threaded.threads(count * len(self.columns.values))))
        threaded.run_all([partial(_each, run, *cut) for cut in pairwise(cuts)])


def _each(run: Any, first: int, last: int) -> None:
    for k in range(first, last):
        run(k)


def sweep_groups(sweep: Sweep, groups: Partition, *, surrogate: bool, safe: bool, spread: Spread) -> Factors:
    """Update the groups one after another, the members of each at once."""
    from forestmix.engines.compiled import group_sweeps as kernels

    if np.all(groups.sizes == 1):  # latents one by one, whose updates are exact
        sweep.fill_states(sweep.sd)
        starts, only = np.array([0, len(groups.members)], groups.starts.dtype), np.zeros(1, np.int64)
        block = starts, groups.members, only, kernels.ALONE
        sweep.each_observation(lambda k: sweep.call(kernels.sweep_blocks, k, *block))
    else:
        options = ((spread is Spread.ABSOLUTE, surrogate, safe),)
        own = groups.starts, groups.members
        sweep.each_observation(lambda k: sweep.call(kernels.sweep_groups, k, *own, options=options))
    return sweep.factors()


def sweep_blocks(sweep: Sweep, sd: Array, blocks: Partition, *, synchronous: bool) -> Factors:
    """Sweep the blocks on threads, whatever their size: that threads meet is the method."""
    from forestmix.engines.compiled import group_sweeps as kernels

    sweep.fill_states(sd)
    sharing = kernels.PRIVATE if synchronous else kernels.SHARED
    count = len(blocks.starts) - 1
    cuts = threaded.even_cuts(count, threaded.threads(threaded.WORTH_A_THREAD * count))
    for k in range(len(sweep.mean)):
        threaded.run_all([
            partial(sweep.call, kernels.sweep_blocks, k, blocks.starts, blocks.members, which, sharing)
            for which in np.split(np.arange(count), cuts[1:-1])
        ])  # fmt: skip
    return sweep.factors()


def sweep_greedy(sweep: Sweep, storage: Any, sd: Array, steps: int) -> Factors:
    """Update ``steps`` times, for each observation, the latent whose exact update raises the ELBO most."""
    from forestmix.engines.compiled import group_sweeps as kernels

    sweep.fill_states(sd)
    weights, (prior_mean, prior_precision) = sweep.layer.weights, sweep.prior
    slope = weights.adjoint(sweep.states[:, 3]) - (sweep.mean - prior_mean) * prior_precision
    precision = weights.square().adjoint(sweep.states[:, 4]) + prior_precision
    slope, precision = slope.astype(np.float64), precision.astype(np.float64)
    by_rows = rows_of(weights, storage)
    sweep.each_observation(lambda k: sweep.call(kernels.sweep_greedy, k, by_rows, steps, slope[k], precision[k]))
    return sweep.factors()
