"""The two Gaussian expectations in the array API standard, against mpmath."""

import itertools

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestmix.families.expectations import NARROW, exponential, mills_ratio
from support.array_libraries import LIBRARIES, namespace, numpy_of
from support.softplus_oracle import DIGITS, exact, softplus

XP = namespace("numpy")
SPREADS = (1e-3, 0.3, 0.99, 1.0, 1.7, 6.0, 10.0, 31.0, 1e3)
CORNERS = list(itertools.product((-50.0, -18.0, -2.0, 0.0, 5.0, 50.0), SPREADS))
#: Where the lower tail begins, from both sides.
TAIL = [(-0.5 * s * s * (1 + change), s) for s in (1.2, 3.0, 6.0, 10.0) for change in (-1e-9, 1e-9)]


def at(m, s, xp=XP):
    return softplus(xp, xp.asarray([m]), xp.asarray([s]))


def check(m, s):
    """Relative error, of tiny values too: ten digits of all, which is more than the rows ask for."""
    right = exact(m, s)
    with mp.workdps(DIGITS):
        excess = right[0] - mp.log1p(mp.exp(mp.mpf(m)))
        got = at(m, s)
        for one, answer in ((got.value, right[0]), (got.slope, right[1]), (got.curvature, right[2])):
            assert abs(mp.mpf(one.item()) / answer - 1) < 1e-10
        # What rounding of a value of about m leaves of a difference.
        assert abs(mp.mpf(got.excess.item()) - excess) <= 1e-10 * excess + 1e-15 * abs(m)


@pytest.mark.parametrize(("m", "s"), CORNERS + TAIL)
def test_softplus_to_ten_digits(m, s):
    check(m, s)


@settings(max_examples=15, deadline=None)
@given(st.floats(-50, 50), st.floats(-2, 3))
def test_softplus_to_ten_digits_anywhere(m, log_spread):
    check(m, 10.0**log_spread)


@pytest.mark.parametrize("m", [-700.0, -50.0, -1.0, 0.0, 0.3, 50.0, 700.0])
def test_no_spread_is_the_function_itself(m):
    got = at(m, 0.0)
    assert got.value.item() == pytest.approx(np.logaddexp(m, 0), rel=1e-15)
    assert got.excess.item() == 0
    assert got.slope.item() == pytest.approx(np.exp(-np.logaddexp(0, -m)), rel=2e-15)
    assert got.curvature.item() == pytest.approx(np.exp(-np.logaddexp(0, m) - np.logaddexp(0, -m)), rel=2e-15)


@pytest.mark.parametrize("m", np.linspace(-50, 50, 21))
def test_no_jump_where_the_rule_changes(m):
    below, above = at(m, np.nextafter(NARROW, 0)), at(m, NARROW)
    for one, other in zip(below, above, strict=True):
        assert one.item() == pytest.approx(other.item(), rel=2e-11)


def test_blocks_and_shapes():
    rng = np.random.default_rng(0)
    m, s = rng.normal(size=(3, 1500)) * 4, np.exp(rng.normal(size=(1, 1500)))
    got = softplus(XP, m, s)
    for part, single in zip(got, softplus(XP, m[2], s[0]), strict=True):
        assert part.shape == (3, 1500)
        np.testing.assert_allclose(part[2], single, rtol=1e-14)


@pytest.mark.parametrize("m", [-1e300, -1e4, -700.0, 0.0, 300.0, 1e300])
@pytest.mark.parametrize("s", [0.0, 1e-300, 1.0, 38.0, 1e4, 1e12, 1e300])
def test_extreme_arguments_are_never_nan(m, s):
    value, _, slope, curvature = (part.item() for part in at(m, s))
    assert max(m, 0) <= value <= max(m, 0) + np.log(2) + 0.4 * s
    assert 0 <= slope <= 1
    assert 0 <= curvature <= 0.25 + 1e-15


def test_infinities_and_nan():
    m, s = XP.asarray([0.0, -np.inf, np.inf, np.nan, 1.0]), XP.asarray([np.inf, 1.0, 1.0, 1.0, np.nan])
    got = softplus(XP, m, s)
    np.testing.assert_array_equal(got.value, [np.inf, 0, np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(got.slope, [0.5, 0, 1, np.nan, np.nan])
    np.testing.assert_array_equal(got.curvature, [0, 0, 0, np.nan, np.nan])


@pytest.mark.parametrize("m", [-50.0, 0.0, 50.0])
@pytest.mark.parametrize("s", [0.0, 1e-9, 1.0, 30.0])
def test_exponential(m, s):
    got = exponential(XP, XP.asarray([m]), XP.asarray([s]))
    with mp.workdps(DIGITS):
        right = mp.exp(mp.mpf(m) + mp.mpf(s) ** 2 / 2)
        assert abs(mp.mpf(got.item()) / right - 1) < 1e-13


def test_exponential_overflows_to_infinity():
    m, s = XP.asarray([710.0, 0.0, -1e300, 800.0]), XP.asarray([0.0, 40.0, 1e200, 0.0])
    assert (exponential(XP, m, s) == np.inf).all()


def test_mills_ratio():
    t = np.concatenate([np.linspace(0, 10, 41), [20.0, 40.0]])
    with mp.workdps(DIGITS):
        numbers = map(mp.mpf, t.tolist())
        right = [float(mp.sqrt(mp.pi / 2) * mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2))) for x in numbers]
    np.testing.assert_allclose(mills_ratio(t), right, rtol=2e-15)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_gives_the_same(library):
    xp = namespace(library)
    rng = np.random.default_rng(1)
    m, s = rng.uniform(-50, 50, 500), 10 ** rng.uniform(-3, 3, 500)
    for part, right in zip(softplus(xp, xp.asarray(m), xp.asarray(s)), softplus(XP, m, s), strict=True):
        np.testing.assert_allclose(numpy_of(part), right, rtol=1e-10, atol=1e-300)
    s = np.minimum(s, 30)
    np.testing.assert_allclose(numpy_of(exponential(xp, xp.asarray(m), xp.asarray(s))), exponential(XP, m, s), 1e-10)


def test_softplus_can_be_traced():
    """No shape and no branch depends on a number: JAX compiles it, and differentiates it to what it returns."""
    jax = pytest.importorskip("jax")
    xp = namespace("jax")
    m, s = xp.asarray([-40.0, -3.0, 0.5, 20.0]), xp.asarray([5.0, 0.2, 3.0, 100.0])
    value = jax.jit(lambda m: softplus(xp, m, s).value.sum())
    np.testing.assert_allclose(jax.grad(value)(m), softplus(xp, m, s).slope, rtol=1e-9)
