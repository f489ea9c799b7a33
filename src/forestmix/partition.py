"""Latents split into groups: the blocks of block methods, the groups of grouped bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any

import numpy as np

from forestmix.arrays import Array, numbers
from forestmix.errors import ArgumentError


@dataclass(frozen=True)
class Partition:
    """Latents split into groups: group g is ``members[starts[g] : starts[g + 1]]``."""

    starts: Array
    members: Array

    @classmethod
    def of(cls, name: str, groups: Iterable[Any], m: int) -> Partition:
        """Check that ``groups``, sequences of indices, hold each of the m latents exactly once."""
        check_groups(name, groups)
        lists = [_indices(f"{name}[{position}]", group) for position, group in enumerate(groups)]
        if not lists:
            raise ArgumentError(f"{name} must hold at least one group of latents; got none.")
        members = np.concatenate(lists)
        if members.size and (members.min() < 0 or members.max() >= m):
            worst = members.min() if members.min() < 0 else members.max()
            raise ArgumentError(f"{name} must hold indices from 0 to {m - 1}; got {worst}.")
        times = np.bincount(members, minlength=m)
        if (times != 1).any():
            j = int(np.argmax(times != 1))
            raise ArgumentError(
                f"{name} must partition the {m} latents; latent {j} is in {times[j]} of them, not in exactly one."
            )
        return cls.from_lists(lists)

    @classmethod
    def from_lists(cls, lists: Sequence[Array]) -> Partition:
        """Return the partition of lists that are known to be right."""
        starts = np.concatenate([[0], np.cumsum([len(group) for group in lists])]).astype(np.int64)
        return cls(starts, np.concatenate(lists).astype(np.int64))

    @property
    def sizes(self) -> Array:
        """Number of members of each group."""
        return np.diff(self.starts)

    def within(self, part: slice) -> Partition:
        """Return each latent of a part by itself, in this order, counted from the part's first."""
        members = self.members[(self.members >= part.start) & (self.members < part.stop)] - part.start
        return Partition(np.arange(len(members) + 1), members)

    def lists(self) -> list[Array]:
        """Return the groups as arrays of indices."""
        return np.split(self.members, self.starts[1:-1])


def check_groups(name: str, groups: Any) -> None:
    """Raise unless ``groups`` is a list, tuple or array, whose entries a run then reads as groups of latents."""
    is_list = isinstance(groups, Sequence | np.ndarray) and not isinstance(groups, str | bytes)
    if not is_list or getattr(groups, "ndim", 1) == 0:
        raise ArgumentError(f"{name} must be a list of groups of latents, such as [[0, 1], [2]]; got {shown(groups)}.")


def _indices(name: str, group: Any) -> Array:
    array = np.atleast_1d(numbers(name, group))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ArgumentError(f"{name} must be a sequence of integer indices of latents; got {shown(group)}.")
    return array.astype(np.int64)
