"""Terms of rows at ``zeta ~ N(m, r^2)``, for the three functions A that families are made of, and any array library.

Rows of a family follow from them by a factor, a shift and a sign (``forestmix.families.primitive``). Nothing cancels:
the log-likelihood is relative to the best one, by an expected divergence ``E D = D(m) + E A(zeta) - A(m)`` of which no
part is negative, and the difference of two expectations is an integral where they are close.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy

from forestmix.errors import ArgumentError
from forestmix.families import expectations
from forestmix.families.primitive import Kind, Primitive


class Terms(NamedTuple):
    """``E D``, ``target - E A'`` and ``E A''`` of each row."""

    loss: Any
    error: Any
    curvature: Any


#: The step of central differences: their error is a ten-millionth, that of rounding a billionth.
DIFFERENCE = 1e-3
#: Gauss-Legendre nodes on [-1, 1] and weights, for the gap of close spreads.
_NODES = (-0.8611363115940526, -0.3399810435848563, 0.3399810435848563, 0.8611363115940526)
_WEIGHTS = (0.3478548451374538, 0.6521451548625461, 0.6521451548625461, 0.3478548451374538)


def quadratic(xp: Any, target: Any, m: Any, r: Any) -> Terms:
    """Return the terms of ``A = zeta^2 / 2``: ``((target - m)^2 + r^2) / 2``, the residual, and 1.

    At a target of 0 they are ``E A = (m^2 + r^2) / 2``, ``-m`` and 1 (paper, section 5.1).
    """
    residual = target - m
    return Terms(0.5 * (residual * residual + r * r), residual, xp.ones_like(m[:1, ...]))


def exponential(xp: Any, target: Any, m: Any, r: Any) -> Terms:
    """Return the terms of ``A = exp``, relative to the target.

    With ``d = m + r^2 / 2 - log(target)``, the divergence is ``target (exp(d) - 1 - d + r^2 / 2)`` and the error
    ``-target (exp(d) - 1)``; for a target of 0 they are ``exp(m + r^2 / 2)``, and minus that.
    """
    growth = 0.5 * r * r
    rate = expectations.exponential(xp, m, r)
    some = target > 0
    count = xp.where(some, target, xp.ones_like(target))
    d = m + growth - xp.log(count)
    # Past 1000 the exponential is infinite anyway; a finite d keeps infinity minus infinity away.
    d = xp.where(d > 1000, xp.full_like(d, 1000.0), d)
    jump = xp.expm1(d)
    return Terms(xp.where(some, count * (jump - d + growth), rate), xp.where(some, -count * jump, -rate), rate)


def softplus(xp: Any, target: Any, m: Any, r: Any) -> Terms:
    """Return the terms of ``A = log(1 + exp)``, whose divergence is that of two Bernoulli distributions.

    ``D(m) = KL(target || sigma(m))``. Of ``E sigma(zeta)`` and ``E sigma(-zeta)`` neither is one minus the other where
    it is small.
    """
    expected = expectations.lower_softplus(xp, -xp.abs(m), r)
    positive, rest = m > 0, 1 - expected.slope
    success, failure = xp.where(positive, rest, expected.slope), xp.where(positive, expected.slope, rest)
    small = xp.exp(-xp.abs(m))
    high, low, base = 1 / (1 + small), small / (1 + small), xp.log1p(small)
    nothing = xp.zeros_like(m)
    divergence = _part(xp, target, xp.where(positive, high, low), xp.where(positive, nothing, m) - base) + _part(
        xp, 1 - target, xp.where(positive, low, high), xp.where(positive, -m, nothing) - base
    )
    return Terms(divergence + expected.excess, target * failure - (1 - target) * success, expected.curvature)


def _part(xp: Any, f: Any, p: Any, log_p: Any) -> Any:
    """Return ``f log(f / p) + p - f``; near ``f = p``, where that cancels, from their relative difference."""
    some = f > 0
    safe = xp.where(some, f, xp.ones_like(f))
    u = (p - f) / safe
    near = some & (xp.abs(u) < 0.5)
    u = xp.where(near, u, xp.zeros_like(u))
    return xp.where(near, f * (u - xp.log1p(u)), xp.where(some, f * (xp.log(safe) - log_p) + (p - f), p))


@expectations.quiet
def quadratic_gap(xp: Any, m: Any, wide: Any, narrow: Any) -> Any:
    """Return ``(wide^2 - narrow^2) / 2``, whatever the mean (paper, section 6)."""
    return _at_least_zero(xp, 0.5 * _difference_of_squares(xp, wide, narrow)) + xp.zeros_like(m)


@expectations.quiet
def exponential_gap(xp: Any, m: Any, wide: Any, narrow: Any) -> Any:
    """Return ``exp(m + wide^2 / 2) (1 - exp(-(wide^2 - narrow^2) / 2))``; 0 for equal spreads at an infinite rate."""
    share = -xp.expm1(-_at_least_zero(xp, 0.5 * _difference_of_squares(xp, wide, narrow)))
    rate = expectations.exponential(xp, m, wide)
    return xp.where(share > 0, rate, xp.zeros_like(rate)) * share


