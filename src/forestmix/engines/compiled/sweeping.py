"""The sweeps of the compiled engine: arrays for its kernels, and threads over observations or blocks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from forestmix.engines.compiled import greedy, sweeps, threaded
from forestmix.engines.compiled.columns import columns_of, rows_of
from forestmix.engines.protocol import Factors, Spread, SweepStart
from forestmix.families.expectations import quiet
from forestmix.partition import Partition

#: By how many units in the last place of its terms the objective may seem to fall through rounding.
ROUNDING_UNITS = 64


class CoordinateSweeps:
    """The methods of an engine with ``Capability.SWEEP``: updates on the ELBO, or of groups on the grouped bound.

    Each takes factors and the terms of the rows at them, and returns new factors. Rows of varying curvature have each
    step halved until the objective does not fall, where ``safe``.
    """

    @quiet
    def sweep_groups(
        self, start: SweepStart, groups: Partition, *, surrogate: bool, safe: bool, spread: Spread
    ) -> Factors:
        """Update the groups one after another, the members of each at once.

        ``surrogate``: step with the forest mixture precision of the group (Theorem 2) and not with the exact one of
        each latent; ``spread``: ABSOLUTE for Jensen's inequality inside each group, SQUARED for the ELBO.
        """
        sweep, options = _Sweep(start), (spread is Spread.ABSOLUTE, surrogate, safe)
        blocks, only = np.array([0, len(groups.sizes)]), np.zeros(1, np.int64)
        given = sweep.columns, groups.starts, groups.members, blocks, only, False, options
        sweep.each_observation(lambda k: sweeps.sweep(*given, *sweep.observation(k)))
        return sweep.factors()

    @quiet
    def sweep_blocks(self, start: SweepStart, blocks: Partition, *, synchronous: bool) -> Factors:
        """Sweep the blocks on threads, each with the others as at the start or, unsynchronised, as they are now.

        They are on threads whatever their size: that threads meet is the method.
        """
        sweep, options = _Sweep(start), (False, False, True)
        ones, count = np.arange(len(blocks.members) + 1), len(blocks.sizes)
        cuts = threaded.even_cuts(count, threaded.threads(threaded.WORTH_A_THREAD * count))
        for k in range(len(sweep.mean)):
            threaded.run_all([
                partial(sweeps.sweep, sweep.columns, ones, blocks.members, blocks.starts, which, synchronous, options,
                        *sweep.observation(k))
                for which in np.split(np.arange(count), cuts[1:-1])
            ])  # fmt: skip
        return sweep.factors()

    @quiet
    def sweep_greedy(self, start: SweepStart, steps: int) -> Factors:
        """Update ``steps`` times, for each observation, the latent whose exact update raises the ELBO most."""
        sweep, weights = _Sweep(start), start.layer.weights
        prior_mean, prior_precision = sweep.prior
        slope = weights.adjoint(sweep.states[:, sweeps.ERROR]) - (sweep.mean - prior_mean) * prior_precision
        precision = weights.square().adjoint(sweep.states[:, sweeps.KAPPA]) + prior_precision
        slope, precision = slope.astype(np.float64), precision.astype(np.float64)
        given = sweep.columns, rows_of(weights, weights.storage()), steps
        sweep.each_observation(lambda k: greedy.sweep_greedy(*given, slope[k], precision[k], *sweep.observation(k)))
        return sweep.factors()


class _Sweep:
    """The arrays of a sweep in float64: factors and states of rows, which it changes, and what it is given."""

    def __init__(self, start: SweepStart) -> None:
        layer, rows, q, terms, spread, prior = start
        self.rows, self.columns, self.dtype = rows, columns_of(layer.weights, layer.weights.storage()), layer.dtype
        # By rows also where all observations share an sd: for another layout Numba would compile the kernels again.
        self.mean = np.array(q.mean, np.float64, order="C")
        self.sd = np.array(np.broadcast_to(q.sd, q.mean.shape), np.float64, order="C")
        self.prior = tuple(np.require(np.broadcast_to(part, layer.n_parents), np.float64, ["C", "W"]) for part in prior)
        self.states = np.zeros((len(self.mean), 5, layer.size))
        self.states[:, sweeps.ETA], self.states[:, sweeps.ERROR], self.states[:, sweeps.KAPPA] = terms
        # No function for terms where no kappa depends on q.
        self.terms = None if rows.curvature_is_constant else rows.terms
        if self.terms is not None:
            self.states[:, sweeps.SQUARED] = np.square(spread)
            for k, state in enumerate(self.states):
                sweeps.start_state(rows.observation(k), state, self.terms)

    def observation(self, k: int) -> tuple[Any, ...]:
        """Return the last arguments of a kernel, for one observation."""
        latents = sweeps.Latents(self.mean[k], self.sd[k], *self.prior)
        unit = ROUNDING_UNITS * float(np.finfo(self.dtype).eps)
        return self.rows.observation(k), self.states[k], latents, unit, self.terms

    def factors(self) -> Factors:
        """Return the factors as they are now, in the precision of the layer."""
        return Factors(self.mean.astype(self.dtype, copy=False), self.sd.astype(self.dtype, copy=False))

    def each_observation(self, run: Any) -> None:
        """Call ``run(k)`` for every observation, on threads where that pays."""
        count = len(self.mean)
        cuts = threaded.even_cuts(count, min(count, threaded.threads(count * len(self.columns.values))))

        def each(first: int, last: int) -> None:
            for k in range(first, last):
                run(k)

        threaded.over_ranges(each, cuts)
