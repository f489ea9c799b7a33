"""Gaussian expectations of exp and softplus, with two derivatives each, for arrays of any library.

Rows of every family are made of these two (``forestmix.families.primitive``). With ``eta = m + s z``, ``z ~ N(0, 1)``,
they have ten digits, relative to themselves, for m in [-50, 50] and s in [0, 1000], and as a rule twelve;
``tests/families/test_expectations.py`` asks mpmath. All is plain arithmetic on whole arrays: but for NumPy, where
it saves time, no shape and no branch depends on a number, so JAX can trace it.

Softplus, ``a(eta) = log(1 + exp(eta))``. Symmetry leaves ``m <= 0``, where all expectations can be tiny::

    a(eta) = eta + a(-eta)        sigma(eta) = 1 - sigma(-eta)        sigma'(eta) = sigma'(-eta)

- ``s < 1``: Gauss-Hermite with 16 pairs of nodes ``m +- h``. A pair has closed forms with terms that are all positive,
  so nothing cancels (``_narrow``). Relative error: at most 5e-12, at s = 1, and rounding alone below 0.8.
- ``s >= 1``: ``ramp(eta) = E max(eta + tau z, 0)`` has closed expectations and is close to ``a``. The rest falls like
  ``exp(-|eta|)``, so the trapezoidal rule on one fixed grid serves all: an exponential for each node, then a product
  with a table (``_wide``). Relative error: at most 7e-12, at s = 1, where the poles at ``+- i pi`` count most.
- there, in the lower tail ``m < -s^2 / 2``, where all three are near ``exp(m + s^2 / 2)``, the grid is used at
  ``m + s^2``: ``E f(eta) = exp(m + s^2 / 2) E[f(eta + s^2) exp(-eta - s^2)]``. So tiny values keep their digits. Where
  the tail begins, the summand falls like ``exp(-|eta| / 2)`` only: relative error at most 2e-11, at m = -50, s = 10.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

#: Below this spread Gauss-Hermite is used, from it on the grid.
NARROW = 1.0
#: Pairs of Gauss-Hermite nodes; step of the grid, and nodes on each side of 0.
PAIRS, STEP, HALF = 16, 0.55, 70
#: The spread of the ramp; less than ``4 / sqrt(2 pi)``, so that ``a - ramp`` is positive.
TAU = 1.5
#: Entries whose nodes are in memory together.
BLOCK = 1024
#: The least exponent: functions that underflow are several times slower.
_LEAST = np.array(-700.0)
#: Beyond this spread that of the ramp no longer matters, and its square could overflow.
ENORMOUS = 1e9
_ROOT_TWO_PI = math.sqrt(2 * math.pi)
#: ``(1 + t) M(t)`` for Mills' ratio M, as a polynomial in ``(t - 5) / (t + 5)``: Chebyshev interpolation with mpmath,
#: whose first term left out is 2e-16.
MILLS = (
    1.1568486282918946, -0.2294875382521184, 0.07778159886873769, 0.02507217930210036, -0.0661776007790963,
    0.061505045828185945, -0.03802659218584139, 0.016348231425036042, -0.004201290329187307, 1.9529678326371773e-05,
    0.00045704392357953655, -0.00013437036855802517, -2.480583845192319e-05, 2.2699386557775844e-05,
    -1.7633239265736746e-07, -3.2597570878457124e-06, 3.2054316652589574e-07, 4.724032706831338e-07,
    -6.588974491108954e-08, -6.383575502421413e-08, 9.092476134019147e-09, 5.5322922141146196e-09,
    -7.073898575561589e-10,
)  # fmt: skip


class Expectations(NamedTuple):
    """``E a``, ``E a - a(m)``, ``E a'`` and ``E a''`` of softplus at ``eta ~ N(m, s^2)``, entry by entry."""

    value: Any
    excess: Any
    slope: Any
    curvature: Any


