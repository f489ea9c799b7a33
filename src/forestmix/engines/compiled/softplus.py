"""Expectations of the softplus function for many rows at a time; ``kernels.expectations`` has them one by one.

Of what one row takes, four fifths is what comes before its nodes are added up: exponentials, roots and the error
function. Here it is done in vectors, for all rows of a scratch. Rows at the ends of the range, where other formulas
hold, go the other way.
"""

from __future__ import annotations

import math

from forestmix.engines.compiled import expectations
from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.elementary import FUSED, exponential, log_one_plus, mills_ratio, polynomial, rounded
from forestmix.engines.compiled.expectations import RAMP_LIMIT, SERIES_LIMIT, STEP_LIMITS, lower_expectations
from forestmix.engines.compiled.nodes import LANES, march
from forestmix.engines.compiled.scratch import (
    BEND,
    DOWN,
    ERROR,
    KAPPA,
    MEAN,
    RAMP,
    REACH,
    SCALE,
    SPREAD,
    START,
    TAIL,
    UP,
    VALUE,
    WEIGHT,
    filled_up,
    line,
)

_VALUE, _SLOPE, _CURVATURE = expectations._VALUE, expectations._SLOPE, expectations._CURVATURE
_ENDS, _CENTRES = expectations._ENDS, expectations._CENTRES
_EDGE, _TAU_SQUARED, _DROP = expectations._EDGE, expectations._TAU**2, expectations._DROP
_EXPONENTIAL_FROM = expectations._EXPONENTIAL
_PER_ROOT_TWO_PI = 1 / math.sqrt(2 * math.pi)
#: The least logarithm of a weight that is no row of its own.
_FAINTEST = -700.0
#: ``P_j`` of the series, and its derivative times x, as polynomials in x without a constant.
_SERIES = tuple(tuple(float(c) for c in row[1 : j + 2]) for j, row in enumerate(expectations._SERIES))
_SCALED = tuple(tuple((k + 1) * c for k, c in enumerate(row)) for row in _SERIES)


@njit(nogil=True)
def fill_expectations(count, scratch):  # type: ignore[no-untyped-def]
    """Write ``E a``, ``E a'`` and ``E a''`` for ``eta ~ N(-|mean|, spread^2)`` of ``count`` rows of a scratch.

    They are where VALUE, ERROR and KAPPA will be.
    """
    mean, spread = line(scratch, MEAN), line(scratch, SPREAD)
    for i in range(count, filled_up(count)):
        mean[i], spread[i] = 0.0, 1.0
    narrow = 0
    for i in range(count):
        narrow += spread[i] < SERIES_LIMIT
    if narrow:
        _series(filled_up(count), scratch)
    if narrow < count:
        _prepare(filled_up(count), scratch)
        _march(count, scratch)


@njit(nogil=True, fastmath=FUSED, error_model="numpy")
def _series(count, scratch):  # type: ignore[no-untyped-def]
    """Sum the heat series of every row, see ``expectations._series``."""
    mean, spread = line(scratch, MEAN), line(scratch, SPREAD)
    value, slope, curvature = line(scratch, VALUE), line(scratch, ERROR), line(scratch, KAPPA)
    for i in range(count):
        v, e = spread[i] * spread[i], exponential(-abs(mean[i]))
        p = e / (1 + e)
        x = p / (1 + e)
        bends = (
            polynomial(_SERIES[0], x), polynomial(_SERIES[1], x), polynomial(_SERIES[2], x),
            polynomial(_SERIES[3], x), polynomial(_SERIES[4], x), polynomial(_SERIES[5], x),
        )  # fmt: skip
        # The integrals over the variance of E a'' / 2, and of its derivative.
        rise = polynomial((bends[0] / 2, bends[1] / 4, bends[2] / 6, bends[3] / 8, bends[4] / 10, bends[5] / 12), v)
        turn = polynomial(
            (
                polynomial(_SCALED[0], x) / 2, polynomial(_SCALED[1], x) / 4, polynomial(_SCALED[2], x) / 6,
                polynomial(_SCALED[3], x) / 8, polynomial(_SCALED[4], x) / 10, polynomial(_SCALED[5], x) / 12,
            ), v,
        )  # fmt: skip
        value[i] = log_one_plus(e) + v * x * rise
        slope[i] = p + (1 - 2 * p) * (v * x * turn)
        curvature[i] = x * polynomial(bends, v)


