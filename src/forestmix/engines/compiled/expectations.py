"""Gaussian expectations of the softplus function and its derivatives, the heart of Bernoulli and Binomial rows.

With ``a(eta) = log(1 + exp(eta))``, ``sigma = a'`` and ``eta = m + s z``, ``z ~ N(0, 1)``, these are ``E a``, ``E a'``
and ``E a''``, to about 1e-11 relative for every m and s. Symmetry leaves ``m <= 0``, where all three can be tiny::

    a(eta) = eta + a(-eta)        sigma(eta) = 1 - sigma(-eta)        sigma'(eta) = sigma'(-eta)

- ``s < 0.1``: the heat series ``E f = sum_j (s^2 / 2)^j f^(2j)(m) / j!``, whose terms are polynomials in ``sigma'(m)``.
- otherwise: ``ramp(eta) = E max(eta + tau z, 0)`` is close to ``a`` and has closed expectations. The rest falls like
  ``exp(-|eta|)`` on both sides, so one table of ``a - ramp`` on a fixed grid serves every m and s. The trapezoidal rule
  converges geometrically there (the nearest poles are at ``+- i pi``), and ``tau < 4 / sqrt(2 pi)`` makes every term of
  ``E a`` and ``E a''`` positive, so small values keep their digits. On a grid the normal weights follow a recurrence:
  three exponentials serve all nodes.
- far in the lower tail all three are ``E exp(eta) = exp(m + s^2 / 2)``; for an enormous s only the ramp is left.
"""

from __future__ import annotations

import math

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.nodes import LANES, march

#: Above this spread the grid is used, below it the series.
SERIES_LIMIT = 0.1
#: Above this spread a - ramp no longer matters beside the ramp: it is smaller by 1 / s^2.
RAMP_LIMIT = 1e9
#: From these spreads on the step of the grid may be 1/8, 1/4 and 1/2; below them it is 1/16.
STEP_LIMITS = (0.2, 0.4, 0.8)

_EDGE = 40.0
_TAU = 1.5
#: Terms smaller than the largest by exp(-_DROP) are left out.
_DROP = 30.0
#: From here down, softplus and its derivatives equal exp(eta) to rounding.
_EXPONENTIAL = -37.0
#: exp of less than this is zero.
_UNDERFLOW = -746.0
_ROOT_TWO_PI = math.sqrt(2 * math.pi)
_SERIES_TERMS = 6


def _remainder_table(step: float) -> Array:
    """Return ``a - ramp``, ``sigma - Phi(. / tau)`` and ``sigma'`` on the grid, by rows, and zeros after it."""
    half = round(_EDGE / step)
    eta = step * np.arange(-half, half + 1)
    low = -np.abs(eta)
    t = low / _TAU
    # Not by scipy.special: to import it takes longer than to load the kernels.
    below = np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in t])
    ramp = low * below + _TAU * np.exp(-0.5 * t**2) / _ROOT_TWO_PI
    small = np.exp(low)
    sigma, rest = small / (1 + small), 1 / (1 + small)
    slope = (sigma - below) * np.where(eta > 0, -1, 1)
    table = np.stack([np.log1p(small) - ramp, slope, sigma * rest])
    return np.pad(table, ((0, 0), (0, 2 * LANES)))


def _series_table() -> Array:
    """Return the coefficients of ``P_j``, by rows, each divided by ``j! 2^j``, where ``sigma^(2j+1) = P_j(sigma')``.

    With ``x = sigma'`` and ``x' = x (1 - 2 sigma)``, ``(1 - 2 sigma)^2 = 1 - 4 x``::

        P_0 = x        P_{j+1} = x^2 (1 - 4x) P_j'' + x (1 - 6x) P_j'
    """
    # On a power: x^k -> k^2 x^k - 2k (2k + 1) x^(k+1).
    powers = np.arange(_SERIES_TERMS + 1)
    p, table = (powers == 1).astype(np.float64), np.zeros((_SERIES_TERMS, _SERIES_TERMS + 1))
    for j in range(_SERIES_TERMS):
        table[j] = p / (math.factorial(j) * 2.0**j)
        p = powers**2 * p - np.roll(2 * powers * (2 * powers + 1) * p, 1)
    return table


