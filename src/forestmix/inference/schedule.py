"""Schedules: which latents the next parallel step updates.

A sweep visits every latent once, in groups. The groups are updated one after another, each being one parallel step; the
members of a group are updated at once. All latents at once is the schedule with nothing to keep track of
(``backtracking.step_sets``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.inference.base import Memory
from forestmix.partition import Partition

#: Gives the groups of the next sweep, of which some are drawn.
Schedule = Callable[[np.random.Generator], Partition]


def one_of_every_block(blocks: Partition, shuffle: bool) -> Schedule:
    """Return the schedule of one latent of every block in each parallel step, until the longest block is through.

    Args:
        blocks: the blocks; one block of all latents gives coordinate ascent, one latent after another.
        shuffle: draw a new order inside each block for every sweep, rather than the order given.

    """
    cyclic = _steps(blocks.lists())

    def sweep(rng: np.random.Generator) -> Partition:
        return _steps([rng.permutation(block) for block in blocks.lists()]) if shuffle else cyclic

    return sweep


def _steps(lists: list[Array]) -> Partition:
    """Return step t of a sweep as the t-th latent of every block that has one."""
    members = np.concatenate(lists)
    place = np.concatenate([np.arange(len(block)) for block in lists])
    order = np.argsort(place, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(place))]).astype(np.int64)
    return Partition(starts, members[order].astype(np.int64))


def group_after_group(groups: Partition) -> Schedule:
    """Return the schedule of groups as they were given, one after another."""
    return lambda rng: groups


class Sweeps(Memory):
    """A place in an endless row of sweeps, so that an iteration can be a whole sweep or some steps of it."""

    def __init__(self, schedule: Schedule, rng: np.random.Generator) -> None:
        self.schedule, self.rng = schedule, rng
        self.groups = schedule(rng)
        self.position = 0

    def next_steps(self, steps: int | None) -> Partition:
        """Return the next ``steps`` parallel steps, or what is left of the sweep, or a whole sweep for ``None``."""
        total = len(self.groups.starts) - 1
        if self.position == total:
            self.groups, self.position = self.schedule(self.rng), 0
            total = len(self.groups.starts) - 1
        first = self.position
        self.position = total if steps is None else min(first + steps, total)
        if first == 0 and self.position == total:
            return self.groups
        starts = self.groups.starts[first : self.position + 1]
        return Partition(starts - starts[0], self.groups.members[starts[0] : starts[-1]])

    def state(self) -> dict[str, Any]:
        """Return the place, the sweep it is in, and the state of the generator of the next sweeps."""
        return {"position": self.position, "groups": self.groups, "random": self.rng.bit_generator.state}

    def restore(self, state: dict[str, Any], problem: Any, point: Any) -> None:
        """Go on from a checkpoint."""
        self.position, self.groups = state["position"], state["groups"]
        self.rng.bit_generator.state = state["random"]
