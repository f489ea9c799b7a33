"""Rows of several families in one layer, since real data mixes counts, flags and measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from reprlib import repr as shown
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, numbers
from forestmix.errors import ArgumentError
from forestmix.families.base import Family
from forestmix.families.primitive import Primitive


class Mixed(Family):
    """A family for each row, chosen from a few: row i has ``families[which[i]]``.

    Parameters of a family are one number, or one for each of its own rows in their order.

    Args:
        families: the families, e.g. ``[Gaussian(sd=0.5), Poisson()]``.
        which: for each row, the position of its family in that list.

    """

    name: ClassVar[str] = "mixed"

    def __init__(self, families: Sequence[Family], which: npt.ArrayLike) -> None:
        if not isinstance(families, list | tuple):
            raise ArgumentError(f"families must be a list such as [Gaussian(), Poisson()]; got {shown(families)}.")
        self.families = tuple(families)
        for position, family in enumerate(self.families):
            if not isinstance(family, Family) or isinstance(family, Mixed):
                raise ArgumentError(f"families[{position}] must be a family such as Poisson(); got {family!r}.")
        if not self.families:
            raise ArgumentError("families must hold at least one family; got none.")
        self.which = numbers("which", which)
        count = len(self.families)
        if self.which.ndim != 1 or self.which.dtype.kind not in "iu" or not self.which.size:
            raise ArgumentError(f"which must be one integer for each row; got {which!r}.")
        beyond = self.which[(self.which < 0) | (self.which >= count)]
        if beyond.size:
            raise ArgumentError(f"which must hold positions from 0 to {count - 1} in families; got {beyond[0]}.")
        for position, (family, rows) in enumerate(self.parts()):
            family.check_size(len(rows), f"rows of families[{position}]")

    @property
    def curvature_is_constant(self) -> bool:  # type: ignore[override]
        """Whether that holds for every family that has rows."""
        return all(part.curvature_is_constant for part, rows in self.parts() if len(rows))

    @property
    def curvature_is_bounded(self) -> bool:  # type: ignore[override]
        """Whether that holds for every family that has rows."""
        return all(part.curvature_is_bounded for part, rows in self.parts() if len(rows))

    def parts(self) -> list[tuple[Family, Array]]:
        """Return each family with its rows."""
        return [(part, np.flatnonzero(self.which == k)) for k, part in enumerate(self.families)]

    def with_families(self, families: Iterable[Family]) -> Self:
        """Return the same with other families, which rows have as before."""
        return self._with(families=tuple(families))

    def check_size(self, size: int, what: str) -> None:
        """Raise unless there is a family for each of ``size`` variables."""
        if len(self.which) != size:
            raise ArgumentError(f"which must have one entry for each of the {size} {what}; got {len(self.which)}.")

    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with the parameters of all its parts in ``dtype``."""
        return self.with_families(part.astype(dtype) for part in self.families)

    def take(self, variables: Array) -> Self:
        """Return the family of the chosen variables, each part with its own among them."""
        chosen = super().take(variables)._with(which=self.which[variables])
        rank = np.empty(len(self.which), np.int64)
        for _, rows in self.parts():
            rank[rows] = np.arange(len(rows))
        return chosen.with_families(part.take(rank[variables[rows]]) for part, rows in chosen.parts())

    def check_support(self, name: str, y: Array) -> None:
        """Raise if a value lies outside the support of its row's family."""
        for part, rows in self.parts():
            part.check_support(f"{name} in the {part!r} rows", y[..., rows])

    def primitive(self, x: Array) -> Primitive:
        """Return the rows of each row's family."""
        return Primitive(*self._of_each(lambda part, own: part.rows(own), x))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw each row from its family."""
        return self._of_each(lambda part, own: (part.sample(own, rng),), eta)[0]

    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return ``P(Y <= y | eta)`` of each row's family."""
        return self._of_each(lambda part, *own: (part.cumulative(*own),), y, eta)[0]

    def quantile(self, p: Array, eta: Array) -> Array:
        """Return the smallest y with ``P(Y <= y | eta) >= p`` of each row's family."""
        return self._of_each(lambda part, *own: (part.quantile(*own),), p, eta)[0]

    def _of_each(self, compute: Callable[..., tuple[Array, ...]], *given: Array) -> list[Array]:
        """Return what ``compute(part, *given)`` gives for each part and its own rows, in their places."""
        wide = np.broadcast_arrays(*given, np.empty(len(self.which)))[:-1]
        found = [compute(part, *(array[..., rows] for array in wide)) for part, rows in self.parts()]
        joined = []
        for fields in zip(*found, strict=True):
            lead = np.broadcast_shapes(*(one.shape[:-1] for one in fields))
            whole = np.empty((*lead, len(self.which)), fields[0].dtype)
            for (_, rows), one in zip(self.parts(), fields, strict=True):
                whole[..., rows] = one
            joined.append(whole)
        return joined

    def _arguments(self) -> list[str]:
        return [f"{len(rows)} rows of {part!r}" for part, rows in self.parts()]
