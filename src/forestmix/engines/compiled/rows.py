"""What one row contributes, as a compiled function of numbers: the families that passes and sweeps know by a code.

A row is described by four numbers, one entry each of the arrays of a ``RowTable``: the code of its family, the value
observed, a parameter of the family, and a constant that depends on both. With ``eta ~ N(m, r^2)`` the row gives::

    E log p(x | eta)        e = t(x) - E a'(eta)        kappa = E a''(eta)

in the forms that lose no digits, which are those of ``Family.expectations``. All is computed in float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.expectations import lower_expectations

#: An entry that is missing: it contributes nothing.
MISSING = 0
#: ``scale`` is ``1 / sd``, ``constant`` is ``log sd + log(2 pi) / 2``.
GAUSSIAN = 1
#: Neither is used.
BERNOULLI = 2
#: ``scale`` is the number of trials, ``constant`` what Stirling's formula leaves of ``-log C(trials, x)``.
BINOMIAL = 3
#: ``scale`` is not used, ``constant`` is what Stirling's formula leaves of ``log x!``.
POISSON = 4


class RowTable(NamedTuple):
    """The rows of a layer with their data: ``kind`` and ``constant`` are (N or 1, n), ``x`` (N, n), ``scale`` (n,).

    Where one number serves all rows, ``kind``, ``constant`` and ``scale`` have only that one; see ``of_row``.
    """

    kind: Array
    x: Array
    scale: Array
    constant: Array

    @property
    def family(self) -> int | None:
        """The code of all rows, or ``None`` where they have several, that of missing ones among them."""
        return int(self.kind[0, 0]) if self.kind.size == 1 else None

    def take(self, keep: Array) -> RowTable:
        """Return the table of the chosen observations."""
        kind, constant = (part if part.shape[0] == 1 else part[keep] for part in (self.kind, self.constant))
        return RowTable(kind, self.x[keep], self.scale, constant)


@njit(forceinline=True, nogil=True)
def of_row(numbers, i):  # type: ignore[no-untyped-def]
    """Return the number of row i, or the one that serves all rows and that memory is not asked for again."""
    return numbers[i if numbers.size > 1 else 0]


@njit(cache=True, nogil=True)
def row_terms(kind: int, x: float, scale: float, constant: float, m: float, r: float) -> tuple[float, float, float]:
    """Return the expected log-likelihood, ``e`` and ``kappa`` of one row at ``eta ~ N(m, r^2)``."""
    if kind == GAUSSIAN:
        return gaussian_terms(x, scale, constant, m, r)
    if kind == POISSON:
        return _poisson(x, constant, m, r)
    if kind == MISSING:
        return 0.0, 0.0, 0.0
    value, excess, slope, curvature = lower_expectations(-abs(m), r, kind == BINOMIAL)
    # E sigma(eta) and E sigma(-eta), neither as the difference of numbers near one.
    success, failure = (1 - slope, slope) if m > 0 else (slope, 1 - slope)
    if kind == BERNOULLI:
        above, below = value + max(m, 0.0), value + max(-m, 0.0)
        return -(x * below + (1 - x) * above), x * failure - (1 - x) * success, curvature
    fraction = x / scale
    loss = scale * (_divergence(fraction, m) + excess)
    return -loss - constant, x * failure - (scale - x) * success, scale * curvature


@njit(forceinline=True, nogil=True)
def gaussian_terms(x, scale, constant, m, r):  # type: ignore[no-untyped-def]
    """Return the terms of a Gaussian row; with no branch in them, loops over such rows take several at once."""
    residual, width = (x - m) * scale, r * scale
    return -0.5 * (residual * residual + width * width) - constant, residual * scale, scale * scale


@njit(cache=True, nogil=True)
def _poisson(x, constant, m, r):  # type: ignore[no-untyped-def]
    """Return the terms relative to the count; see ``families.poisson``."""
    growth = 0.5 * r * r
    rate = _exponential(m + growth)
    if x == 0:
        return -rate, -rate, rate
    # Past 1000 the exponential is infinite anyway; a finite d keeps infinity minus infinity away.
    d = m + growth - math.log(x)
    d = 1000.0 if d > 1000.0 else d  # not by min, which would make a number of NaN
    jump = math.inf if d >= 709.0 else math.expm1(d)
    return -x * ((jump - d) + growth) - constant, -x * jump, rate


@njit(cache=True, nogil=True)
def _exponential(x):  # type: ignore[no-untyped-def]
    """Return ``exp(x)``, infinite where that overflows rather than an error."""
    return math.exp(x) if x < 709.0 else (math.inf if x >= 709.0 else x)


@njit(cache=True, nogil=True)
def _softplus(x):  # type: ignore[no-untyped-def]
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@njit(cache=True, nogil=True)
def _divergence(fraction, m):  # type: ignore[no-untyped-def]
    """Return ``KL(Bernoulli(fraction) || Bernoulli(sigma(m)))`` as the sum of two parts that are not negative."""
    small = math.exp(-abs(m))
    high, low = 1 / (1 + small), small / (1 + small)
    success, failure = (high, low) if m > 0 else (low, high)
    return _part(fraction, success, -_softplus(-m)) + _part(1 - fraction, failure, -_softplus(m))


@njit(cache=True, nogil=True)
def _part(f, p, log_p):  # type: ignore[no-untyped-def]
    """Return ``f log(f / p) + p - f``; near ``f = p``, where that cancels, from the relative difference."""
    if f <= 0:
        return p
    u = (p - f) / f
    if abs(u) < 0.5:
        return f * (u - math.log1p(u))
    return f * (math.log(f) - log_p) + (p - f)
