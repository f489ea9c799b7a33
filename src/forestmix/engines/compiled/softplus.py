"""Gaussian expectations of softplus and its derivatives, for some rows at a time in SIMD instructions.

The rules are those of ``forestmix.families.expectations``, which says why they hold, in an order that suits a compiler:
loops over rows are the inner ones. A workspace is one flat array: what is kept of row i is at ``i``, ``WIDTH + i``, ...
Its places are known to the compiler, which otherwise would test before every loop whether two arrays overlap.

- ``s < 1``: Gauss-Hermite, with as many pairs of nodes as the largest spread among the rows needs.
- ``s >= 1``: ramp and trapezoidal rule. From 0 outwards the normal weights of the nodes follow ``w <- w r``,
  ``r <- r q``, so that four exponentials serve all nodes. They underflow beyond 37 standard deviations only, where the
  nodes no longer matter.
"""

from __future__ import annotations

import math

import numpy as np

from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.elementary import (
    FUSED,
    exponential,
    exponential_minus_one,
    log_one_plus,
    mills_ratio,
)
from forestmix.families.expectations import ENORMOUS, HALF, NARROW, STEP, TABLE, TAU, hermite

#: Rows of a workspace, and by how many at once loops go over them.
WIDTH, TOGETHER = 64, 16
#: What of a row is given: mean and spread of eta; and what is found: at ``-|mean|``, ``E a``, ``E a - a(m)``, ``E a'``
#: and ``E a''``. Its terms take their place (``compiled.rows``): the log-likelihood, ``e`` and ``kappa``.
MEAN, SPREAD, VALUE, EXCESS, SLOPE, CURVATURE = range(0, 6 * WIDTH, WIDTH)
ERROR, KAPPA = SLOPE, CURVATURE
#: The same for the rows of narrow spreads and, after them, for those of wide ones, each from the first place on.
_MEAN, _SPREAD, _VALUE, _EXCESS, _SLOPE, _CURVATURE = range(6 * WIDTH, 12 * WIDTH, WIDTH)
_WIDE = 6 * WIDTH
#: Where a row is among those, and what is needed in between.
_PLACE, _FIRST, _SECOND, _THIRD, _FOURTH, _UP, _UP_RATIO, _DOWN, _DOWN_RATIO, _BEND = range(
    18 * WIDTH, 28 * WIDTH, WIDTH
)
SIZE = 28 * WIDTH

#: Pairs of Gauss-Hermite nodes, the spreads up to which they have eleven digits, and where they are in the tables.
_PAIRS, _LIMITS = np.array([3, 5, 8, 12, 16]), np.array([0.15, 0.37, 0.6, 0.8])
_STARTS = np.concatenate([[0], np.cumsum(_PAIRS)])
_NODES, _WEIGHTS = (np.concatenate([hermite(pairs)[part] for pairs in _PAIRS.tolist()]) for part in range(2))
#: The table of the trapezoidal rule from 0 on: three columns that are even, odd and even, and the last upwards and
#: downwards.
_EVEN, _ODD, _SQUARE = (np.ascontiguousarray(TABLE[HALF:, part]) for part in range(3))
_TILTED_UP, _TILTED_DOWN = np.ascontiguousarray(TABLE[HALF:, 3]), np.ascontiguousarray(TABLE[HALF::-1, 3])
#: Nodes on each side that are added up before sums go back to memory.
_AT_ONCE = 5
#: Standard deviations beyond which weights of nodes would underflow.
_FAR = 37.0
_PER_ROOT_TWO_PI = 1 / math.sqrt(2 * math.pi)


@njit(inline="always")
def _filled(count):  # type: ignore[no-untyped-def]
    return (count + TOGETHER - 1) // TOGETHER * TOGETHER


@njit(inline="always")
def lower_softplus(count, work):  # type: ignore[no-untyped-def]
    """Write the expectations at ``eta ~ N(-|mean|, spread^2)`` of the first ``count`` rows of a workspace."""
    narrow, wide, largest = 0, 0, 0.0
    for i in range(count):
        s = work[SPREAD + i]
        if s < NARROW:
            place, narrow, largest = narrow, narrow + 1, max(largest, s)
        else:
            place, wide = _WIDE + wide, wide + 1
        work[_PLACE + i], work[_MEAN + place], work[_SPREAD + place] = place, work[MEAN + i], s
    for place, number in ((0, narrow), (_WIDE, wide)):
        for i in range(place + number, place + _filled(number)):  # so that no vector is only partly full
            work[_MEAN + i], work[_SPREAD + i] = work[_MEAN + place], work[_SPREAD + place]
    if narrow:
        level = 0
        while level < _LIMITS.size and largest >= _LIMITS[level]:
            level += 1
        _narrow(_filled(narrow), level, work)
    if wide:
        _wide(_filled(wide), work)
    for i in range(count):
        place = int(work[_PLACE + i])
        work[VALUE + i], work[EXCESS + i] = work[_VALUE + place], work[_EXCESS + place]
        work[SLOPE + i], work[CURVATURE + i] = work[_SLOPE + place], work[_CURVATURE + place]


