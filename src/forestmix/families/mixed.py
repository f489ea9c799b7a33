"""Rows of several families in one layer, since real data mixes counts, flags and measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
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
        if self.which.min() < 0 or self.which.max() >= count:
            worst = self.which.min() if self.which.min() < 0 else self.which.max()
            raise ArgumentError(f"which must hold positions from 0 to {count - 1} in families; got {worst}.")
        for position, (family, rows) in enumerate(zip(self.families, self._rows(), strict=True)):
            family.check_size(len(rows), f"rows of families[{position}]")

    @property
    def curvature_is_constant(self) -> bool:  # type: ignore[override]
        """Whether that holds for every family that has rows."""
        return all(part.curvature_is_constant for part, rows in self._parts() if len(rows))

    @property
    def curvature_is_bounded(self) -> bool:  # type: ignore[override]
        """Whether that holds for every family that has rows."""
        return all(part.curvature_is_bounded for part, rows in self._parts() if len(rows))

    def __repr__(self) -> str:
        parts = ", ".join(f"{len(rows)} rows of {part!r}" for part, rows in self._parts())
        return f"Mixed({parts})"

    def check_size(self, size: int, what: str) -> None:
        """Raise unless there is a family for each of ``size`` variables."""
        if len(self.which) != size:
            raise ArgumentError(f"which must have one entry for each of the {size} {what}; got {len(self.which)}.")

    def astype(self, dtype: np.dtype) -> Self:
        """Return the family with the parameters of all its parts in ``dtype``."""
        return self._with([part.astype(dtype) for part in self.families], self.which)

    def take(self, variables: Array) -> Self:
        """Return the family of the chosen variables, each part with its own among them."""
        rank = np.empty(len(self.which), np.int64)
        for _, rows in self._parts():
            rank[rows] = np.arange(len(rows))
        chosen = self.which[variables]
        parts = [part.take(rank[variables][chosen == k]) for k, part in enumerate(self.families)]
        return self._with(parts, chosen)

    @property
    def differs_by_observation(self) -> bool:
        """Whether that holds for any family."""
        return any(part.differs_by_observation for part in self.families)

    def take_observations(self, keep: Array) -> Self:
        """Return the family with each part that of the chosen observations."""
        return self._with([part.take_observations(keep) for part in self.families], self.which)

    def check_support(self, name: str, y: Array) -> None:
        """Raise if a value lies outside the support of its row's family."""
        for part, rows in self._parts():
            part.check_support(f"{name} in the {part!r} rows", y[..., rows])

    def primitive(self, x: Array) -> Primitive:
        """Return the rows of each row's family."""
        x = np.broadcast_arrays(x, np.empty(len(self.which)))[0]
        found = (part.primitive(x[..., rows]) for part, rows in self._parts())
        return Primitive(*map(self._joined, zip(*found, strict=True)))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw each row from its family."""
        return self._join(lambda part, own: part.sample(own, rng), eta)

    def cumulative(self, y: Array, eta: Array) -> Array:
        """Return ``P(Y <= y | eta)`` of each row's family."""
        return self._join(lambda part, *own: part.cumulative(*own), y, eta)

    def quantile(self, p: Array, eta: Array) -> Array:
        """Return the smallest y with ``P(Y <= y | eta) >= p`` of each row's family."""
        return self._join(lambda part, *own: part.quantile(*own), p, eta)

    def _rows(self) -> list[Array]:
        return [np.flatnonzero(self.which == k) for k in range(len(self.families))]

    def _parts(self) -> list[tuple[Family, Array]]:
        return list(zip(self.families, self._rows(), strict=True))

    def _with(self, families: Sequence[Family], which: Array) -> Self:
        # Not through __init__: a choice of rows may leave a part, or all, without any.
        chosen = copy(self)
        chosen.families, chosen.which = tuple(families), which
        return chosen

    def _join(self, compute: Callable[..., Array], *arrays: Array) -> Array:
        """Return what ``compute(part, *arrays)`` gives for each part and its own rows, in their places."""
        wide = np.broadcast_arrays(*arrays, np.empty(len(self.which)))[:-1]
        return self._joined([compute(part, *(array[..., rows] for array in wide)) for part, rows in self._parts()])

    def _joined(self, found: Sequence[Array]) -> Array:
        """Return what was found for the rows of each part, in their places."""
        lead = np.broadcast_shapes(*(one.shape[:-1] for one in found))
        whole = np.empty((*lead, len(self.which)), found[0].dtype)
        for rows, one in zip(self._rows(), found, strict=True):
            whole[..., rows] = one
        return whole
