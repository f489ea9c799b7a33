"""Rows of several kinds: those of each kind by themselves, and what is found for them in the order of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from forestmix.families.primitive import Kind, Primitive


class OfKind(NamedTuple):
    """The rows of one kind; ``places`` are theirs among all rows, ``None`` where these are of one kind."""

    kind: int
    places: Any
    rows: Primitive


class ByKind(NamedTuple):
    """The rows of each kind, and ``order``: where row i is among the rows of all parts, one part after another."""

    parts: tuple[OfKind, ...]
    order: Any


def by_kind(rows: Primitive) -> ByKind:
    """Return the rows of each kind, with positions in the library and on the device of their numbers."""
    kinds = np.unique(rows.kind).tolist() or [Kind.QUADRATIC.value]
    if len(kinds) == 1:
        return ByKind((OfKind(kinds[0], None, rows),), None)
    xp, device = array_api_compat.array_namespace(rows.factor), array_api_compat.device(rows.factor)
    where = [np.flatnonzero(rows.kind == kind) for kind in kinds]
    order, *places = (
        xp.asarray(one, dtype=xp.int32, device=device) for one in (np.argsort(np.concatenate(where)), *where)
    )
    own = (Primitive(rows.kind, *(columns(xp, field, at) for field in rows[1:])) for at in places)
    return ByKind(tuple(map(OfKind, kinds, places, own)), order)


def of_each_kind(xp: Any, groups: ByKind, compute: Callable[..., tuple[Any, ...]], *given: Any) -> tuple[Any, ...]:
    """Return what ``compute(xp, kind, rows, *given)`` gives for the rows of each kind, in the order of the rows."""
    if len(groups.parts) == 1:
        return compute(xp, groups.parts[0].kind, groups.parts[0].rows, *given)
    found = [compute(xp, kind, rows, *(columns(xp, one, at) for one in given)) for kind, at, rows in groups.parts]
    return tuple(_joined(xp, groups, field) for field in zip(*found, strict=True))


def columns(xp: Any, array: Any, places: Any) -> Any:
    """Return the columns of some rows; what serves all rows stays as it is."""
    return array if array.ndim == 0 or array.shape[-1] == 1 else xp.take(array, places, axis=-1)


def _joined(xp: Any, groups: ByKind, field: tuple[Any, ...]) -> Any:
    lead = np.broadcast_shapes(*(tuple(one.shape[:-1]) for one in field))
    wide = [xp.broadcast_to(one, (*lead, part.places.shape[0])) for one, part in zip(field, groups.parts, strict=True)]
    return xp.take(xp.concat(wide, axis=-1), groups.order, axis=-1)
