"""Row terms of a family as NumPy arrays, from the primitive that its rows are made of.

With ``zeta = sign (eta - shift)`` and ``a(eta) = factor A(zeta)`` (``forestmix.families.primitive``)::

    E log p = best - factor E D        e = sign factor (target - E A')        kappa = factor E A''

These formulas, and those of D and A, are in ``row_terms``. All is computed in float64, and returned in it unless both
the mean and the spread are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array
from forestmix.families.by_kind import by_kind, of_each_kind
from forestmix.families.expectations import quiet
from forestmix.families.primitive import Primitive
from forestmix.families.row_terms import formulas_of, log_likelihood_terms


class ExpectedLogPartition(NamedTuple):
    """``E a(eta)``, ``E a'(eta)`` and ``E a''(eta)`` for ``eta ~ N(mean, spread^2)``, entry by entry."""

    value: Array
    slope: Array
    curvature: Array


class RowExpectations(NamedTuple):
    """What a row contributes: ``E log p(x_i | eta_i)``, ``e_i = t(x_i) - E a'`` and ``kappa_i = E a''``."""

    log_likelihood: Array
    error: Array
    curvature: Array


def row_expectations(rows: Primitive, mean: Array, spread: Array) -> RowExpectations:
    """Return the terms of rows with their data; a curvature that is constant has no axis of observations."""
    return RowExpectations(*_of_each_kind(rows, log_likelihood_terms, mean, spread))


def expected_log_partition(rows: Primitive, mean: Array, spread: Array) -> ExpectedLogPartition:
    """Return ``E a``, ``E a'`` and ``E a''`` of rows, whatever their data: what a target of 0 loses is ``E A``."""

    def parts(xp: Any, kind: int, own: Primitive, m: Array, s: Array) -> tuple[Array, ...]:
        value, error, curvature = formulas_of(kind).terms(xp, np.zeros(()), own.sign * (m - own.shift), s)
        return own.factor * value, -own.sign * own.factor * error, np.broadcast_to(own.factor * curvature, value.shape)

    return ExpectedLogPartition(*_of_each_kind(rows, parts, mean, spread))


def log_partition_gap(rows: Primitive, mean: Array, wide: Array, narrow: Array) -> Array:
    """Return ``E a(mean + wide z) - E a(mean + narrow z)``, also for close spreads, whatever the data."""

    def gap(xp: Any, kind: int, own: Primitive, m: Array, w: Array, n: Array) -> tuple[Array, ...]:
        return (own.factor * formulas_of(kind).gap(xp, own.sign * (m - own.shift), w, n),)

    return _of_each_kind(rows, gap, mean, wide, narrow)[0]


def log_partition(rows: Primitive, order: int) -> Callable[[Array], Array]:
    """Return ``a``, or its derivative of order 1 or 2, as a function of eta in float64, whatever the data.

    It is ``sign^order factor A^(order)(zeta)``. Inner loops call it, so that what it needs is looked up beforehand.
    """

    def of_kind(kind: int, own: Primitive) -> Callable[[Array], Array]:
        function, sign, shift, factor = formulas_of(kind).derivatives[order], own.sign, own.shift, own.factor
        scale = factor * sign if order == 1 else factor
        return lambda eta: scale * function(sign * (eta - shift))

    if rows.kind.ndim == 0:
        return of_kind(int(rows.kind), rows)
    return lambda eta: _of_each_kind(rows, lambda xp, kind, own, at: (of_kind(kind, own)(at),), eta)[0]


def base_and_statistic(rows: Primitive, y: Array) -> tuple[Array, Array]:
    """Return ``g = best - t shift - factor A*(target)`` and ``t = sign factor target`` of the rows of y."""

    def parts(xp: Any, kind: int, own: Primitive, y: Array) -> tuple[Array, ...]:
        statistic = own.sign * own.factor * own.target + np.zeros_like(y)
        return own.best - statistic * own.shift - own.factor * formulas_of(kind).conjugate(own.target), statistic

    base, statistic = _of_each_kind(rows, parts, y)
    return base, statistic


@quiet
def _of_each_kind(rows: Primitive, compute: Callable[..., tuple[Array, ...]], *given: Array) -> tuple[Array, ...]:
    """Return what ``compute(numpy, kind, rows, *given)`` gives for the rows of each kind, in their places."""
    dtype, axes = float_type(*given), max(np.ndim(one) for one in (*rows, *given))
    wide = (np.atleast_2d(np.asarray(one, np.float64)) for one in given)
    found = of_each_kind(np, by_kind(rows), compute, *wide)
    # Two axes were for the formulas; those that nobody gave go again.
    return cast(dtype, *(one.reshape(one.shape[2 - axes :]) if axes < 2 else one for one in found))


def float_type(*arrays: Any) -> np.dtype[Any]:
    """Return the floating dtype of a result: float32 if all arguments have it, else float64."""
    return np.result_type(*(np.asarray(array) for array in arrays), np.float32)


def cast(dtype: npt.DTypeLike, *arrays: Array) -> tuple[Array, ...]:
    """Return the arrays in ``dtype``; what is too large for it becomes infinite, which the caller rejects as a step."""
    with np.errstate(over="ignore"):
        return tuple(np.asarray(array).astype(dtype, copy=False) for array in arrays)
