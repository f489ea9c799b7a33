"""Schedules: which latents the next parallel step updates.

A sweep visits every latent once, in groups. The groups are updated one after another, each being one parallel step; the
members of a group are updated at once. All latents at once is the schedule with nothing to keep track of
(``plain.step_sets``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.inference.base import Memory
from forestmix.partition import Partition


class Sweeps(Memory):
    """A place in an endless row of sweeps, so that an iteration can be a whole sweep or some steps of it.

    A parallel step updates one latent of every block, until the longest block is through.

    Args:
        blocks: the blocks; one block of all latents gives coordinate ascent, one latent after another.
        rng: draws a new order inside each block for every sweep; ``None`` for the order given.

    """

    def __init__(self, blocks: Partition, rng: np.random.Generator | None) -> None:
        self.blocks, self.rng = blocks, rng
        self.groups, self.position = self.sweep(), 0

    def sweep(self) -> Partition:
        """Return the steps of the next sweep: step t is the t-th latent of every block that has one."""
        lists = self.blocks.lists()
        if self.rng is not None:
            lists = [self.rng.permutation(block) for block in lists]
        place = np.concatenate([np.arange(len(block)) for block in lists])
        starts = np.concatenate([[0], np.cumsum(np.bincount(place))]).astype(np.int64)
        return Partition(starts, np.concatenate(lists)[np.argsort(place, kind="stable")].astype(np.int64))

    def next_steps(self, steps: int | None) -> Partition:
        """Return the next ``steps`` parallel steps, or what is left of the sweep, or a whole sweep for ``None``."""
        total = len(self.groups.starts) - 1
        if self.position == total:
            self.groups, self.position = self.sweep(), 0
            total = len(self.groups.starts) - 1
        first = self.position
        self.position = total if steps is None else min(first + steps, total)
        if first == 0 and self.position == total:
            return self.groups
        starts = self.groups.starts[first : self.position + 1]
        return Partition(starts - starts[0], self.groups.members[starts[0] : starts[-1]])

    def state(self) -> dict[str, Any]:
        """Return the place, the sweep it is in, and the state of the generator of the next sweeps."""
        return {"position": self.position, "groups": self.groups, "random": self.rng and self.rng.bit_generator.state}

    def restore(self, state: dict[str, Any], problem: Any, point: Any) -> None:
        """Go on from a checkpoint."""
        self.position, self.groups = state["position"], state["groups"]
        if self.rng is not None:
            self.rng.bit_generator.state = state["random"]
