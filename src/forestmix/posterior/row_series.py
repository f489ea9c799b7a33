"""Rows as series in the Hermite polynomials of their natural parameter.

With ``eta = m + s z``, ``z ~ N(0, 1)``, and ``p_k = He_k / sqrt(k!)``, which are orthonormal::

    a(eta) = sum_k b_k p_k(z)        b_k = E[a(eta) p_k(z)] = s^2 / sqrt(k (k - 1)) E[a''(eta) p_{k-2}(z)]

Where ``z = rho z_1 + sqrt(1 - rho^2) z_2`` of two independent coordinates, ``E[a(eta) | z_1]`` has the coefficients
``rho^k b_k`` (Mehler). So one quadrature for each row serves all coordinates, and all values along them. Of softplus
the orders that are kept leave out about 1e-11 at s = 0.5 whatever rho, and at s = 1 up to rho = 0.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.rows import RowData
from forestmix.families.expectations import GRID, NARROW, STEP
from forestmix.families.primitive import Kind, Primitive

#: Orders of the series: from the first that a Gaussian q leaves out up to the last that is kept.
FIRST, LAST = 3, 26
#: Gauss-Hermite nodes of narrow rows; entries of a table of nodes that are in memory together.
NODES, BLOCK = 32, 2**15


def polynomials(z: Array, last: int = LAST, times: Array | float = 1.0) -> Iterator[Array]:
    """Return ``p_0`` to ``p_last`` at z, times something: ``sqrt(k + 1) p_{k+1} = z p_k - sqrt(k) p_{k-1}``."""
    before, here = np.zeros_like(z), np.ones_like(z) * times
    for k in range(last + 1):
        yield here
        before, here = here, (z * here - k**0.5 * before) / (k + 1) ** 0.5


def row_series(rows: RowData, eta: Array, spread: Array) -> Array:
    """Return for each row of one observation ``b_FIRST`` to ``b_LAST`` of its ``a``, (orders, n); 0 if missing."""
    orders = np.arange(FIRST, LAST + 1)[:, None]

    def series(xp: Any, kind: int, own: Primitive, m: Array, s: Array) -> tuple[Array]:
        zeta = np.ravel(own.sign * (m - own.shift))
        return (own.factor * own.sign**orders * _SERIES[Kind(kind)](zeta, s),)

    found: Array = rows.of_each_kind(series, eta, spread)[0]
    return found


def _quadratic(m: Array, s: Array) -> Array:
    """Return those of ``zeta^2 / 2``, which has no order above 2."""
    return np.zeros((LAST - FIRST + 1, len(m)))


def _exponential(m: Array, s: Array) -> Array:
    """Return those of exp: ``exp(m + s^2 / 2) s^k / sqrt(k!)``."""
    factors = s / np.sqrt(np.arange(1, LAST + 1))[:, None]
    return np.exp(m + 0.5 * s * s) * np.cumprod(factors, axis=0)[FIRST - 1 :]


def _softplus(m: Array, s: Array) -> Array:
    """Return those of softplus, by the rule for each row's spread."""
    found, k = np.empty((LAST - FIRST + 1, len(m))), np.arange(FIRST, LAST + 1)
    for rule, chosen, width in ((_narrow, s < NARROW, NODES), (_wide, ~(s < NARROW), len(GRID))):
        places, step = np.flatnonzero(chosen), BLOCK // width
        for start in range(0, len(places), step):
            own = places[start : start + step]
            found[:, own] = rule(m[own], s[own])
    return found * s * s / np.sqrt(k * (k - 1))[:, None]


def _narrow(m: Array, s: Array) -> Array:
    """Return ``E[A'' p_{k-2}]`` by Gauss-Hermite."""
    nodes, table = _hermite()
    return table @ _curvature(m + s * nodes[:, None])


def _wide(m: Array, s: Array) -> Array:
    """Return ``E[A'' p_{k-2}]`` by the trapezoidal rule on the grid of ``families.expectations``."""
    z = (GRID[:, None] - m) / s
    weighted = np.exp(np.maximum(-0.5 * z * z, -700.0)) * (STEP / np.sqrt(2 * np.pi) / s)
    weighted *= _curvature(GRID)[:, None]
    sums = [np.sum(one, axis=0) for one in polynomials(z, LAST - 2, weighted)]
    return np.stack(sums[FIRST - 2 :])


def _curvature(zeta: Array) -> Array:
    """Return ``A'' = sigma(zeta) sigma(-zeta)`` by one exponential."""
    e = np.exp(-np.abs(zeta))
    return e / ((1 + e) * (1 + e))


@cache
def _hermite() -> tuple[Array, Array]:
    """Return nodes, and weights times ``p_{k-2}`` there, (orders, nodes)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    table = list(polynomials(nodes, LAST - 2, weights / np.sqrt(2 * np.pi)))
    return nodes, np.stack(table[FIRST - 2 :])


_SERIES = {Kind.QUADRATIC: _quadratic, Kind.EXPONENTIAL: _exponential, Kind.SOFTPLUS: _softplus}
