"""Levels of a factor of groups, or of the combinations of several, as numbers of columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from forestmix.arrays import Array
from forestmix.regression.frames import libraries


@dataclass(frozen=True)
class Levels:
    """The levels of ``factors`` that occurred, sorted, or in the order of their categories.

    ``parts`` has an index of levels for each factor. A combination of them is the number that its places make, the
    first factor's place leading; ``keys`` has those that occurred, sorted.
    """

    factors: tuple[str, ...]
    parts: tuple[Any, ...]
    keys: Array

    @classmethod
    def learn(cls, factors: tuple[str, ...], frame: Any) -> Self:
        """Find the levels in the columns of a frame without missing entries."""
        parts = tuple(_levels(frame[name]) for name in factors)
        key = _keys(factors, parts, frame)
        return cls(factors, parts, np.arange(len(parts[0])) if len(parts) == 1 else np.unique(key))

    def __len__(self) -> int:
        return len(self.keys)

    def codes(self, frame: Any) -> Array:
        """Return the number of each row's level; -1 for one that did not occur, or is missing."""
        key = _keys(self.factors, self.parts, frame)
        if len(self.parts) == 1:
            return key
        place = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.where(self.keys[place] == key, place, -1)

    @property
    def labels(self) -> list[str]:
        """The name of each level, ``a:b`` for a combination."""
        columns = []
        key = self.keys
        for part in reversed(self.parts):
            key, place = np.divmod(key, len(part))
            names = [_label(level) for level in part]
            columns.append([names[at] for at in place])
        return [":".join(names) for names in zip(*reversed(columns), strict=True)]


def _levels(column: Any) -> Any:
    """Return the levels of one column as a pandas index."""
    pandas, _, _ = libraries()
    if isinstance(column.dtype, pandas.CategoricalDtype):
        return column.cat.remove_unused_categories().cat.categories
    return pandas.Index(pandas.factorize(column, sort=True)[1])


def _keys(factors: tuple[str, ...], parts: tuple[Any, ...], frame: Any) -> Array:
    """Return the number that the places of a row's levels make, -1 where one of them is not there."""
    pandas, _, _ = libraries()
    key: Any = 0
    known: Any = True
    for name, part in zip(factors, parts, strict=True):
        column = frame[name]
        if isinstance(column.dtype, pandas.CategoricalDtype):
            place = part.get_indexer(column.cat.categories)[column.cat.codes]
            place = np.where(column.cat.codes < 0, -1, place)
        else:
            place = part.get_indexer(column)
        known = known & (place >= 0)
        key = key * len(part) + place
    return np.where(known, key, -1).astype(np.int64)


def _label(level: Any) -> str:
    """Return a level as people write it: a whole number without its decimal point."""
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)