@njit(nogil=True, fastmath=FUSED, error_model="numpy")
def _prepare(count, scratch):  # type: ignore[no-untyped-def]
    """Write what ``expectations._grid`` has before its nodes are added up; REACH is -1 for a row that is not usual.

    The summand falls least on the side of its lower tail, so nodes are taken as far as that reaches on both sides.
    """
    mean, spread = line(scratch, MEAN), line(scratch, SPREAD)
    weight, up, down, bend = line(scratch, WEIGHT), line(scratch, UP), line(scratch, DOWN), line(scratch, BEND)
    scale, start, reach = line(scratch, SCALE), line(scratch, START), line(scratch, REACH)
    ramp, tail = line(scratch, RAMP), line(scratch, TAIL)
    for i in range(count):
        m, s = -abs(mean[i]), spread[i]
        variance = s * s
        inverse = 1 / variance
        per_step = 16.0 if s < STEP_LIMITS[0] else (8.0 if s < STEP_LIMITS[1] else (4.0 if s < STEP_LIMITS[2] else 2.0))
        step = 1 / per_step
        centre = m + variance
        inside, twice = max(centre, 0.0), 2 * _DROP * variance
        far = twice / (inside + math.sqrt(inside * inside + twice)) * per_step
        first = rounded(max(min(centre, 0.0), -_EDGE) * per_step)
        offset = first * step - m
        depth = -0.5 * offset * offset * inverse
        usual = s <= RAMP_LIMIT and centre + 8.5 * s >= _EXPONENTIAL_FROM and depth > _FAINTEST
        usual = usual and first + _EDGE * per_step >= far + 2
        reach[i] = far if usual else -1.0
        start[i], weight[i] = first, exponential(depth)
        bend[i] = exponential(-step * step * inverse)
        up[i] = exponential(-(0.5 * step + offset) * step * inverse)
        down[i] = bend[i] / up[i]
        scale[i] = step * _PER_ROOT_TWO_PI / s
        wide = math.sqrt(variance + _TAU_SQUARED)
        t = -m / wide
        density, mills = exponential(-0.5 * t * t) * _PER_ROOT_TWO_PI, mills_ratio(t)
        tail[i] = density * mills
        ramp[i] = max(wide * density * (1 - t * mills), 0.0)


@njit(nogil=True)
def _march(count, scratch):  # type: ignore[no-untyped-def]
    """Add up the nodes of every row that the series is not for."""
    mean, spread = line(scratch, MEAN), line(scratch, SPREAD)
    weight, up, down, bend = line(scratch, WEIGHT), line(scratch, UP), line(scratch, DOWN), line(scratch, BEND)
    scale, start, reach = line(scratch, SCALE), line(scratch, START), line(scratch, REACH)
    ramp, tail = line(scratch, RAMP), line(scratch, TAIL)
    value, slope, curvature = line(scratch, VALUE), line(scratch, ERROR), line(scratch, KAPPA)
    for i in range(count):
        s = spread[i]
        if s < SERIES_LIMIT:
            continue
        if reach[i] < 0:
            value[i], _, slope[i], curvature[i] = lower_expectations(-abs(mean[i]), s, False)
            continue
        level, first, w = expectations._level(s), int(start[i]), weight[i]
        centre, end = _CENTRES[level], _ENDS[level]
        steps = (int(reach[i]) + 2 + LANES - 1) // LANES
        a, b, c = march(
            _VALUE, _SLOPE, _CURVATURE, centre + first + 1, centre - first + 1, end, steps, w, up[i], down[i], bend[i]
        )  # fmt: skip
        here = centre + first
        value[i] = ramp[i] + scale[i] * (a + w * _VALUE[here])
        slope[i] = tail[i] + scale[i] * (b + w * _SLOPE[here])
        curvature[i] = scale[i] * (c + w * _CURVATURE[here])