@njit(nogil=True, fastmath=FUSED, error_model="numpy")
def _narrow(count, level, work):  # type: ignore[no-untyped-def]
    """Write those of narrow spreads by Gauss-Hermite.

    With ``p = sigma(m)``, ``x = sigma'(m)`` and ``u = 4 sinh^2(h / 2)``, the means over ``m + h`` and ``m - h`` are::

        a(m) + log(1 + x u) / 2        (p + x u / 2) / (1 + x u)        x (1 + u (1/2 - x)) / (1 + x u)^2
    """
    for i in range(count):
        e = exponential(-abs(work[_MEAN + i]))
        p = e / (1 + e)
        work[_FIRST + i], work[_SECOND + i], work[_VALUE + i] = p, p / (1 + e), log_one_plus(e)
        work[_EXCESS + i], work[_SLOPE + i], work[_CURVATURE + i] = 0.0, 0.0, 0.0
    for k in range(_STARTS[level], _STARTS[level + 1]):
        node, weight = _NODES[k], _WEIGHTS[k]
        for i in range(count):
            x, growth = work[_SECOND + i], exponential_minus_one(2 * node * work[_SPREAD + i])
            u = growth * growth / (1 + growth)
            z = x * u
            inverse = 1 / (1 + z)
            work[_EXCESS + i] += weight * log_one_plus(z)
            work[_SLOPE + i] += weight * z * inverse
            work[_CURVATURE + i] += weight * (1 + u * (0.5 - x)) * inverse * inverse
    for i in range(count):
        work[_EXCESS + i] *= 0.5
        work[_VALUE + i] += work[_EXCESS + i]
        work[_SLOPE + i] = work[_FIRST + i] + (0.5 - work[_FIRST + i]) * work[_SLOPE + i]
        work[_CURVATURE + i] *= work[_SECOND + i]


@njit(nogil=True, fastmath=FUSED, error_model="numpy")
def _wide(count, work):  # type: ignore[no-untyped-def]
    """Write those of wide spreads by ramp and trapezoidal rule, in the lower tail at ``m + s^2``."""
    for i in range(count):
        s = work[_WIDE + _SPREAD + i]
        t, per = _centre(-abs(work[_WIDE + _MEAN + i]), s) / s, STEP / s
        work[_UP + i] = exponential(-0.5 * t * t)
        work[_DOWN + i] = work[_UP + i]
        work[_UP_RATIO + i] = exponential((t - 0.5 * per) * per)
        work[_DOWN_RATIO + i] = exponential((-t - 0.5 * per) * per)
        work[_BEND + i] = exponential(-per * per)
        work[_FIRST + i], work[_SECOND + i] = work[_UP + i] * _EVEN[0], work[_UP + i] * _ODD[0]
        work[_THIRD + i], work[_FOURTH + i] = work[_UP + i] * _SQUARE[0], work[_UP + i] * _TILTED_UP[0]
    for k in range(1, HALF + 1, _AT_ONCE):
        for i in range(count):
            u, d, r, t, q = work[_UP + i], work[_DOWN + i], work[_UP_RATIO + i], work[_DOWN_RATIO + i], work[_BEND + i]
            even, odd, square, tilted = work[_FIRST + i], work[_SECOND + i], work[_THIRD + i], work[_FOURTH + i]
            for n in range(k, k + _AT_ONCE):
                u, d, r, t = u * r, d * t, r * q, t * q
                even += (u + d) * _EVEN[n]
                odd += (u - d) * _ODD[n]
                square += (u + d) * _SQUARE[n]
                tilted += u * _TILTED_UP[n] + d * _TILTED_DOWN[n]
            work[_UP + i], work[_DOWN + i], work[_UP_RATIO + i], work[_DOWN_RATIO + i] = u, d, r, t
            work[_FIRST + i], work[_SECOND + i], work[_THIRD + i], work[_FOURTH + i] = even, odd, square, tilted
    _add_ramp(count, work)


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def _centre(m, s):  # type: ignore[no-untyped-def]
    """Return where the grid is used, for a mean of at most 0; as far out as weights do not underflow."""
    c = m + s * s if m < -0.5 * s * s else m
    limit = _FAR * (s if s < ENORMOUS else ENORMOUS)
    c = limit if c > limit else c
    return -limit if c < -limit else c


@njit(inline="always")
def _add_ramp(count, work):  # type: ignore[no-untyped-def]
    """Turn the sums over nodes into expectations.

    In the lower tail, times ``exp(-eta)``, a is ``sigma(-eta) + rest``, sigma is ``sigma(-eta)`` and sigma' is
    ``sigma(-eta)^2 = sigma(-eta) - sigma'``.
    """
    for i in range(count):
        m, s = -abs(work[_WIDE + _MEAN + i]), work[_WIDE + _SPREAD + i]
        c, variance = _centre(m, s), s * s
        width = math.sqrt(variance + TAU * TAU) if s < ENORMOUS else s
        t = abs(c) / width
        density, ratio = exponential(-0.5 * t * t) * _PER_ROOT_TWO_PI, mills_ratio(t)
        small, norm = density * ratio, STEP * _PER_ROOT_TWO_PI / s
        above, below = (1 - small, small) if c > 0 else (small, 1 - small)
        failure, scale = below - norm * work[_SECOND + i], exponential(m + 0.5 * variance)
        tail, ramp = m < -0.5 * variance, width * density * (1 - t * ratio)
        value = scale * (failure + norm * work[_FOURTH + i]) if tail else ramp + norm * work[_FIRST + i]
        excess = value - log_one_plus(exponential(m))
        work[_WIDE + _VALUE + i], work[_WIDE + _EXCESS + i] = value, 0.0 if excess < 0 else excess
        work[_WIDE + _SLOPE + i] = scale * failure if tail else above + norm * work[_SECOND + i]
        work[_WIDE + _CURVATURE + i] = scale * (failure - norm * work[_THIRD + i]) if tail else norm * work[_THIRD + i]
