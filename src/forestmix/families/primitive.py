"""What the rows of every family are made of: three functions, with a factor, a shift and a sign.

A row ``exp{ g + t eta - a(eta) }`` has ``a(eta) = factor A(zeta)``, ``zeta = sign (eta - shift)``, where A is one of::

    quadratic    zeta^2 / 2             Gaussian
    exponential  exp(zeta)              Poisson, Gamma
    softplus     log(1 + exp(zeta))     Bernoulli, Binomial, negative binomial

Its log-likelihood is largest where ``A'(zeta)`` is the ``target`` ``sign t / factor``. Relative to that, it is
``factor`` times a divergence of A, which is not negative, so that large counts and small noise keep their digits. With
A* the convex conjugate of A::

    log p = best - factor D(zeta)        D(zeta) = A(zeta) + A*(target) - target zeta
    best  = g + t shift + factor A*(target)
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array


class Kind(IntEnum):
    """The function A; 0 is none of them, so that an array that nobody has filled is refused."""

    QUADRATIC = 1
    EXPONENTIAL = 2
    SOFTPLUS = 3


class Primitive(NamedTuple):
    """The rows of a family with their data x, (N, n), in float64.

    ``kind``: one number, or one for each row; all others: one number, one for each row, or one for each entry of x.
    """

    kind: Array
    factor: Array
    shift: Array
    sign: Array
    target: Array
    best: Array


def primitive(
    kind: npt.ArrayLike, factor: npt.ArrayLike, target: npt.ArrayLike, best: npt.ArrayLike,
    *, shift: npt.ArrayLike = 0.0, sign: npt.ArrayLike = 1.0,
) -> Primitive:  # fmt: skip
    """Return rows with their numbers as arrays."""
    numbers = (np.asarray(part, np.float64) for part in (factor, shift, sign, target, best))
    return Primitive(np.asarray(kind, np.int8), *numbers)


def of_each_kind(xp: Any, rows: Primitive, compute: Callable[..., tuple[Any, ...]], *given: Any) -> tuple[Any, ...]:
    """Return what ``compute(xp, kind, rows, *given)`` gives for the rows of each kind, in the order of the rows."""
    if rows.kind.ndim == 0:
        return compute(xp, int(rows.kind), rows, *given)
    where = {kind: np.flatnonzero(rows.kind == kind) for kind in np.unique(rows.kind).tolist() or [Kind.QUADRATIC]}
    if len(where) == 1:
        return compute(xp, *where, rows, *given)
    found = []
    for kind, places in where.items():
        at = in_library_of(rows.factor, places)
        own = Primitive(rows.kind, *(columns(xp, field, at) for field in rows[1:]))
        found.append(compute(xp, kind, own, *(columns(xp, one, at) for one in given)))
    order = in_library_of(rows.factor, np.argsort(np.concatenate(list(where.values()))))
    sizes = [len(places) for places in where.values()]
    return tuple(xp.take(_side_by_side(xp, field, sizes), order, axis=-1) for field in zip(*found, strict=True))


def in_library_of(like: Any, places: Array) -> Any:
    """Return positions in the library and on the device of an array."""
    xp = array_api_compat.array_namespace(like)
    return xp.asarray(places, dtype=xp.int32, device=array_api_compat.device(like))


def columns(xp: Any, array: Any, places: Any) -> Any:
    """Return the columns of some rows; what serves all rows stays as it is."""
    return array if array.ndim == 0 or array.shape[-1] == 1 else xp.take(array, places, axis=-1)


def _side_by_side(xp: Any, parts: tuple[Any, ...], sizes: list[int]) -> Any:
    lead = np.broadcast_shapes(*(tuple(part.shape[:-1]) for part in parts))
    return xp.concat([xp.broadcast_to(part, (*lead, size)) for part, size in zip(parts, sizes, strict=True)], axis=-1)