#: NumPy warns of overflow; here it is an infinite expectation, and so a step that is refused.
quiet = np.errstate(over="ignore", under="ignore", invalid="ignore")


@quiet
def exponential(xp: Any, m: Any, s: Any) -> Any:
    """Return ``E exp(eta) = exp(m + s^2 / 2)``, infinite where that overflows; its derivatives are the same."""
    return xp.exp(m + 0.5 * s * s)


@quiet
def lower_softplus(xp: Any, m: Any, s: Any) -> Expectations:
    """Return the expectations of ``log(1 + exp(eta))`` for ``m <= 0``."""
    m, s = xp.broadcast_arrays(m, s)
    shape, m, s = m.shape, xp.reshape(m, (-1,)), xp.reshape(s, (-1,))
    size = m.shape[0]
    parts_of = [slice(k, min(k + BLOCK, size)) for k in range(0, max(size, 1), BLOCK)]
    blocks = [_block(xp, m[k], s[k]) for k in parts_of]
    parts = blocks[0] if len(blocks) == 1 else [xp.concat(part) for part in zip(*blocks, strict=True)]
    return Expectations(*(xp.reshape(part, shape) for part in parts))


def _block(xp: Any, m: Any, s: Any) -> Expectations:
    """Return them for one block, each entry by the rule for its spread."""
    if array_api_compat.is_numpy_namespace(xp):  # where a look at the numbers costs nothing, it may save either rule
        if xp.all(s < NARROW):
            return _narrow(xp, m, s)
        if xp.all(s >= NARROW):
            return _wide(xp, m, s)
        narrow, found = s < NARROW, np.empty((len(Expectations._fields), len(m)))
        found[:, narrow], found[:, ~narrow] = _narrow(xp, m[narrow], s[narrow]), _wide(xp, m[~narrow], s[~narrow])
        return Expectations(*found)
    limit = xp.full_like(s, NARROW)
    narrow, wide = _narrow(xp, m, xp.minimum(s, limit)), _wide(xp, m, xp.maximum(s, limit))
    return Expectations(*(xp.where(s < limit, *pair) for pair in zip(narrow, wide, strict=True)))


def _narrow(xp: Any, m: Any, s: Any) -> Expectations:
    """Return them by Gauss-Hermite.

    With ``p = sigma(m)``, ``x = sigma'(m)`` and ``u = 4 sinh^2(h / 2)``, the means over ``m + h`` and ``m - h`` are::

        a(m) + log(1 + x u) / 2        (p + x u / 2) / (1 + x u)        x (1 + u (1/2 - x)) / (1 + x u)^2
    """
    halves, weights = _constants(xp, m, _HALVES, _WEIGHTS)
    e = xp.exp(m)
    p = e / (1 + e)
    x = (p / (1 + e))[:, None]
    root = 2 * xp.sinh(s[:, None] * halves)
    u = root * root
    grown = 1 + x * u
    excess = xp.log1p(x * u) @ (0.5 * weights)
    slope = p + (1 - 2 * p) * ((0.5 * x * u / grown) @ weights)
    curvature = (x * (1 + u * (0.5 - x)) / (grown * grown)) @ weights
    return Expectations(xp.log1p(e) + excess, excess, slope, curvature)


def _wide(xp: Any, m: Any, s: Any) -> Expectations:
    """Return them by the ramp and the trapezoidal rule, in the lower tail at ``m + s^2``."""
    nodes, table, least = _constants(xp, m, GRID, TABLE, _LEAST)
    variance = s * s
    tail = m < -0.5 * variance
    c = xp.where(tail, m + variance, m)
    distance = (nodes - c[:, None]) * (math.sqrt(0.5) / s)[:, None]
    sums = (xp.exp(xp.maximum(-(distance * distance), least)) @ table) * (STEP / _ROOT_TWO_PI / s)[:, None]
    ramp, above, below = _ramp(xp, c, xp.where(s < ENORMOUS, xp.sqrt(variance + TAU * TAU), s))
    value, success, failure, curvature = ramp + sums[:, 0], above + sums[:, 1], below - sums[:, 1], sums[:, 2]
    # Times exp(-eta), a is sigma(-eta) + rest, sigma is sigma(-eta), sigma' is sigma(-eta)^2 = sigma(-eta) - sigma'.
    scale = xp.exp(xp.where(tail, m + 0.5 * variance, xp.zeros_like(m)))
    value = xp.where(tail, scale * (failure + sums[:, 3]), value)
    excess = value - xp.log1p(xp.exp(m))
    return Expectations(
        value,
        xp.where(excess < 0, xp.zeros_like(excess), excess),
        xp.where(tail, scale * failure, success),
        xp.where(tail, scale * (failure - curvature), curvature),
    )


