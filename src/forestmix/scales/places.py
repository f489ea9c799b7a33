"""Which variables have which scale: numbers and unknown scales side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any

import numpy as np

from forestmix.arrays import Array, per_variable
from forestmix.errors import ArgumentError
from forestmix.scales.base import Scale


@dataclass(frozen=True)
class Places:
    """The template of a list of standard deviations.

    ``unknowns``: the unknown scales in order of first appearance; ``which``: for each variable the position of its
    unknown in that tuple, or -1 for a number; ``known``: the number, 1 where there is none. Both have no axis where one
    scale serves all variables.
    """

    unknowns: tuple[Scale, ...]
    which: Array
    known: Array

    def resolve(self, values: Mapping[Scale, float]) -> Array:
        """Return the standard deviations, given a number for each unknown scale."""
        table = np.array([values[scale] for scale in self.unknowns])
        return np.where(self.which >= 0, table[self.which], self.known)

    def variables(self, scale: Scale, size: int) -> Array:
        """Return which of ``size`` variables have an unknown scale, as a mask."""
        return np.broadcast_to(self.which == self.unknowns.index(scale), size)

    def take(self, variables: Array) -> Places:
        """Return the template of the chosen variables."""
        if not self.which.ndim:
            return self
        return Places(self.unknowns, self.which[variables], self.known[variables])

    def __repr__(self) -> str:
        if not self.which.ndim:
            return repr(self.unknowns[0])
        counts = [f"{int(np.sum(self.which == k))} of {scale!r}" for k, scale in enumerate(self.unknowns)]
        numbers = int(np.sum(self.which < 0))
        return f"<{', '.join([*counts, *([f'{numbers} numbers'] if numbers else [])])}>"


def places_of(name: str, given: Any) -> Places | None:
    """Return the template of what was given for a standard deviation, or ``None`` if it is made of numbers alone."""
    listed = isinstance(given, list | tuple) or (isinstance(given, np.ndarray) and given.dtype == object)
    entries = list(given) if listed else [given]
    unknowns = tuple(dict.fromkeys(entry for entry in entries if isinstance(entry, Scale)))
    if not unknowns:
        return None
    which = np.array([unknowns.index(entry) if isinstance(entry, Scale) else -1 for entry in entries])
    known = np.ones(len(entries))
    numbers = [entry for entry in entries if not isinstance(entry, Scale)]
    if numbers:
        known[which < 0] = _numbers(name, numbers)
    return Places(unknowns, which, known) if listed else Places(unknowns, which[0, ...], known[0, ...])


def values_of(
    unknowns: tuple[Scale, ...], values: Mapping[Scale, float] | Sequence[float] | Array
) -> dict[Scale, float]:
    """Return a number above 0 for each unknown scale, from numbers in their order or by scale."""
    given = [values.get(scale) for scale in unknowns] if isinstance(values, Mapping) else list(values)
    if len(given) != len(unknowns) or any(value is None for value in given):
        raise ArgumentError(
            f"values must have a number for each of the {len(unknowns)} unknown scales; got {shown(values)}."
        )
    if not unknowns:
        return {}
    return dict(zip(unknowns, per_variable("values", np.asarray(given), positive=True).tolist(), strict=True))


def _numbers(name: str, entries: list[Any]) -> Array:
    """Return the numbers of a list that also has scales."""
    wrong = [entry for entry in entries if isinstance(entry, str) or np.ndim(entry) > 0]
    if wrong:
        raise ArgumentError(
            f"{name} must be a list of numbers and of scales such as HalfNormal(1.0); got {wrong[0]!r}."
        )
    return per_variable(name, entries, positive=True)
