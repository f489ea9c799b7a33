"""Elementary functions as plain arithmetic, so that a loop over them is compiled into SIMD instructions.

The mathematical library's functions are calls, one number after another. These are good to a few units in the last
place (``tests/engines/compiled/test_elementary.py`` asks mpmath), keep NaN, and have no branch: what is different at
the ends is chosen afterwards.
"""

from __future__ import annotations

import math

import numpy as np

from forestmix.engines.compiled.compiling import njit
from forestmix.families.expectations import MILLS

#: A product and a sum may be rounded once; the order of sums stays, on which ``_ROUNDER`` depends.
FUSED = {"contract"}
#: Where the exponential becomes 0 and infinite: a little before it has to, so that no result is subnormal.
LOWEST, HIGHEST = -708.0, 709.0

#: Added to a number and taken away again, this leaves a whole one, which is in the last bits meanwhile.
_ROUNDER = 1.5 * 2.0**52
_PER_LOG_TWO = 1 / math.log(2)
#: log 2, its first 42 bits and the rest, so that whole multiples of the first are exact.
_LOG_TWO, _LOG_TWO_REST = float.fromhex("0x1.62e42fefa3800p-1"), float.fromhex("0x1.ef35793c76730p-45")
#: Coefficients from the last to the first: of ``(exp(r) - 1) / r``, enough for ``|r| <= log(2) / 2``; of
#: ``atanh(u) / u`` in ``u^2``, enough for ``u <= 0.172``; and of Mills' ratio.
_EXPONENTIAL = tuple(1 / math.factorial(k) for k in range(13, 0, -1))
_ATANH = tuple(1 / (2 * k + 1) for k in range(10, -1, -1))
#: In two parts, since the compiler writes out no longer loop.
_MILLS, _MILLS_REST = MILLS[:11:-1], MILLS[11::-1]
#: The bits of 1 and of ``sqrt(1/2)``, and how many of a number are its mantissa.
_ONE, _ROOT_HALF, _MANTISSA = 0x3FF0000000000000, 0x3FE6A09E667F3BCD, 52


@njit(inline="always")
def _polynomial(coefficients, x, total=0.0):  # type: ignore[no-untyped-def]
    """Go on with Horner's rule from a total, with coefficients from the last to the first."""
    for coefficient in coefficients:
        total = total * x + coefficient
    return total


@njit(inline="always")
def _halved(x):  # type: ignore[no-untyped-def]
    """Return ``2^k`` and ``exp(r) - 1`` with ``x = k log 2 + r``, ``|r| <= log(2) / 2``, for x within the limits."""
    shifted = x * _PER_LOG_TWO + _ROUNDER
    k = shifted - _ROUNDER
    r = (x - k * _LOG_TWO) - k * _LOG_TWO_REST
    power = np.int64((np.float64(shifted).view(np.int64) << _MANTISSA) + _ONE).view(np.float64)
    return power, r * _polynomial(_EXPONENTIAL, r)


@njit(inline="always")
def _ends(x, result, below):  # type: ignore[no-untyped-def]
    """Return the result, or what it is beyond the limits; NaN where x is."""
    result = below if x < LOWEST else result
    return (math.inf if x >= HIGHEST else result) if x == x else x


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def exponential(x):  # type: ignore[no-untyped-def]
    """Return ``exp(x)``; 0 below ``LOWEST``, infinite from ``HIGHEST`` on."""
    power, rest = _halved(min(max(x, LOWEST), HIGHEST))
    return _ends(x, power + power * rest, 0.0)


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def exponential_minus_one(x):  # type: ignore[no-untyped-def]
    """Return ``exp(x) - 1``, with all digits near 0."""
    power, rest = _halved(min(max(x, LOWEST), HIGHEST))
    return _ends(x, (power - 1) + power * rest, -1.0)


@njit(forceinline=True, nogil=True, fastmath=FUSED, error_model="numpy")
def logarithm(x):  # type: ignore[no-untyped-def]
    """Return ``log(x)`` of a positive number that is finite and not subnormal."""
    bits = np.float64(x).view(np.int64)
    exponent = (bits - _ROOT_HALF) >> _MANTISSA
    f = np.int64(bits - (exponent << _MANTISSA)).view(np.float64)
    u, k = (f - 1) / (f + 1), float(exponent)
    return k * _LOG_TWO + (k * _LOG_TWO_REST + 2 * u * _polynomial(_ATANH, u * u))


@njit(forceinline=True, nogil=True, fastmath=FUSED, error_model="numpy")
def log_one_plus(x):  # type: ignore[no-untyped-def]
    """Return ``log(1 + x)`` for x from 0 on, with what rounding took from ``1 + x`` put back."""
    y = 1 + x
    return logarithm(y) + (x - (y - 1)) / y


@njit(forceinline=True, nogil=True, fastmath=FUSED, error_model="numpy")
def mills_ratio(t):  # type: ignore[no-untyped-def]
    """Return ``M(t) = Phi(-t) / phi(t)`` of the normal distribution, for t from 0 on."""
    at = (t - 5) / (t + 5)
    return _polynomial(_MILLS_REST, at, _polynomial(_MILLS, at)) / (1 + t)
