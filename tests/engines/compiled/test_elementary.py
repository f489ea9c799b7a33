"""Elementary functions as plain arithmetic, against mpmath."""

import mpmath as mp
import numpy as np
import pytest
from numba import njit

from forestmix.engines.compiled import elementary

RNG = np.random.default_rng(0)
NEAR_ZERO = np.concatenate([RNG.uniform(-1, 1, 300), 10 ** RNG.uniform(-300, 0, 100)])


def mills(t):
    """Return Mills' ratio by the complementary error function, far out by its continued fraction."""
    if t < 20:
        return mp.sqrt(mp.pi / 2) * mp.exp(t * t / 2) * mp.erfc(t / mp.sqrt(2))
    rest = t
    for k in range(200, 0, -1):
        rest = t + k / rest
    return 1 / rest


CASES = {
    "exponential": (mp.exp, np.concatenate([RNG.uniform(-708, 709, 600), NEAR_ZERO])),
    "exponential_minus_one": (mp.expm1, np.concatenate([RNG.uniform(-50, 709, 600), NEAR_ZERO])),
    "log_one_plus": (mp.log1p, np.concatenate([[0.0, 1.0], np.abs(NEAR_ZERO), RNG.uniform(1, 1e4, 200)])),
    "logarithm": (
        mp.log,
        np.concatenate([np.arange(1.0, 300), RNG.uniform(0.5, 2, 300), 10 ** RNG.uniform(-307, 308, 300)]),
    ),
    "mills_ratio": (mills, np.concatenate([[0.0], RNG.uniform(0, 40, 400), 10 ** RNG.uniform(-20, 6, 200)])),
}


def over(name, numbers):
    """Return the function at many numbers, in a loop that the compiler makes vectors of."""
    function = getattr(elementary, name)

    @njit
    def loop(numbers, found):
        for i in range(numbers.size):
            found[i] = function(numbers[i])

    found = np.empty_like(numbers)
    loop(numbers, found)
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_few_units_in_the_last_place(name):
    right, numbers = CASES[name]
    with mp.workdps(40):
        for number, found in zip(numbers.tolist(), over(name, numbers).tolist(), strict=True):
            exact = right(mp.mpf(number))
            assert abs(found - exact) <= 8 * 2.0**-53 * abs(exact), number


@pytest.mark.parametrize(("name", "floor"), [("exponential", 0.0), ("exponential_minus_one", -1.0)])
def test_the_ends_of_the_exponential(name, floor):
    found = over(name, np.array([np.nan, -np.inf, -1e300, -709.0, 709.0, 1e300, np.inf, 0.0]))
    np.testing.assert_array_equal(found, [np.nan, floor, floor, floor, np.inf, np.inf, np.inf, 1 + floor])