#: The tables of all steps, the smallest first, one after another; where 0 is in each, and where its zeros begin.
_STEPS = np.array([1 / 16, 1 / 8, 1 / 4, 1 / 2])
_PARTS = [_remainder_table(step) for step in _STEPS]
_VALUE, _SLOPE, _CURVATURE = (np.concatenate([part[k] for part in _PARTS]) for k in range(3))
_ENDS = np.cumsum([part.shape[1] for part in _PARTS]) - 2 * LANES
_CENTRES = _ENDS - 1 - np.array([round(_EDGE / step) for step in _STEPS])
_SERIES = _series_table()
#: Gauss-Legendre nodes and weights on [-1, 1].
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)


@njit(cache=True, nogil=True)
def softplus_expectations(m: float, s: float) -> tuple[float, float, float]:
    """Return ``E a``, ``E a'`` and ``E a''`` for ``a(eta) = log(1 + exp(eta))`` and ``eta ~ N(m, s^2)``."""
    value, _, slope, curvature = lower_expectations(-abs(m), s, False)
    if m > 0:
        return m + value, 1 - slope, curvature
    return value, slope, curvature


@njit(cache=True, nogil=True)
def lower_expectations(m: float, s: float, with_excess: bool) -> tuple[float, float, float, float]:
    """Return ``E a``, ``E a - a(m)``, ``E a'`` and ``E a''`` for ``m <= 0``; the second only where it is asked for."""
    if s < SERIES_LIMIT:
        return _series(m, s)
    if s > RAMP_LIMIT or not s - m < math.inf:
        return _ramp_only(m, s)
    peak = m + s * s
    if peak + 8.5 * s < _EXPONENTIAL:
        value = math.exp(m + 0.5 * s * s)
        return value, -math.expm1(-0.5 * s * s) * value, value, value
    if (m + 0.5 * s * s if peak < 0 else -0.5 * (m / s) ** 2) < _UNDERFLOW:
        return 0.0, 0.0, 0.0, 0.0
    value, slope, curvature = _grid(m, s)
    excess = max(value - math.log1p(math.exp(m)), 0.0) if with_excess else 0.0
    return value, excess, slope, curvature


@njit(cache=True, nogil=True)
def _series(m, s):  # type: ignore[no-untyped-def]
    """Sum the heat series; all its terms are polynomials in ``x = sigma'(m)``."""
    e = math.exp(m)
    p = e / (1 + e)
    x = p / (1 + e)
    v = s * s
    excess, bend, curvature, power = 0.0, 0.0, 0.0, 1.0
    for j in range(_SERIES_TERMS):
        term, scaled = 0.0, 0.0
        for k in range(j + 1, 0, -1):
            term = (term + _SERIES[j, k]) * x
            scaled = (scaled + k * _SERIES[j, k]) * x
        curvature += power * term
        power *= v
        excess += power * term / (2 * j + 2)
        bend += power * scaled / (2 * j + 2)
        if power == 0:
            break
    base = math.log1p(e)
    return base + excess, excess, p + (1 - 2 * p) * bend, curvature


@njit(cache=True, nogil=True)
def _ramp(m, s):  # type: ignore[no-untyped-def]
    """Return ``E max(eta, 0)``, ``P(eta > 0)`` and the density of ``eta`` at 0, for ``eta ~ N(m, s^2)``."""
    t = m / s
    density = math.exp(-0.5 * t * t) / _ROOT_TWO_PI
    tail = 0.5 * math.erfc(-t * math.sqrt(0.5))
    return max(m * tail + s * density, 0.0), tail, density / s


@njit(cache=True, nogil=True)
def _ramp_only(m, s):  # type: ignore[no-untyped-def]
    """Return the limit of a large spread, also for infinite arguments: never NaN unless one is given."""
    if math.isnan(m) or math.isnan(s):
        return math.nan, math.nan, math.nan, math.nan
    if s == math.inf:
        return math.inf, math.inf, 0.5, 0.0
    if m == -math.inf:
        return 0.0, 0.0, 0.0, 0.0
    value, slope, curvature = _ramp(m, s)
    return value, value, slope, curvature


@njit(cache=True, nogil=True)
def _window(m, s):  # type: ignore[no-untyped-def]
    """Return where ``exp(-|eta|) N(eta; m, s^2)`` has its peak, and the points where it has fallen by exp(-_DROP)."""
    centre, twice = m + s * s, 2 * _DROP * s * s
    if centre >= 0:
        left = -twice / (centre + math.sqrt(centre * centre + twice))
        budget = twice
    else:
        left = centre - math.sqrt(twice)
        budget = twice - centre * centre
        if budget <= 0:
            return left, centre, centre + math.sqrt(twice)
    mirrored = s * s - m
    return left, min(centre, 0.0), budget / (mirrored + math.sqrt(mirrored * mirrored + budget))


