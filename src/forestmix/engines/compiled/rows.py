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
from forestmix.engines.rows import primitive_of
from forestmix.families.primitive import Kind
from forestmix.model import Layer, Observations

QUADRATIC, EXPONENTIAL, SOFTPLUS = Kind.QUADRATIC.value, Kind.EXPONENTIAL.value, Kind.SOFTPLUS.value
#: The kind of an entry that is missing: it contributes nothing.
MISSING = 0
#: The spread that enters the terms: none, ``sum_j |w_ij| sigma_j``, or the root of ``sum_j w_ij^2 sigma_j^2``.
NO_SPREAD, ABSOLUTE_SPREAD, SQUARED_SPREAD = 0, 1, 2
#: After what ``compiled.softplus`` keeps of a row, its numbers, in the order of ``NUMBERS``.
NUMBERS = ("kind", "factor", "shift", "sign", "target", "best", "bias")
KIND, FACTOR, SHIFT, SIGN, TARGET, BEST, BIAS = range(len(NUMBERS))
_KIND, _FACTOR, _SHIFT, _SIGN, _TARGET, _BEST, _BIAS = range(SIZE, SIZE + len(NUMBERS) * WIDTH, WIDTH)


#: The numbers of one observation, (n or 1) each.
Table = tuple[Array, ...]


class RowTable(NamedTuple):
    """The rows of a layer with their data.

    ``numbers``: those of ``NUMBERS``, (N or 1, n or 1) each, of one row or one column where that serves all, in
    float64, so that kernels can go over them in a loop; ``kinds``: all that are among them, but for ``MISSING``.
    """

    numbers: tuple[Array, ...]
    kinds: frozenset[int]

    def take(self, keep: Array) -> RowTable:
        """Return the rows of the chosen observations."""
        chosen = (part if len(part) == 1 else np.ascontiguousarray(part[keep]) for part in self.numbers)
        return RowTable(tuple(chosen), self.kinds)

    @property
    def curvature_is_constant(self) -> bool:
        """Whether no ``kappa`` depends on q."""
        return self.kinds <= {QUADRATIC}

    @property
    def shares_curvature(self) -> bool:
        """Whether all observations have the same ``kappa``."""
        return len(self.numbers[KIND]) == len(self.numbers[FACTOR]) == 1 and self.curvature_is_constant

    @property
    def terms(self) -> Any:
        """The function for the terms of these rows, as kernels take it; all are of the same type."""
        return terms_for(next(iter(self.kinds), QUADRATIC) if len(self.kinds) < 2 else None)

    def observation(self, k: int) -> Table:
        """Return the numbers of one observation, (n or 1) each."""
        return tuple(part[k if len(part) > 1 else 0] for part in self.numbers)


def row_table(layer: Layer, observations: Observations) -> RowTable:
    """Return the rows of a layer with their data."""
    kind, *given = primitive_of(layer, observations)
    kinds = frozenset(np.unique(kind).tolist())
    if observations.observed is not None:
        kind = np.where(observations.observed, kind, np.int8(MISSING))
    # Writeable, or Numba would compile the kernels anew for arrays that are not.
    numbers = (np.require(np.atleast_2d(part), np.float64, ["C", "W"]) for part in (kind, *given, layer.bias))
    return RowTable(tuple(numbers), kinds)


def quadratic_rows(factor: Array) -> RowTable:
    """Return the rows ``-factor_i eta_i^2 / 2`` of one observation: ``e = -factor eta``, ``kappa = factor``."""
    fixed = {"kind": QUADRATIC, "factor": factor, "sign": 1.0}
    parts = (np.asarray(fixed.get(name, 0.0), np.float64) for name in NUMBERS)
    numbers = (np.require(np.atleast_2d(part), requirements=["C", "W"]) for part in parts)
    return RowTable(tuple(numbers), frozenset({QUADRATIC}))


@cache
def terms_for(kind: int | None) -> Any:
    """Return the function for the terms of rows of one kind, or of any, for kernels."""
    own = {QUADRATIC: quadratic_terms, EXPONENTIAL: exponential_terms, SOFTPLUS: softplus_terms, None: mixed_terms}
    return pointer(types.void(types.intp, types.float64[::1]), own[kind], fastmath=FUSED, error_model="numpy")


@njit(inline="always")
def new_workspace():  # type: ignore[no-untyped-def]
    """Return a workspace for ``WIDTH`` rows."""
    return np.zeros(SIZE + len(NUMBERS) * WIDTH)


@njit(forceinline=True, nogil=True)
def of_row(numbers, i):  # type: ignore[no-untyped-def]
    """Return the number of row i, or the one that serves all rows."""
    return numbers[i if numbers.size > 1 else 0]


@njit(nogil=True)
def put_row(table, i, lane, eta, spread, work):  # type: ignore[no-untyped-def]
    """Put row i into a lane of the workspace."""
    place = SIZE + lane
    for numbers in table:
        work[place] = of_row(numbers, i)
        place += WIDTH
    work[MEAN + lane], work[SPREAD + lane] = work[_SIGN + lane] * (eta - work[_SHIFT + lane]), spread