@expectations.quiet
def softplus_gap(xp: Any, m: Any, wide: Any, narrow: Any) -> Any:
    """Return ``(1/2) int E A''(m + sqrt(v) z) dv`` over ``narrow^2 < v < wide^2``.

    The integral keeps its digits where the spreads are close; elsewhere the difference does.
    """
    m, wide, narrow = xp.broadcast_arrays(-xp.abs(m), wide, narrow)
    low, length = narrow * narrow, _difference_of_squares(xp, wide, narrow)
    difference = expectations.lower_softplus(xp, m, wide).excess - expectations.lower_softplus(xp, m, narrow).excess
    total = xp.zeros_like(m)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        spread = xp.sqrt(_at_least_zero(xp, low + 0.5 * (1 + node) * length))
        total = total + weight * expectations.lower_softplus(xp, m, spread).curvature
    close = (length <= 0.25) | (length <= 0.01 * low)
    return xp.where(length > 0, xp.where(close, 0.25 * length * total, difference), _at_least_zero(xp, length))


def _difference_of_squares(xp: Any, wide: Any, narrow: Any) -> Any:
    """Return ``wide^2 - narrow^2``, 0 for equal spreads also where they are infinite."""
    return xp.where(wide == narrow, xp.zeros_like(wide * narrow), (wide - narrow) * (wide + narrow))


def _at_least_zero(xp: Any, values: Any) -> Any:
    """Return the positive part; a NaN stays one."""
    return xp.where(values < 0, xp.zeros_like(values), values)


def _no_slopes(xp: Any, m: Any, r: Any) -> tuple[Any, Any]:
    """Return the derivatives of a curvature that is constant."""
    return xp.zeros_like(m), xp.zeros_like(m)


def _rates(xp: Any, m: Any, r: Any) -> tuple[Any, Any]:
    """Return ``exp(m + r^2 / 2)`` twice."""
    rate = expectations.exponential(xp, m, r)
    return rate, rate


def _softplus_slopes(xp: Any, m: Any, r: Any) -> tuple[Any, Any]:
    """Return the derivatives of ``E A''`` in the mean, by central differences."""
    low, here, high = (
        expectations.lower_softplus(xp, -xp.abs(m + shift), r).curvature for shift in (-DIFFERENCE, 0.0, DIFFERENCE)
    )
    return (high - low) / (2 * DIFFERENCE), ((high - here) - (here - low)) / DIFFERENCE**2


class Formulas(NamedTuple):
    """What there is to know of a function A.

    ``terms``: at a target, a mean and a spread; ``slopes``: ``E A'''`` and ``E A''''`` there; ``gap``:
    ``E A(m + wide z) - E A(m + narrow z)``; ``derivatives``: A, A' and A'' themselves, and ``conjugate``: A*, both for
    NumPy alone.
    """

    terms: Callable[[Any, Any, Any, Any], Terms]
    slopes: Callable[[Any, Any, Any], tuple[Any, Any]]
    gap: Callable[[Any, Any, Any, Any], Any]
    derivatives: tuple[Callable[[Any], Any], ...]
    conjugate: Callable[[Any], Any]


def _logistic_slope(zeta: Any) -> Any:
    """Return ``sigma(zeta) sigma(-zeta)``."""
    return scipy.special.expit(zeta) * scipy.special.expit(-zeta)


_FORMULAS = {
    Kind.QUADRATIC: Formulas(
        quadratic, _no_slopes, quadratic_gap,
        (lambda zeta: 0.5 * zeta * zeta, lambda zeta: zeta, np.ones_like), lambda t: 0.5 * t * t,
    ),
    Kind.EXPONENTIAL: Formulas(
        exponential, _rates, exponential_gap,
        (np.exp, np.exp, np.exp), lambda t: scipy.special.xlogy(t, t) - t,
    ),
    Kind.SOFTPLUS: Formulas(
        softplus, _softplus_slopes, softplus_gap,
        (lambda zeta: np.logaddexp(zeta, 0), lambda zeta: scipy.special.expit(zeta), _logistic_slope),
        lambda t: scipy.special.xlogy(t, t) + scipy.special.xlogy(1 - t, 1 - t),
    ),
}  # fmt: skip


def formulas_of(kind: int) -> Formulas:
    """Return the formulas of a kind of rows."""
    if kind not in _FORMULAS:
        names = ", ".join(f"{one.value} ({one.name.lower()})" for one in _FORMULAS)
        raise ArgumentError(f"kind of rows must be one of {names}; got {kind}.")
    return _FORMULAS[Kind(kind)]


def log_likelihood_terms(xp: Any, kind: int, rows: Primitive, eta: Any, spread: Any) -> tuple[Any, Any, Any]:
    """Return ``best - factor E D``, ``sign factor (target - E A')`` and ``factor E A''`` of rows of one kind."""
    loss, error, curvature = formulas_of(kind).terms(xp, rows.target, rows.sign * (eta - rows.shift), spread)
    return rows.best - rows.factor * loss, rows.sign * rows.factor * error, rows.factor * curvature


def curvature_slopes(xp: Any, kind: int, rows: Primitive, eta: Any, spread: Any) -> tuple[Any, Any]:
    """Return ``E a''' = sign factor E A'''`` and ``E a'''' = factor E A''''`` of rows of one kind."""
    third, fourth = formulas_of(kind).slopes(xp, rows.sign * (eta - rows.shift), spread)
    return rows.sign * rows.factor * third, rows.factor * fourth
