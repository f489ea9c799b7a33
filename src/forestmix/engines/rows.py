"""The rows of a layer with their data, in the library and on the device of W, and their terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from forestmix.arrays import double
from forestmix.errors import ArgumentError
from forestmix.families.expectations import quiet
from forestmix.families.row_terms import formulas_of
from forestmix.model import Layer, Observations


class Part(NamedTuple):
    """Rows of one kind, with the numbers of a ``Primitive``; ``places``: theirs in the layer, ``None`` for all rows."""

    kind: int
    places: Any
    factor: Any
    shift: Any
    sign: Any
    target: Any
    best: Any


@dataclass(frozen=True)
class RowData:
    """The rows of a layer with their data, in the library and on the device of W.

    ``parts``: rows of each kind; ``order``: where row i is among the rows of all parts, one part after another;
    ``bias`` and ``x``: in the precision of W; ``observed``: True where an entry is there, ``None`` if all are;
    ``dtype``: that of row terms, float64 where the device has it.
    """

    parts: tuple[Part, ...]
    order: Any
    bias: Any
    x: Any
    observed: Any
    dtype: Any

    def take(self, keep: Any) -> RowData:
        """Return the data of the chosen observations: their positions, or a mask of NumPy."""
        xp = array_api_compat.array_namespace(self.x)
        if isinstance(keep, np.ndarray):
            keep = np.arange(self.x.shape[0], dtype=np.int32)[keep]
        keep = xp.asarray(keep, device=array_api_compat.device(self.x))

        def chosen(array: Any) -> Any:
            shared = array.ndim < 2 or array.shape[0] == 1 < self.x.shape[0]
            return array if shared else xp.take(array, keep, axis=0)

        parts = [Part(part.kind, part.places, *map(chosen, part[2:])) for part in self.parts]
        observed = None if self.observed is None else chosen(self.observed)
        return replace(self, parts=tuple(parts), x=chosen(self.x), observed=observed)

    def take_rows(self, rows: Any) -> RowData:
        """Return the data of the chosen rows, which may repeat: their positions, in NumPy."""
        xp, device = array_api_compat.array_namespace(self.x), array_api_compat.device(self.x)

        def chosen(array: Any, places: Any) -> Any:
            shared = array is None or array.ndim == 0 or array.shape[-1] == 1
            return array if shared else xp.take(array, xp.asarray(places, device=device), axis=-1)

        parts, order = [], []
        for part in self.parts:
            known = np.arange(self.x.shape[-1]) if part.places is None else np.asarray(part.places)
            own = np.minimum(np.searchsorted(known, rows), len(known) - 1)
            here = np.flatnonzero(known[own] == rows)
            if len(here):
                places = None if part.places is None else xp.asarray(here, dtype=xp.int32, device=device)
                parts.append(Part(part.kind, places, *(chosen(one, own[here]) for one in part[2:])))
                order.append(here)
        places = xp.asarray(np.argsort(np.concatenate(order)), dtype=xp.int32, device=device)
        bias, x, observed = (chosen(one, rows) for one in (self.bias, self.x, self.observed))
        return replace(self, parts=tuple(parts), order=places, bias=bias, x=x, observed=observed)


def row_data(layer: Layer, observations: Observations) -> RowData:
    """Return the rows of a layer with their data."""
    like = layer.weights.prototype()
    xp, device = array_api_compat.array_namespace(like), array_api_compat.device(like)
    dtype = double(xp, device)

    def moved(array: Any, dtype: Any) -> Any:
        return xp.asarray(array, dtype=dtype, device=device)

    rows_given = layer.family.primitive(observations.x)
    if rows_given is None:
        raise ArgumentError(f"family must have rows that engines know, such as Poisson(); got {layer.family!r}.")
    kinds, *numbers = rows_given
    kinds = np.broadcast_to(kinds, layer.size)
    order = {kind: np.flatnonzero(kinds == kind) for kind in np.unique(kinds).tolist()}
    parts = []
    for kind, rows in order.items():
        formulas_of(kind)  # raises here, and not in the middle of a run
        places = None if len(order) == 1 else moved(rows, xp.int32)
        own = (field if places is None or field.ndim == 0 else field[..., rows] for field in numbers)
        parts.append(Part(kind, places, *(moved(field, dtype) for field in own)))
    return RowData(
        tuple(parts),
        moved(np.argsort(np.concatenate(list(order.values()))), xp.int32),
        moved(layer.bias, like.dtype),
        moved(observations.x, like.dtype),
        None if observations.observed is None else moved(observations.observed, xp.bool),
        dtype,
    )


@quiet
def expected_terms(rows: RowData, eta: Any, spread: Any) -> tuple[Any, Any, Any]:
    """Return the expected log-likelihood, ``e`` and ``kappa`` of every row at ``eta ~ N(eta, spread^2)``.

    They are in double precision, and 0 where x is missing, whatever the rows would have been there.
    """
    log_likelihood, error, kappa = _in_parts(rows, _part_terms, eta, spread)
    return log_likelihood, error, kappa


def row_values(rows: RowData, eta: Any, spread: Any) -> Any:
    """Return the expected log-likelihood of each row at ``eta ~ N(eta, spread^2)``, (N, n); 0 where x is missing."""
    return expected_terms(rows, eta, spread)[0]


@quiet
def curvature_slopes(rows: RowData, eta: Any, spread: Any) -> tuple[Any, Any]:
    """Return ``E a'''`` and ``E a''''`` of each row at ``eta ~ N(eta, spread^2)``, (N, n); 0 where x is missing."""
    third, fourth = _in_parts(rows, _part_slopes, eta, spread)
    return third, fourth