@njit(cache=True, nogil=True)
def _level(s):  # type: ignore[no-untyped-def]
    """Return which step of the grid is small enough."""
    return int(s >= STEP_LIMITS[0]) + int(s >= STEP_LIMITS[1]) + int(s >= STEP_LIMITS[2])


@njit(cache=True, nogil=True)
def _below_table(m, s, step, count):  # type: ignore[no-untyped-def]
    """Add up ``count`` nodes below the table, where softplus and its derivatives are ``exp(eta)``."""
    total = 0.0
    for k in range(1, count + 1):
        eta = -_EDGE - k * step
        total += math.exp(eta - 0.5 * ((eta - m) / s) ** 2)
    return total


@njit(cache=True, nogil=True)
def _grid(m, s):  # type: ignore[no-untyped-def]
    """Return ramp plus trapezoidal rule, from the peak of the summand outwards in both directions.

    ``a - ramp`` and ``sigma'`` are even and ``sigma - Phi`` is odd, so nodes downwards are those of the mirrored table
    upwards.
    """
    level = _level(s)
    step, centre, end = _STEPS[level], _CENTRES[level], _ENDS[level]
    edge = end - 1 - centre
    left, peak, right = _window(m, s)
    start = max(round(peak / step), -edge)
    # The ratio of neighbouring weights, upwards and downwards, changes by the same factor at every step.
    offset = start * step - m
    weight = math.exp(-0.5 * (offset / s) ** 2)
    bend = math.exp(-((step / s) ** 2))
    up = math.exp(-(0.5 * step + offset) * step / (s * s))
    above = min(max(math.ceil(right / step) - start, 0), edge - start)
    below = max(start - math.floor(left / step), 0)
    inside = min(below, start + edge)
    steps = (max(above, inside) + LANES - 1) // LANES
    value, slope, curvature = march(
        _VALUE, _SLOPE, _CURVATURE, centre + start + 1, centre - start + 1, end, steps, weight, up, bend / up, bend
    )  # fmt: skip
    tail = _below_table(m, s, step, below - inside) if below > inside else 0.0
    scale, here = step / (s * _ROOT_TWO_PI), centre + start
    ramp, probability, _ = _ramp(m, math.sqrt(s * s + _TAU * _TAU))
    return (
        ramp + scale * (value + tail + weight * _VALUE[here]),
        probability + scale * (slope + tail + weight * _SLOPE[here]),
        scale * (curvature + tail + weight * _CURVATURE[here]),
    )


@njit(cache=True, nogil=True)
def softplus_gap(m: float, wide: float, narrow: float) -> float:
    """Return ``E a(m + wide z) - E a(m + narrow z) = (1/2) int_{narrow^2}^{wide^2} E a''(m + sqrt(v) z) dv``.

    The integral keeps its digits where the two are close; elsewhere the difference does.
    """
    low, length = narrow * narrow, (wide - narrow) * (wide + narrow)
    if not length > 0:
        return math.nan if math.isnan(length) and wide != narrow else 0.0
    if length > max(0.25, 0.01 * low):
        return lower_expectations(-abs(m), wide, True)[1] - lower_expectations(-abs(m), narrow, True)[1]
    total = 0.0
    for k in range(_NODES.shape[0]):
        s = math.sqrt(low + 0.5 * length * (1 + _NODES[k]))
        total += _WEIGHTS[k] * lower_expectations(-abs(m), s, False)[3]
    return 0.25 * length * total


@njit(cache=True, nogil=True)
def fill_lower_expectations(mean: Array, spread: Array, out: Array) -> None:
    """Write all four of ``lower_expectations(-|mean|, spread)`` of every row into the columns of ``out``, (4, rows)."""
    for i in range(mean.shape[0]):
        out[0, i], out[1, i], out[2, i], out[3, i] = lower_expectations(-abs(mean[i]), spread[i], True)


@njit(cache=True, nogil=True)
def fill_gaps(mean: Array, wide: Array, narrow: Array, out: Array) -> None:
    """Write ``softplus_gap`` of every row into ``out``."""
    for i in range(mean.shape[0]):
        out[i] = softplus_gap(mean[i], wide[i], narrow[i])
