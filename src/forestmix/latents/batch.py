"""Batches of arrays: dataclasses whose fields have a row for every observation, or one row that all share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields
from typing import Self

import numpy as np

from forestmix.arrays import Array


class Batch:
    """A dataclass of arrays (N, ...) or (1, ...), and how observations are chosen from it and put back."""

    def take(self, keep: Array) -> Self:
        """Return the arrays of the chosen observations."""
        return self._map(lambda array: take_rows(array, keep))

    def where(self, which: Array, other: Self) -> Self:
        """Return these arrays for the observations marked in ``which``, the other ones elsewhere."""
        mine, its = self.aligned(other)
        values = [
            np.where(which.reshape(-1, *[1] * (getattr(mine, name).ndim - 1)), getattr(mine, name), getattr(its, name))
            for name in self._names()
        ]
        return type(self)(*values)

    def expanded(self, count: int) -> Self:
        """Return arrays with a row of its own for each of ``count`` observations."""
        return self._map(lambda array: np.broadcast_to(array, (count, *array.shape[1:])).copy())

    def with_rows(self, rows: Array, other: Self) -> Self:
        """Return these arrays with ``other`` in place of the observations ``rows``; writes into their arrays."""
        mine, its = self.aligned(other)
        for name in self._names():
            getattr(mine, name)[rows] = getattr(its, name)
        return type(self)(*(getattr(mine, name) for name in self._names()))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the observations of all parts, one after another; each part has a row for each of its own."""
        widest = max(parts, key=lambda part: sum(getattr(part, name).shape[-1] for name in cls._names()))
        same = [part.aligned(widest)[0] for part in parts]
        return cls(*(np.concatenate([getattr(part, name) for part in same]) for name in cls._names()))

    def remembered(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """Return what ``make`` gives, made once for these arrays, which never change."""
        known: dict[Hashable, Array] = self.__dict__.setdefault("_remembered", {})
        if key not in known:
            known[key] = make()
        return known[key]

    def aligned(self, other: Self) -> tuple[Self, Self]:
        """Return both arrays with fields of like width; only tables of probabilities differ."""
        return self, other

    @classmethod
    def _names(cls) -> list[str]:
        return [field.name for field in fields(cls)]  # type: ignore[arg-type]

    def _map(self, function: Callable[[Array], Array]) -> Self:
        return type(self)(*(function(getattr(self, name)) for name in self._names()))


def take_rows(array: Array, keep: Array) -> Array:
    """Return the chosen rows of a batch array, or the array itself where one row serves the whole batch."""
    return array if array.shape[0] == 1 else array[keep]
