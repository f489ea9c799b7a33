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

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import expectations
from forestmix.families.primitive import Kind, Primitive, of_each_kind


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
    # One row serves a batch, since it does not depend on the observation.
    return Terms(0.5 * (residual * residual + r * r), residual, xp.ones_like(m[:1, ...] if m.ndim > 1 else m))


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


def quadratic_gap(m: Array, wide: Array, narrow: Array) -> Array:
    """Return ``(wide^2 - narrow^2) / 2``, whatever the mean (paper, section 6)."""
    return 0.5 * _difference_of_squares(wide, narrow) + np.zeros_like(m)


@expectations.quiet
def exponential_gap(m: Array, wide: Array, narrow: Array) -> Array:
    """Return ``exp(m + wide^2 / 2) (1 - exp(-(wide^2 - narrow^2) / 2))``; 0 for equal spreads at an infinite rate."""
    share = -np.expm1(-0.5 * _difference_of_squares(wide, narrow))
    return np.where(share > 0, expectations.exponential(np, m, wide), 0.0) * share


@expectations.quiet
def softplus_gap(m: Array, wide: Array, narrow: Array) -> Array:
    """Return ``(1/2) int E A''(m + sqrt(v) z) dv`` over ``narrow^2 < v < wide^2``.

    The integral keeps its digits where the spreads are close; elsewhere the difference does.
    """
    m, wide, narrow = np.broadcast_arrays(-np.abs(m), wide, narrow)
    low, length = narrow * narrow, _difference_of_squares(wide, narrow)
    difference = expectations.lower_softplus(np, m, wide).excess - expectations.lower_softplus(np, m, narrow).excess
    spreads = [np.sqrt(low + 0.5 * (1 + node) * length) for node in _NODES]
    total = sum(w * expectations.lower_softplus(np, m, s).curvature for w, s in zip(_WEIGHTS, spreads, strict=True))
    close = (length <= 0.25) | (length <= 0.01 * low)
    return np.where(length > 0, np.where(close, 0.25 * length * total, difference), length)


@expectations.quiet
def _difference_of_squares(wide: Array, narrow: Array) -> Array:
    """Return ``wide^2 - narrow^2``, at least 0; 0 for equal spreads also where they are infinite."""
    return np.where(wide == narrow, 0.0, np.maximum((wide - narrow) * (wide + narrow), 0.0))


class Formulas(NamedTuple):
    """What there is to know of a function A.

    ``terms``: at a target, a mean and a spread, in arrays of any library. In those of NumPy, ``gap``:
    ``E A(m + wide z) - E A(m + narrow z)``; ``derivatives``: A, A' and A'' themselves.
    """

    terms: Callable[[Any, Any, Any, Any], Terms]
    gap: Callable[[Array, Array, Array], Array]
    derivatives: tuple[Callable[[Array], Array], ...]


_FORMULAS = {
    Kind.QUADRATIC: Formulas(quadratic, quadratic_gap, (lambda zeta: 0.5 * zeta * zeta, np.asarray, np.ones_like)),
    Kind.EXPONENTIAL: Formulas(exponential, exponential_gap, (np.exp, np.exp, np.exp)),
    Kind.SOFTPLUS: Formulas(softplus, softplus_gap, (
        lambda zeta: np.logaddexp(zeta, 0),
        lambda zeta: scipy.special.expit(zeta),
        lambda zeta: scipy.special.expit(zeta) * scipy.special.expit(-zeta),
    )),
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
    """Return both derivatives of ``E a''`` in the mean, of rows of one kind, by central differences."""
    low, here, high = (
        log_likelihood_terms(xp, kind, rows, eta + shift, spread)[2] for shift in (-DIFFERENCE, 0.0, DIFFERENCE)
    )
    return (high - low) / (2 * DIFFERENCE), ((high - here) - (here - low)) / DIFFERENCE**2


def gap(rows: Primitive, eta: Array, wide: Array, narrow: Array) -> Array:
    """Return ``E a(eta + wide z) - E a(eta + narrow z)`` of rows, also for close spreads."""

    def of_kind(xp: Any, kind: int, own: Primitive, eta: Array, wide: Array, narrow: Array) -> tuple[Array]:
        return (own.factor * formulas_of(kind).gap(own.sign * (eta - own.shift), wide, narrow),)

    return of_each_kind(np, rows, of_kind, eta, wide, narrow)[0]


def log_partition(rows: Primitive, order: int, eta: Array) -> Array:
    """Return ``a(eta)``, or its derivative of order 1 or 2, which is ``sign^order factor A^(order)(zeta)``."""

    def of_kind(xp: Any, kind: int, own: Primitive, eta: Array) -> tuple[Array]:
        return (own.factor * own.sign**order * formulas_of(kind).derivatives[order](own.sign * (eta - own.shift)),)

    return of_each_kind(np, rows, of_kind, eta)[0]