def _in_parts(rows: RowData, terms: Callable[..., tuple[Any, ...]], eta: Any, spread: Any) -> tuple[Any, ...]:
    """Return terms of the rows, which are taken for those of each kind, in double precision."""
    xp = array_api_compat.array_namespace(eta)
    wide = [xp.astype(one, rows.dtype) for one in (eta, spread)]
    parts = [terms(xp, part, *(_own(xp, part, one) for one in wide)) for part in rows.parts]
    found = parts[0] if len(parts) == 1 else _joined(xp, parts, rows.order, eta.shape[0])
    if rows.observed is None:
        return found
    return tuple(xp.where(rows.observed, term, xp.zeros_like(term)) for term in found)


def _own(xp: Any, part: Part, array: Any) -> Any:
    """Return the columns of an array that belong to the rows of one kind."""
    return array if part.places is None else xp.take(array, part.places, axis=1)


def _part_terms(xp: Any, part: Part, eta: Any, spread: Any) -> tuple[Any, Any, Any]:
    """Return log-likelihood, ``e`` and ``kappa`` of the rows of one kind (``forestmix.families.primitive``)."""
    loss, error, curvature = formulas_of(part.kind).terms(xp, part.target, part.sign * (eta - part.shift), spread)
    return part.best - part.factor * loss, part.sign * part.factor * error, part.factor * curvature


def _part_slopes(xp: Any, part: Part, eta: Any, spread: Any) -> tuple[Any, Any]:
    """Return ``E a''' = sign factor E A'''`` and ``E a'''' = factor E A''''`` of the rows of one kind."""
    third, fourth = formulas_of(part.kind).slopes(xp, part.sign * (eta - part.shift), spread)
    return part.sign * part.factor * third, part.factor * fourth


def _joined(xp: Any, parts: list[tuple[Any, ...]], order: Any, count: int) -> tuple[Any, ...]:
    """Return the terms of all rows in their order, for so many observations."""
    wide = [[xp.broadcast_to(one, (count, one.shape[1])) for one in field] for field in zip(*parts, strict=True)]
    return tuple(xp.take(xp.concat(field, axis=1), order, axis=1) for field in wide)
