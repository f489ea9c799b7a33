"""The rows of a layer with their data as kernels know them, and their terms, some rows at a time.

A row is one of the primitives of ``forestmix.families.primitive`` with its numbers, or missing. With
``zeta = sign (eta - shift)`` and ``eta ~ N(m, r^2)`` it gives, in the forms that lose no digits::

    E log p = best - factor E D        e = sign factor (target - E A')        kappa = factor E A''

Means, spreads and terms of some rows are in a workspace (``compiled.softplus``). All is computed in float64.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit, pointer
from forestmix.engines.compiled.elementary import FUSED, exponential, exponential_minus_one, logarithm
from forestmix.engines.compiled.softplus import (
    CURVATURE,
    ERROR,
    EXCESS,
    KAPPA,
    MEAN,
    SIZE,
    SLOPE,
    SPREAD,
    VALUE,
    WIDTH,
    lower_softplus,
)
from forestmix.engines.primitives import terms_of
from forestmix.errors import ArgumentError
from forestmix.families.primitive import Kind
from forestmix.model import Layer, Observations

QUADRATIC, EXPONENTIAL, SOFTPLUS = Kind.QUADRATIC.value, Kind.EXPONENTIAL.value, Kind.SOFTPLUS.value
#: The kind of an entry that is missing: it contributes nothing.
MISSING = 0
#: The spread that enters the terms: none, ``sum_j |w_ij| sigma_j``, or the root of ``sum_j w_ij^2 sigma_j^2``.
NO_SPREAD, ABSOLUTE_SPREAD, SQUARED_SPREAD = 0, 1, 2
#: After what ``compiled.softplus`` keeps of a row, its numbers.
_KIND, _FACTOR, _SIGN, _TARGET, _BEST = range(SIZE, SIZE + 5 * WIDTH, WIDTH)


class RowTable(NamedTuple):
    """The rows of a layer with their data.

    Each is (N or 1, n or 1), of one row or one column where that serves all. A kernel gets those of one observation,
    (n or 1).
    """

    kind: Array
    factor: Array
    shift: Array
    sign: Array
    target: Array
    best: Array

    def take(self, keep: Array) -> RowTable:
        """Return the rows of the chosen observations."""
        return RowTable(*(part if len(part) == 1 else np.ascontiguousarray(part[keep]) for part in self))

    @property
    def curvature_is_constant(self) -> bool:
        """Whether no ``kappa`` depends on q."""
        return bool((self.kind <= QUADRATIC).all())

    @property
    def shares_curvature(self) -> bool:
        """Whether all observations have the same ``kappa``."""
        return len(self.kind) == len(self.factor) == 1 and self.curvature_is_constant

    def observation(self, k: int) -> RowTable:
        """Return the rows of one observation, (n or 1) each."""
        return RowTable(*(part[k if len(part) > 1 else 0] for part in self))


def row_table(layer: Layer, observations: Observations) -> RowTable:
    """Return the rows of a layer with their data; families whose rows are no primitives are refused."""
    given = layer.family.primitive(observations.x)
    if given is None:
        raise ArgumentError(f"family must have rows that engines know, such as Poisson(); got {layer.family!r}.")
    for kind in np.unique(given.kind).tolist():
        terms_of(kind)  # raises for one that is not known
    kind = given.kind
    if observations.observed is not None:
        kind = np.where(observations.observed, kind, np.int8(MISSING))
    # Writeable, or Numba would compile the kernels anew for arrays that are not.
    return RowTable(*(np.require(np.atleast_2d(part), requirements=["C", "W"]) for part in (kind, *given[1:])))


def quadratic_rows(factor: Array) -> RowTable:
    """Return the rows ``-factor_i eta_i^2 / 2`` of one observation: ``e = -factor eta``, ``kappa = factor``."""
    zero, one = np.zeros(1), np.ones(1)
    return RowTable(np.array([QUADRATIC], np.int8), np.require(factor, np.float64, ["C", "W"]), zero, one, zero, zero)


def new_workspace() -> Array:
    """Return a workspace for ``WIDTH`` rows."""
    return np.zeros(SIZE + 5 * WIDTH)


def terms_for(table: RowTable) -> Any:
    """Return ``fill_terms`` for kernels; ``None`` where all rows are quadratic and none is missing."""
    return None if table.kind.size == 1 and table.kind.item() == QUADRATIC else any_terms()


@cache
def any_terms() -> Any:
    """Return ``fill_terms`` for kernels."""
    return pointer(types.void(types.intp, types.float64[::1]), fill_terms)


@njit(forceinline=True, nogil=True)
def of_row(numbers, i):  # type: ignore[no-untyped-def]
    """Return the number of row i, or the one that serves all rows."""
    return numbers[i if numbers.size > 1 else 0]


@njit(forceinline=True, nogil=True)
def put_row(table, i, lane, eta, spread, work):  # type: ignore[no-untyped-def]
    """Put row i into a lane of the workspace."""
    shift, sign = of_row(table.shift, i), of_row(table.sign, i)
    work[MEAN + lane], work[SPREAD + lane] = sign * (eta - shift), spread
    work[_KIND + lane], work[_FACTOR + lane], work[_SIGN + lane] = of_row(table.kind, i), of_row(table.factor, i), sign
    work[_TARGET + lane], work[_BEST + lane] = of_row(table.target, i), of_row(table.best, i)


def fill_terms(count, work):  # type: ignore[no-untyped-def]
    """Write log-likelihood, ``e`` and ``kappa`` of ``count`` rows where VALUE, ERROR and KAPPA are."""
    softplus, exponentials = 0, 0
    for i in range(count):
        softplus += work[_KIND + i] == SOFTPLUS
        exponentials += work[_KIND + i] == EXPONENTIAL
    if softplus:
        lower_softplus(count, work)
        for i in range(count):
            if work[_KIND + i] == SOFTPLUS:
                _softplus(i, work)
    if exponentials == count:
        for i in range(count):
            _exponential(i, work)
    else:
        for i in range(count):
            if work[_KIND + i] == EXPONENTIAL:
                _exponential(i, work)
            elif work[_KIND + i] == QUADRATIC:
                _quadratic(i, work)
    _scale(count, work)


@njit(forceinline=True, nogil=True)
def _quadratic(i, work):  # type: ignore[no-untyped-def]
    residual, r = work[_TARGET + i] - work[MEAN + i], work[SPREAD + i]
    work[VALUE + i], work[ERROR + i], work[KAPPA + i] = 0.5 * (residual * residual + r * r), residual, 1.0


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def _exponential(i, work):  # type: ignore[no-untyped-def]
    """Write the terms relative to the target: with ``d = m + r^2 / 2 - log(target)``, that is what keeps digits."""
    target, growth = work[_TARGET + i], 0.5 * work[SPREAD + i] * work[SPREAD + i]
    log_rate = work[MEAN + i] + growth
    rate = exponential(log_rate)
    d = log_rate - logarithm(target if target > 0 else 1.0)
    # Past 1000 the exponential is infinite anyway; a finite d keeps infinity minus infinity away.
    d = 1000.0 if d > 1000.0 else d
    jump = exponential_minus_one(d)
    work[VALUE + i] = target * ((jump - d) + growth) if target > 0 else rate
    work[ERROR + i] = -target * jump if target > 0 else -rate
    work[KAPPA + i] = rate


@njit(forceinline=True, nogil=True)
def _softplus(i, work):  # type: ignore[no-untyped-def]
    """Turn the expectations at ``-|m|`` into the terms at m; of targets 0 and 1 the divergence is A itself."""
    m, target, slope = work[MEAN + i], work[_TARGET + i], work[SLOPE + i]
    # E sigma(zeta) and E sigma(-zeta), neither as the difference of numbers near one.
    success, failure = (1 - slope, slope) if m > 0 else (slope, 1 - slope)
    if target == 0:
        work[VALUE + i] += max(m, 0.0)
    elif target == 1:
        work[VALUE + i] += max(-m, 0.0)
    else:
        work[VALUE + i] = work[EXCESS + i] + _divergence(target, m)
    work[ERROR + i], work[KAPPA + i] = target * failure - (1 - target) * success, work[CURVATURE + i]


@njit(nogil=True)
def _divergence(target, m):  # type: ignore[no-untyped-def]
    """Return ``KL(target || sigma(m))`` of two Bernoulli distributions, a sum of parts that are not negative."""
    small = math.exp(-abs(m))
    high, low, base = 1 / (1 + small), small / (1 + small), math.log1p(small)
    success, failure = (high, low) if m > 0 else (low, high)
    return _part(target, success, min(m, 0.0) - base) + _part(1 - target, failure, min(-m, 0.0) - base)


@njit(nogil=True)
def _part(f, p, log_p):  # type: ignore[no-untyped-def]
    """Return ``f log(f / p) + p - f``; near ``f = p``, where that cancels, from the relative difference."""
    if f <= 0:
        return p
    u = (p - f) / f
    if abs(u) < 0.5:
        return f * (u - math.log1p(u))
    return f * (math.log(f) - log_p) + (p - f)


@njit(nogil=True)
def _scale(count, work):  # type: ignore[no-untyped-def]
    """Turn losses into log-likelihoods, with factor and sign; nothing is left of missing rows."""
    for i in range(count):
        factor, there = work[_FACTOR + i], work[_KIND + i] != MISSING
        work[VALUE + i] = work[_BEST + i] - factor * work[VALUE + i] if there else 0.0
        work[ERROR + i] = work[_SIGN + i] * factor * work[ERROR + i] if there else 0.0
        work[KAPPA + i] = factor * work[KAPPA + i] if there else 0.0


@njit(nogil=True)
def finish_rows(start, count, table, bias, products, spread, eta, error, kappa, terms, work, totals):  # type: ignore[no-untyped-def]
    """Turn the products of ``count`` rows from ``start`` on, at most ``WIDTH``, into their terms.

    ``products`` has a column for each row: ``w . mean``, ``|w| . sd`` and ``w^2 . sd^2``, of the last two what
    ``spread`` needs. Writes ``eta``, ``error`` and ``kappa``; puts ``e``, ``s kappa`` and ``kappa`` in the place of the
    products; adds up the log-likelihoods, and the size of what rounding acts on. ``terms`` is ``None`` where all rows
    are quadratic, and Numba then compiles no other ones.
    """
    value, size = 0.0, 0.0
    for k in range(count):
        i, r = start + k, 0.0
        b = of_row(bias, i)
        eta[i] = products[0, k] + b
        if spread == ABSOLUTE_SPREAD:
            r = float(products[1, k])
        elif spread == SQUARED_SPREAD:
            r = math.sqrt(products[2, k])
        if terms is None:
            factor, sign = of_row(table.factor, i), of_row(table.sign, i)
            residual = of_row(table.target, i) - sign * (eta[i] - of_row(table.shift, i))
            own = of_row(table.best, i) - 0.5 * factor * (residual * residual + r * r)
            error[i], kappa[i] = sign * factor * residual, factor
            value += own
            size += abs(own) + abs(error[i]) * (abs(eta[i]) + abs(b))
        else:
            put_row(table, i, k, eta[i], r, work)
    if terms is not None:
        terms(count, work)
        for k in range(count):
            i, own = start + k, work[VALUE + k]
            error[i], kappa[i] = work[ERROR + k], work[KAPPA + k]
            value += own
            size += abs(own) + abs(work[ERROR + k]) * (abs(eta[i]) + abs(of_row(bias, i)))
    for k in range(count):
        i = start + k
        products[0, k], products[1, k], products[2, k] = error[i], products[1, k] * kappa[i], kappa[i]
    totals[0] += value
    totals[1] += size


@njit(cache=True, nogil=True)
def terms_of_rows(
    first: int, last: int, table: RowTable, bias: Array, eta: Array, spread: Array,
    error: Array, kappa: Array, terms: Any, work: Array, totals: Array,
) -> None:  # fmt: skip
    """Write ``e`` and ``kappa`` of a range of rows of one observation, and add up as ``finish_rows`` does.

    ``eta`` has their means, and ``spread``, (n or 1), their spreads.
    """
    value, size = 0.0, 0.0
    for start in range(first, last, WIDTH):
        count = min(WIDTH, last - start)
        for k in range(count):
            put_row(table, start + k, k, eta[start + k], of_row(spread, start + k), work)
        terms(count, work)
        for k in range(count):
            i = start + k
            error[i], kappa[i] = work[ERROR + k], work[KAPPA + k]
            value += work[VALUE + k]
            size += abs(work[VALUE + k]) + abs(work[ERROR + k]) * (abs(eta[i]) + abs(of_row(bias, i)))
    totals[0], totals[1] = value, size
