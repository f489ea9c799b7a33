"""Elementary functions as plain arithmetic, so that a loop over them is compiled into vectors.

The mathematical library's functions are calls, one number after another. These are good to a few units in the last
place (``tests/test_elementary.py`` asks mpmath), keep NaN, and have no branch: what is different at the ends is chosen
afterwards.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from forestmix.engines.compiled.compiling import njit
from forestmix.engines.compiled.terms import Value, for_kernels

#: A product and a sum may be rounded once; the order of sums stays, on which ``_ROUNDER`` depends.
FUSED = {"contract"}
#: Where the exponential becomes 0 and infinite: a little before it has to, so that no result is subnormal.
LOWEST, HIGHEST = -708.0, 709.0

#: Added to a number and taken away again, this leaves a whole one, which is in the last bits meanwhile.
_ROUNDER = 1.5 * 2.0**52
_PER_LOG_TWO = 1 / math.log(2)
#: log 2, its first 42 bits and the rest, so that whole multiples of the first are exact.
_LOG_TWO, _LOG_TWO_REST = float.fromhex("0x1.62e42fefa3800p-1"), float.fromhex("0x1.ef35793c76730p-45")
#: Taylor's series of ``(exp(r) - 1) / r``, enough for ``|r| <= log(2) / 2``.
_EXPONENTIAL = tuple(1 / math.factorial(k) for k in range(1, 14))
#: The series of ``atanh(u) / u`` in ``u^2``: for ``u <= 1/3``, and as many terms as ``u <= 0.172`` takes.
_ATANH = tuple(1 / (2 * k + 1) for k in range(16))
_ATANH_SHORT = _ATANH[:11]
#: ``(1 + t) M(t)`` for Mills' ratio M, as a polynomial in ``(t - 5) / (t + 5)``: Chebyshev interpolation with mpmath,
#: whose first term left out is 2e-16.
_MILLS = (
    1.1568486282918946, -0.2294875382521184, 0.07778159886873769, 0.02507217930210036, -0.0661776007790963,
    0.061505045828185945, -0.03802659218584139, 0.016348231425036042, -0.004201290329187307, 1.9529678326371773e-05,
    0.00045704392357953655, -0.00013437036855802517, -2.480583845192319e-05, 2.2699386557775844e-05,
    -1.7633239265736746e-07, -3.2597570878457124e-06, 3.2054316652589574e-07, 4.724032706831338e-07,
    -6.588974491108954e-08, -6.383575502421413e-08, 9.092476134019147e-09, 5.5322922141146196e-09,
    -7.073898575561589e-10,
)  # fmt: skip
#: The bits of ``sqrt(1/2)``, and how many of a number are its mantissa.
_ROOT_HALF_BITS, _MANTISSA = 0x3FE6A09E667F3BCD, 52


@for_kernels(lambda number: np.float64(number).view(np.int64))
def bits_of(context, number):  # type: ignore[no-untyped-def]
    """Return the bits of a number as an integer."""

    def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
        return builder.bitcast(given[0], ir.IntType(64))

    return types.int64(types.float64), build


@for_kernels(lambda bits: np.int64(bits).view(np.float64))
def number_of(context, bits):  # type: ignore[no-untyped-def]
    """Return the number with these bits."""

    def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
        return builder.bitcast(given[0], ir.DoubleType())

    return types.float64(types.int64), build


@for_kernels(lambda coefficients, x: reduce(lambda total, one: total * x + one, reversed(coefficients)))
def polynomial(context, coefficients, x):  # type: ignore[no-untyped-def]
    """Return ``sum_k coefficients[k] x^k`` by Horner's rule, written out."""

    def build(context: Any, builder: Value, signature: Any, given: list[Value]) -> Value:
        tuple_, x = given
        numbers = [builder.extract_value(tuple_, k) for k in range(len(signature.args[0]))]
        total = numbers.pop()
        while numbers:
            total = builder.fadd(builder.fmul(total, x, flags=["contract"]), numbers.pop(), flags=["contract"])
        return total

    return types.float64(coefficients, types.float64), build


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def rounded(x):  # type: ignore[no-untyped-def]
    """Return the nearest whole number, for ``|x| < 2^51``."""
    return (x + _ROUNDER) - _ROUNDER


@njit(forceinline=True, nogil=True, fastmath=FUSED)
def _halved(x):  # type: ignore[no-untyped-def]
    """Return ``2^k`` and ``exp(r) - 1`` with ``x = k log 2 + r``, ``|r| <= log(2) / 2``, for x within the limits."""
    shifted = x * _PER_LOG_TWO + _ROUNDER
    k = shifted - _ROUNDER
    r = (x - k * _LOG_TWO) - k * _LOG_TWO_REST
    power = number_of((bits_of(shifted) << _MANTISSA) + bits_of(1.0))
    return power, r * polynomial(_EXPONENTIAL, r)


@njit(forceinline=True, nogil=True, fastmath=FUSED)
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
def log_one_plus(x):  # type: ignore[no-untyped-def]
    """Return ``log(1 + x) = 2 atanh(x / (2 + x))`` for x from 0 to 1."""
    u = x / (2 + x)
    return 2 * u * polynomial(_ATANH, u * u)


@njit(forceinline=True, nogil=True, fastmath=FUSED, error_model="numpy")
def logarithm(x):  # type: ignore[no-untyped-def]
    """Return ``log(x)`` of a positive number that is finite and not subnormal."""
    exponent = (bits_of(x) - _ROOT_HALF_BITS) >> _MANTISSA
    f = number_of(bits_of(x) - (exponent << _MANTISSA))
    u, k = (f - 1) / (f + 1), float(exponent)
    return k * _LOG_TWO + (k * _LOG_TWO_REST + 2 * u * polynomial(_ATANH_SHORT, u * u))


@njit(forceinline=True, nogil=True, fastmath=FUSED, error_model="numpy")
def mills_ratio(t):  # type: ignore[no-untyped-def]
    """Return ``M(t) = Phi(-t) / phi(t)`` of the normal distribution, for t from 0 on."""
    inverse = 1 / ((t + 5) * (t + 1))
    return polynomial(_MILLS, (t - 5) * (t + 1) * inverse) * ((t + 5) * inverse)