def _ramp(xp: Any, m: Any, s: Any) -> tuple[Any, Any, Any]:
    """Return ``E max(eta, 0)``, ``P(eta > 0)`` and ``P(eta < 0)`` for ``eta ~ N(m, s^2)``."""
    positive, t = m > 0, xp.abs(m / s)
    t = xp.where(t > 40, xp.full_like(t, 40.0), t)
    density = xp.exp(-0.5 * t * t) / _ROOT_TWO_PI
    ratio = mills_ratio(t)
    small = density * ratio
    value = xp.where(positive, m, xp.zeros_like(m)) + s * density * (1 - t * ratio)
    return value, xp.where(positive, 1 - small, small), xp.where(positive, small, 1 - small)


def mills_ratio(t: Any) -> Any:
    """Return ``M(t) = Phi(-t) / phi(t)`` of the normal distribution, for t from 0 on."""
    at = (t - 5) / (t + 5)
    total = MILLS[-1] * at
    for coefficient in reversed(MILLS[1:-1]):
        total = (total + coefficient) * at
    return (total + MILLS[0]) / (1 + t)


def _constants(xp: Any, like: Any, *arrays: np.ndarray) -> list[Any]:
    """Return tables in the library, precision and place of an array."""
    return [xp.asarray(array, dtype=like.dtype, device=array_api_compat.device(like)) for array in arrays]


def _grid() -> tuple[np.ndarray, np.ndarray]:
    """Return the grid, and on it, by columns, ``a - ramp``, ``sigma - Phi(. / tau)``, ``sigma'`` and ``rest``.

    The last is ``exp(-eta) a(eta) - sigma(-eta)``. Each falls like ``exp(-|eta|)`` on both sides, but for the last,
    which falls like ``eta exp(-eta)`` above. None is computed as a difference of numbers that are nearly equal there.
    """
    eta = STEP * np.arange(-HALF, HALF + 1)
    low = -np.abs(eta)
    # Not by scipy.special: to import it takes longer than all else here.
    below = np.array([0.5 * math.erfc(-one / (TAU * math.sqrt(2))) for one in low])
    ramp = low * below + TAU * np.exp(-0.5 * (low / TAU) ** 2) / _ROOT_TWO_PI
    e = np.exp(low)
    sigma, rest = e / (1 + e), 1 / (1 + e)
    slope = (sigma - below) * np.where(eta > 0, -1, 1)
    # The last is log(1 + e) / e - 1 / (1 + e), by its series where that cancels, with 1 / e in the place of e above 0.
    series = sum((-1) ** k * k / (k + 1) * e**k for k in range(12) if k)
    tilted = np.where(eta > 0, e * (np.log1p(e) - low - rest), np.where(e < 0.02, -series, np.log1p(e) / e - rest))
    return eta, np.stack([np.log1p(e) - ramp, slope, sigma * rest, tilted], axis=1)


def hermite(pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return half of the positive Gauss-Hermite nodes each, and the weights of pairs, whose sum is one."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(2 * pairs)
    return 0.5 * nodes[pairs:], 2 * weights[pairs:] / _ROOT_TWO_PI


GRID, TABLE = _grid()
_HALVES, _WEIGHTS = hermite(PAIRS)