def quadratic_terms(count, work):  # type: ignore[no-untyped-def]
    """Write log-likelihood, ``e`` and ``kappa`` of ``count`` quadratic rows where VALUE, ERROR and KAPPA are."""
    for i in range(count):
        _quadratic(i, work)
    _scale(count, work)


def exponential_terms(count, work):  # type: ignore[no-untyped-def]
    """Write those of exponential rows."""
    for i in range(count):
        _exponential(i, work)
    _scale(count, work)


def softplus_terms(count, work):  # type: ignore[no-untyped-def]
    """Write those of softplus rows."""
    lower_softplus(count, work)
    for i in range(count):
        _softplus(i, work)
    _scale(count, work)


def mixed_terms(count, work):  # type: ignore[no-untyped-def]
    """Write those of rows of any kind."""
    softplus = 0
    for i in range(count):
        softplus += work[_KIND + i] == SOFTPLUS
    if softplus:
        lower_softplus(count, work)
    for i in range(count):
        if work[_KIND + i] == SOFTPLUS:
            _softplus(i, work)
        elif work[_KIND + i] == EXPONENTIAL:
            _exponential(i, work)
        else:
            _quadratic(i, work)
    _scale(count, work)


@njit(inline="always")
def _quadratic(i, work):  # type: ignore[no-untyped-def]
    residual, r = work[_TARGET + i] - work[MEAN + i], work[SPREAD + i]
    work[VALUE + i], work[ERROR + i], work[KAPPA + i] = 0.5 * (residual * residual + r * r), residual, 1.0


@njit(inline="always")
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


@njit(inline="always")
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


@njit(inline="always")
def _scale(count, work):  # type: ignore[no-untyped-def]
    """Turn losses into log-likelihoods, with factor and sign; nothing is left of missing rows."""
    for i in range(count):
        factor, there = work[_FACTOR + i], work[_KIND + i] != MISSING
        work[VALUE + i] = work[_BEST + i] - factor * work[VALUE + i] if there else 0.0
        work[ERROR + i] = work[_SIGN + i] * factor * work[ERROR + i] if there else 0.0
        work[KAPPA + i] = factor * work[KAPPA + i] if there else 0.0


@njit(inline="always")
def finish_rows(start, count, table, products, at, spread, found, terms, work, totals):  # type: ignore[no-untyped-def]
    """Turn the products of ``count`` rows from ``start`` on, at most ``WIDTH``, into their terms.

    ``products`` has a column for each row, from ``at`` on: ``w . mean``, ``|w| . sd`` and ``w^2 . sd^2``, of the last
    two what ``spread`` needs. Writes ``eta``, ``error`` and ``kappa`` into the three arrays ``found``; puts ``e``,
    ``s kappa`` and ``kappa`` in the place of the products; adds up the log-likelihoods, and the size of what rounding
    acts on.
    """
    eta, error, kappa = found
    place = SIZE
    for numbers in table:
        if numbers.size > 1:
            for k in range(count):
                work[place + k] = numbers[np.uint64(start + k)]
        else:
            for k in range(count):
                work[place + k] = numbers[0]
        place += WIDTH
    for k in range(count):
        i, r = np.uint64(start + k), 0.0
        eta[i] = products[0, at + k] + work[_BIAS + k]
        if spread == ABSOLUTE_SPREAD:
            r = float(products[1, at + k])
        elif spread == SQUARED_SPREAD:
            r = math.sqrt(products[2, at + k])
        work[MEAN + k], work[SPREAD + k] = work[_SIGN + k] * (eta[i] - work[_SHIFT + k]), r
    terms(count, work)
    value, size = 0.0, 0.0
    for k in range(count):
        i, own, e = np.uint64(start + k), work[VALUE + k], work[ERROR + k]
        error[i], kappa[i] = e, work[KAPPA + k]
        value += own
        size += abs(own) + abs(e) * (abs(eta[i]) + abs(work[_BIAS + k]))
        products[0, at + k], products[1, at + k] = error[i], products[1, at + k] * kappa[i]
        products[2, at + k] = kappa[i]
    totals[0] += value
    totals[1] += size


@njit(cache=True, nogil=True)
def terms_of_rows(
    first: int, last: int, table: Table, spread: Array, found: tuple[Array, Array, Array],
    terms: Any, totals: Array,
) -> None:  # fmt: skip
    """Write the terms of a range of rows of one observation, and add up as ``finish_rows`` does.

    The first of ``found`` has their means without the bias, and ``spread``, (n or 1), has their spreads.
    """
    work, products = new_workspace(), np.zeros((3, WIDTH), found[0].dtype)
    for start in range(first, last, WIDTH):
        count = min(WIDTH, last - start)
        for k in range(count):
            products[0, k], products[1, k] = found[0][start + k], of_row(spread, start + k)
        finish_rows(start, count, table, products, 0, ABSOLUTE_SPREAD, found, terms, work, totals)
