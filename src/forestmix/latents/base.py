"""What the mean-field factors of a layer of latents offer, whatever their family.

Factors are those of a batch: each field has a row for every observation, (N, m), or one row that all share, (1, m).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Self

import array_api_compat
import numpy as np

from forestmix.arrays import Array


class Batch:
    """Arrays (N, ...) or (1, ...) of any library, and how observations are chosen and put back.

    A dataclass, whose fields are arrays, other batches, tuples of these, or ``None``.
    """

    #: The names of the fields.
    __match_args__: ClassVar[tuple[str, ...]]

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

    def with_rows(self, rows: Array, other: Self) -> Self:
        """Return these arrays, which have a row for each observation, with ``other`` in place of the ``rows``."""

        def put(mine: Any, its: Any) -> Any:
            place, which = np.zeros(mine.shape[0], np.int64), np.zeros(mine.shape[0], bool)
            place[rows], which[rows] = np.arange(len(rows)), True
            return _where(which, take_rows(its, place), mine)

        return self._map(put, other)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the observations of all parts, one after another; each part has a row for each of its own."""

        def one_after_another(*arrays: Any) -> Any:
            return array_api_compat.array_namespace(arrays[0]).concat(of_like_width(*arrays))

        return parts[0]._map(one_after_another, *parts[1:])

    def remembered(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """Return what ``make`` gives, made once for these arrays, which never change."""
        known: dict[Hashable, Array] = self.__dict__.setdefault("_remembered", {})
        if key not in known:
            known[key] = make()
        return known[key]

    def _map(self, function: Callable[..., Any], *other: Self) -> Self:
        parts = zip(*([getattr(one, name) for name in self.__match_args__] for one in (self, *other)), strict=True)
        return type(self)(*(mapped(function, *each) for each in parts))


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


class Factors(Batch, ABC):
    """The factors ``q_j`` of a layer: a dataclass of batch arrays, and what follows from them.

    The arrays are the parameters of q; ``mean`` and ``sd`` are fields, or are computed from them.
    """

    #: True where q lives on 0, 1, 2, ...; ``density`` then gives probabilities.
    discrete: ClassVar[bool] = False

    #: True where the ELBO may have several optima, and saddles between them.
    several_optima: ClassVar[bool] = False
    #: True where the prior's log density is straight far out, so that its curvature bounds nothing there.
    straight_tails: ClassVar[bool] = False

    mean: Array
    sd: Array

    @classmethod
    @abstractmethod
    def tilted(cls, family: Any, eta: Array, H: Array, h: Array) -> Self:
        """Return ``q(y) ∝ p(y | eta) exp(-H y^2 / 2 + h y)``, the form that Gaussian rows give every factor."""

    @classmethod
    def largest_tilt(cls, eta: Array, H: Array, centre: Array) -> Array:
        """Return the largest h that a search for a mean between ``centre`` and the prior's need try; here any."""
        return np.full(np.shape(centre), np.inf)

    @abstractmethod
    def pull(self, family: Any, eta: Array, H: Array) -> Array:
        """Return ``h - H mean`` with the h of ``tilted``: the slope of ``KL + H variance / 2`` in the mean."""

    @abstractmethod
    def relative_entropy(self, family: Any, eta: Array) -> Array:
        """Return ``KL(q_j || p(y | eta_j))`` of every variable, (N, m)."""

    @abstractmethod
    def quantile(self, p: Array) -> Array:
        """Return the smallest y with ``Q_j(y) >= p``, for ``0 < p < 1`` of shape (..., N, m)."""

    @abstractmethod
    def density(self, y: Array) -> Array:
        """Return the density of ``q_j`` at y; for counts, the probability of y."""

    @property
    def variance(self) -> Array:
        """The variance of each factor."""
        return self.sd**2


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


def of_like_width(*arrays: Any) -> list[Any]:
    """Return tables of log probabilities, (N, m, K + 1), with as many counts as the longest; others as they are."""
    missing = [max(one.shape[-1] for one in arrays) - array.shape[-1] for array in arrays]
    return [
        np.pad(array, [(0, 0), (0, 0), (0, count)], constant_values=-np.inf) if array.ndim == 3 and count else array
        for array, count in zip(arrays, missing, strict=True)
    ]


def _where(which: Array, first: Any, second: Any) -> Any:
    first, second = of_like_width(first, second)
    mask = in_place_of(first, which.reshape(-1, *[1] * (first.ndim - 1)))
    return array_api_compat.array_namespace(first).where(mask, first, second)
