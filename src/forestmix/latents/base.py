"""What the mean-field factors of a layer of latents offer, whatever their family.

Factors are those of a batch: each field has a row for every observation, (N, m), or one row that all share, (1, m).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np

from forestmix.arrays import Array


class Factors(ABC):
    """The factors ``q_j`` of a layer: a dataclass of batch arrays, and what follows from them.

    The arrays are the parameters of q; ``mean`` and ``sd`` are fields, or are computed from them.
    """

    #: True where q lives on 0, 1, 2, ...; ``density`` then gives probabilities.
    discrete: ClassVar[bool] = False

    mean: Array
    sd: Array

    @classmethod
    @abstractmethod
    def tilted(cls, family: Any, eta: Array, H: Array, h: Array) -> Self:
        """Return ``q(y) ∝ p(y | eta) exp(-H y^2 / 2 + h y)``, the form that Gaussian rows give every factor."""

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

    def take(self, keep: Array) -> Self:
        """Return the factors of the chosen observations."""
        return self._map(lambda array: take_rows(array, keep))

    def where(self, which: Array, other: Self) -> Self:
        """Return these factors for the observations marked in ``which``, the other ones elsewhere."""
        mine, its = self.aligned(other)
        values = [
            np.where(which.reshape(-1, *[1] * (getattr(mine, name).ndim - 1)), getattr(mine, name), getattr(its, name))
            for name in self._names()
        ]
        return type(self)(*values)

    def expanded(self, count: int) -> Self:
        """Return factors with a row of its own for each of ``count`` observations."""
        return self._map(lambda array: np.broadcast_to(array, (count, *array.shape[1:])).copy())

    def with_rows(self, rows: Array, other: Self) -> Self:
        """Return these factors with ``other`` in place of the observations ``rows``; writes into their arrays."""
        mine, its = self.aligned(other)
        for name in self._names():
            getattr(mine, name)[rows] = getattr(its, name)
        return type(self)(*(getattr(mine, name) for name in self._names()))

    def columns(self, members: Array, other: Self) -> Self:
        """Return these factors with those of ``other`` for the variables ``members``, an index array."""
        mine, its = self.aligned(other)
        count = max(len(mine.mean), len(its.mean))
        chosen = []
        for name in self._names():
            array = np.broadcast_to(getattr(mine, name), (count, *getattr(mine, name).shape[1:])).copy()
            array[:, members] = getattr(its, name)[:, members]
            chosen.append(array)
        return type(self)(*chosen)

    def aligned(self, other: Self) -> tuple[Self, Self]:
        """Return both factors with fields of like width; only tables of probabilities differ."""
        return self, other

    @classmethod
    def _names(cls) -> list[str]:
        return [field.name for field in fields(cls)]  # type: ignore[arg-type]

    def _map(self, function: Callable[[Array], Array]) -> Self:
        return type(self)(*(function(getattr(self, name)) for name in self._names()))


def take_rows(array: Array, keep: Array) -> Array:
    """Return the chosen rows of a batch array, or the array itself where one row serves the whole batch."""
    return array if array.shape[0] == 1 else array[keep]
