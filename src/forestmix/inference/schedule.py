"""Schedules: which latents the next parallel step updates.

A schedule gives one sweep at a time, as groups of latents. The groups are updated one after another, each being one
parallel step; the members of a group are updated at once. A sweep visits every latent once. All latents at once is the
schedule with nothing to keep track of (``backtracking.step_sets``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.inference.base import Memory
from forestmix.partition import Partition


class Schedule(ABC):
    """Which latents are updated together, and in what order."""

    @abstractmethod
    def sweep(self, rng: np.random.Generator) -> Partition:
        """Return the groups of the next sweep."""


class OneOfEveryBlock(Schedule):
    """One latent of every block in each parallel step, until the longest block is through.

    Args:
        blocks: the blocks; one block of all latents gives coordinate ascent, one latent after another.
        shuffle: draw a new order inside each block for every sweep, rather than the order given.

    """

    def __init__(self, blocks: Partition, shuffle: bool) -> None:
        self.blocks, self.shuffle = blocks, shuffle
        self.cyclic = self._steps(blocks.lists())

    def sweep(self, rng: np.random.Generator) -> Partition:
        """Return step t of the sweep as the t-th latent of every block that has one."""
        if not self.shuffle:
            return self.cyclic
        return self._steps([rng.permutation(block) for block in self.blocks.lists()])

    def _steps(self, lists: list[Array]) -> Partition:
        members = np.concatenate(lists)
        place = np.concatenate([np.arange(len(block)) for block in lists])
        order = np.argsort(place, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(place))]).astype(np.int64)
        return Partition(starts, members[order].astype(np.int64))


class GroupAfterGroup(Schedule):
    """The groups as they were given, one after another."""

    def __init__(self, groups: Partition) -> None:
        self.groups = groups

    def sweep(self, rng: np.random.Generator) -> Partition:
        """Return the groups."""
        return self.groups


class Cursor:
    """A place in an endless row of sweeps, so that an iteration can be a whole sweep or some steps of it."""

    def __init__(self, schedule: Schedule, rng: np.random.Generator) -> None:
        self.schedule, self.rng = schedule, rng
        self.groups = schedule.sweep(rng)
        self.position = 0

    def take(self, steps: int | None) -> Partition:
        """Return the next ``steps`` parallel steps, or what is left of the sweep, or a whole sweep for ``None``."""
        total = len(self.groups.starts) - 1
        if self.position == total:
            self.groups, self.position = self.schedule.sweep(self.rng), 0
            total = len(self.groups.starts) - 1
        first = self.position
        self.position = total if steps is None else min(first + steps, total)
        if first == 0 and self.position == total:
            return self.groups
        starts = self.groups.starts[first : self.position + 1]
        return Partition(starts - starts[0], self.groups.members[starts[0] : starts[-1]])


class SweepMemory(Memory):
    """A place in a row of sweeps, the same for every observation of a batch."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    def state(self) -> dict[str, Any]:
        """Return the place, the sweep it is in, and the state of the generator of the next sweeps."""
        cursor = self.cursor
        return {"position": cursor.position, "groups": cursor.groups, "random": cursor.rng.bit_generator.state}

    def restore(self, state: dict[str, Any], problem: Any, point: Any) -> None:
        """Go on from a checkpoint."""
        self.cursor.position, self.cursor.groups = state["position"], state["groups"]
        self.cursor.rng.bit_generator.state = state["random"]
