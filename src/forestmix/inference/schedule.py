"""Schedules: which latents the next parallel step updates.

A sweep visits every latent once, in groups. The groups are updated one after another, each being one parallel step; the
members of a group are updated at once. All latents at once is the schedule with nothing to keep track of
(``plain.step_sets``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.inference.base import Proposal, Steps
from forestmix.partition import Partition


class Sweeps(Steps):
    """Exact updates in an endless row of sweeps, so that an iteration can be a whole sweep or some steps of it.

    A parallel step updates one latent of every block, until the longest block is through.

    Args:
        blocks: the blocks; one block of all latents gives coordinate ascent, one latent after another.
        rng: draws a new order inside each block for every sweep; ``None`` for the order given.
        steps: how many parallel steps an iteration makes; a whole sweep for ``None``.

    """

    def __init__(self, blocks: Partition, rng: np.random.Generator | None, steps: int | None = None) -> None:
        self.blocks, self._rng, self.steps = blocks, rng, steps
        self.random: Any = None if rng is None else rng.bit_generator.state
        self.groups, self.position = self.sweep(), 0

    def sweep(self) -> Partition:
        """Return the steps of the next sweep: step t is the t-th latent of every block that has one."""
        lists = self.blocks.lists()
        if self._rng is not None:
            self._rng.bit_generator.state = self.random  # where a checkpoint has left it
            lists = [self._rng.permutation(block) for block in lists]
            self.random = self._rng.bit_generator.state
        place = np.concatenate([np.arange(len(block)) for block in lists])
        starts = np.concatenate([[0], np.cumsum(np.bincount(place))]).astype(np.int64)
        return Partition(starts, np.concatenate(lists)[np.argsort(place, kind="stable")].astype(np.int64))

    def next_steps(self) -> Partition:
        """Return the next parallel steps, or what is left of the sweep."""
        if self.position == len(self.groups.sizes):
            self.groups, self.position = self.sweep(), 0
        first, total = self.position, len(self.groups.sizes)
        self.position = total if self.steps is None else min(first + self.steps, total)
        starts = self.groups.starts[first : self.position + 1]
        return Partition(starts - starts[0], self.groups.members[starts[0] : starts[-1]])

    def propose(self, problem: Any, point: Any) -> Proposal:
        """Update the latents of the next steps, those of a step at once."""
        groups = self.next_steps()
        return Proposal(problem.sweep(point, groups, surrogate=False), len(groups.sizes), len(groups.members))
