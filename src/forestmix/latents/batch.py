"""Batches of arrays: dataclasses whose fields have a row for every observation, or one row that all share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields
from typing import Any, Self

import array_api_compat
import numpy as np

from forestmix.arrays import Array


class Batch:
    """Arrays (N, ...) or (1, ...) of any library, and how observations are chosen and put back.

    A dataclass, whose fields are arrays, other batches, tuples of these, or ``None``.
    """

    def take(self, keep: Array) -> Self:
        """Return the arrays of the chosen observations."""
        return self._map(lambda array: take_rows(array, keep))

    def where(self, which: Array, other: Self) -> Self:
        """Return these arrays for the observations marked in ``which``, the other ones elsewhere."""
        return self._map(lambda mine, its: _where(which, mine, its), other)

    def expanded(self, count: int) -> Self:
        """Return arrays with a row of its own for each of ``count`` observations."""

        def rows(array: Any) -> Any:
            xp = array_api_compat.array_namespace(array)
            return xp.asarray(xp.broadcast_to(array, (count, *array.shape[1:])), copy=True)

        return self._map(rows)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the observations of all parts, one after another; each part has a row for each of its own."""
        widest = max(parts, key=lambda part: sum(getattr(part, name).shape[-1] for name in cls._names()))
        same = [part.aligned(widest)[0] for part in parts]
        columns = [[getattr(part, name) for part in same] for name in cls._names()]
        return cls(*(array_api_compat.array_namespace(column[0]).concat(column) for column in columns))

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

    def _map(self, function: Callable[..., Any], *other: Self) -> Self:
        batches = self.aligned(*other) if other else (self,)
        return type(self)(*(mapped(function, *(getattr(one, name) for one in batches)) for name in self._names()))


def mapped(function: Callable[..., Any], part: Any, *other: Any) -> Any:
    """Return a batch, or a tuple or list of such, with a function of each array; what is no array stays as it is.

    The function is also given the array in the same place of ``other``.
    """
    if isinstance(part, Batch):
        return part._map(function, *other)
    if isinstance(part, tuple | list):
        parts = [mapped(function, *own) for own in zip(part, *other, strict=True)]
        return type(part)(*parts) if hasattr(part, "_fields") else type(part)(parts)
    return function(part, *other) if getattr(part, "shape", ()) else part


def take_rows(array: Any, keep: Array) -> Any:
    """Return the chosen rows of a batch array, or the array itself where one row serves the whole batch."""
    if array.shape[0] == 1:
        return array
    if isinstance(array, np.ndarray) or not array_api_compat.is_array_api_obj(array):
        return array[keep]  # also what an engine has left with chunks of W
    return array_api_compat.array_namespace(array).take(array, in_place_of(array, keep), axis=0)


def in_place_of(like: Any, given: Any, dtype: Any = None) -> Any:
    """Return an array of NumPy in the library and on the device of another; itself where that is NumPy's."""
    if isinstance(like, np.ndarray):
        return given
    xp = array_api_compat.array_namespace(like)
    return xp.asarray(np.array(given), dtype=dtype, device=array_api_compat.device(like))


def _where(which: Array, first: Any, second: Any) -> Any:
    mask = in_place_of(first, which.reshape(-1, *[1] * (first.ndim - 1)))
    return array_api_compat.array_namespace(first).where(mask, first, second)
