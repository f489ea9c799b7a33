"""Gaussian expectations of softplus, sigmoid and its derivative, and the row terms built on them, against mpmath."""

import itertools

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from forestmix.errors import ArgumentError
from forestmix.families import Bernoulli, Binomial, Poisson
from forestmix.families.expectations import ENORMOUS, NARROW
from support.softplus_oracle import DIGITS, exact, panels, softplus

CORNERS = list(
    itertools.product((-50.0, -20.0, -3.0, 0.0, 0.7, 50.0), (1e-3, 0.09, 0.1, 0.3, 0.8, 1.0, 8.0, 12.0, 1e3))
)
TILTED = [(-50.0, s) for s in (3.0, 4.0, 5.0, 6.0, 7.0, 7.1, 9.0, 15.0, 30.0, 100.0)]
_RNG = np.random.default_rng(0)
INTERIOR = list(zip(_RNG.uniform(-50, 50, 56).tolist(), (10 ** _RNG.uniform(-2, 3, 56)).tolist(), strict=True))


def softplus_expectations(m, s):
    """Return the three expectations at one point."""
    found = softplus(np, np.array([m]), np.array([s]))
    return tuple(one.item() for one in (found.value, found.slope, found.curvature))


def relative_errors(got, right):
    return [float(abs(mp.mpf(g) / r - 1)) for g, r in zip(got, right, strict=True)]


@pytest.mark.parametrize(("m", "s"), [(-50.0, 6.0), (0.7, 0.3), (3.0, 40.0)])
def test_the_oracle_agrees_with_adaptive_quadrature(m, s):
    with mp.workdps(25):
        density = lambda eta: mp.exp(-(((eta - m) / s) ** 2) / 2) / (s * mp.sqrt(2 * mp.pi))  # noqa: E731
        right = mp.quad(lambda eta: density(eta) * mp.log1p(mp.exp(eta)), panels(m, s))
        assert abs(exact(m, s)[0] / right - 1) < 1e-17


@pytest.mark.parametrize(("m", "s"), CORNERS + TILTED + INTERIOR)
def test_expectations_to_ten_digits(m, s):
    assert max(relative_errors(softplus_expectations(m, s), exact(m, s))) < 1e-11


@pytest.mark.parametrize("m", [-700.0, -50.0, -30.0, -1.0, 0.0, 0.3, 20.0, 50.0, 700.0])
def test_no_spread_is_the_function_itself(m):
    value, slope, curvature = softplus_expectations(m, 0.0)
    assert value == pytest.approx(np.logaddexp(m, 0), rel=1e-15)
    assert slope == pytest.approx(special.expit(m), rel=1e-15)
    assert curvature == pytest.approx(special.expit(m) * special.expit(-m), rel=4e-16)


@pytest.mark.parametrize("m", [-30.0, -4.0, -0.5, 0.0, 2.0, 9.0])
@pytest.mark.parametrize("s", [0.05, 0.3, 1.0, 3.0, 20.0, 300.0])
def test_derivatives_in_mean_and_spread(m, s):
    """dE a/dm = E a', dE a'/dm = E a'' and dE a/ds = s E a'', by central differences of fourth order."""
    _, slope, curvature = softplus_expectations(m, s)

    def derivative(function, step):
        return (8 * (function(step) - function(-step)) - (function(2 * step) - function(-2 * step))) / (12 * step)

    step, width = 1e-3 * max(1.0, s), 1e-3 * s
    assert derivative(lambda h: softplus_expectations(m + h, s)[0], step) == pytest.approx(slope, rel=1e-8)
    assert derivative(lambda h: softplus_expectations(m + h, s)[1], step) == pytest.approx(curvature, rel=1e-7)
    in_spread = derivative(lambda h: softplus_expectations(m, s + h)[0], width)
    assert in_spread == pytest.approx(s * curvature, rel=1e-6)


SPREADS = np.concatenate([np.linspace(0, 2, 401), np.geomspace(2, 2e3, 400)])


@pytest.mark.parametrize("m", [-50.0, -8.0, -1.0, 0.0, 3.0, 40.0])
def test_more_spread_means_a_larger_and_convex_value(m):
    value = np.array([softplus_expectations(m, s)[0] for s in SPREADS])
    assert (np.diff(value) >= -1e-13 * value[1:]).all()
    assert (np.diff(np.diff(value[:401])) >= -1e-12 * value[1:400]).all(), "E a(m + s z) is convex in s"


def test_slope_and_curvature_stay_in_their_ranges():
    for m, s in itertools.product(np.linspace(-60, 60, 121), SPREADS[::20]):
        value, slope, curvature = softplus_expectations(m, s)
        assert value >= max(m, 0)
        assert 0 <= slope <= 1
        assert 0 <= curvature <= 0.25


@pytest.mark.parametrize("m", [0.1, 3.0, 17.0, 50.0])
@pytest.mark.parametrize("s", [0.0, 0.05, 0.5, 3.0, 100.0])
def test_symmetry_in_the_mean(m, s):
    above, below = softplus_expectations(m, s), softplus_expectations(-m, s)
    assert above[0] - below[0] == pytest.approx(m, rel=1e-14)
    assert above[1] + below[1] == pytest.approx(1, rel=1e-15)
    assert above[2] == below[2]


@pytest.mark.parametrize("s", [NARROW, ENORMOUS])
def test_no_jump_where_the_method_changes(s):
    for m in np.linspace(-50, 50, 101):
        below, above = softplus_expectations(m, np.nextafter(s, 0)), softplus_expectations(m, np.nextafter(s, 1e10))
        assert above == pytest.approx(below, rel=1e-10, abs=0)


@pytest.mark.parametrize("s", [0.2, 1.0, 4.0, 6.0])
def test_no_jump_where_the_lower_tail_begins(s):
    m = -37 - 8.5 * s - s * s
    below, above = (softplus_expectations(m * (1 + change), s) for change in (1e-13, -1e-13))
    assert above == pytest.approx(below, rel=1e-10, abs=0)
    assert below == pytest.approx([np.exp(m + 0.5 * s * s)] * 3, rel=1e-10, abs=0)


EXTREME = [-1e300, -1e4, -700.0, -300.0, 0.0, 300.0, 700.0, 1e4, 1e300]


@pytest.mark.parametrize("m", EXTREME)
@pytest.mark.parametrize("s", [0.0, 1e-300, 0.1, 1.0, 20.0, 38.0, 100.0, 1e4, 1e9, 1e12, 1e300])
def test_extreme_arguments(m, s):
    """Between the value at no spread and the same plus that of the ramp, and never NaN."""
    value, slope, curvature = softplus_expectations(m, s)
    assert max(m, 0) <= value <= max(m, 0) + np.log(2) + 0.4 * s
    assert 0 <= slope <= 1
    assert (slope >= 0.5) == (m >= 0) or slope == 0.5
    assert 0 <= curvature <= 0.25


@pytest.mark.parametrize(("m", "s"), [(-300.0, 15.0), (-300.0, 17.0), (-300.0, 25.0), (-700.0, 24.0), (-1e4, 1e3)])
def test_far_beyond_the_promised_range(m, s):
    assert max(relative_errors(softplus_expectations(m, s), exact(m, s))) < 1e-9


def test_infinities_and_nan():
    assert softplus_expectations(0.0, np.inf) == (np.inf, 0.5, 0.0)
    assert softplus_expectations(-np.inf, 1.0) == (0.0, 0.0, 0.0)
    assert softplus_expectations(np.inf, 1.0) == (np.inf, 1.0, 0.0)
    assert np.isnan(softplus_expectations(np.nan, 1.0)).all()
    assert np.isnan(softplus_expectations(1.0, np.nan)).all()


# Row terms: nothing may cancel.


def exact_binomial(y, trials, m, s):
    with mp.workdps(DIGITS):
        value, slope, _ = exact(m, s) if s else (mp.log1p(mp.exp(mp.mpf(m))), 1 / (1 + mp.exp(-mp.mpf(m))), None)
        base = mp.loggamma(trials + 1) - mp.loggamma(y + 1) - mp.loggamma(trials - y + 1)
        return base + y * mp.mpf(m) - trials * value, y - trials * slope


@pytest.mark.parametrize(
    ("m", "s"),
    [(0.0, 0.0), (40.0, 0.0), (-40.0, 0.0), (45.0, 1.0), (-45.0, 1.0), (50.0, 5.0), (3.0, 0.5), (5.0, 100.0)],
)
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_bernoulli_rows_keep_their_digits(y, m, s):
    rows = Bernoulli().expectations(np.array([y]), np.array([m]), np.array([s]))
    right = exact_binomial(y, 1, m, s)
    assert max(relative_errors((rows.log_likelihood.item(), rows.error.item()), right)) < 1e-10


@pytest.mark.parametrize("trials", [1, 2, 12, 1000, 10**6, 10**9])
@pytest.mark.parametrize("fraction", [0.0, 1e-3, 0.3, 0.5, 1.0])
@pytest.mark.parametrize(("shift", "s"), [(0.0, 0.0), (0.0, 1e-5), (1e-3, 0.05), (-0.4, 0.5), (30.0, 2.0)])
def test_binomial_rows_keep_their_digits(trials, fraction, shift, s):
    y = round(fraction * trials)
    centre = np.clip(special.logit(y / trials), -20, 20)
    m = float(centre + shift)
    rows = Binomial(trials).expectations(np.array([float(y)]), np.array([m]), np.array([s]))
    log_likelihood, error = exact_binomial(y, trials, m, s)
    assert rows.log_likelihood.item() == pytest.approx(float(log_likelihood), rel=1e-11)
    # The error is a difference of data and prediction; what rounding of the prediction allows is all it can have.
    assert rows.error.item() == pytest.approx(float(error), rel=1e-10, abs=1e-15 * trials)


@pytest.mark.parametrize("y", [0, 1, 7, 15, 16, 17, 300, 10**6, 10**9])
@pytest.mark.parametrize(("shift", "s"), [(0.0, 0.0), (1e-4, 1e-3), (-2.0, 0.5), (4.0, 3.0), (-40.0, 8.0)])
def test_poisson_rows_keep_their_digits(y, shift, s):
    m = float(np.log(max(y, 1)) + shift)
    rows = Poisson().expectations(np.array([float(y)]), np.array([m]), np.array([s]))
    with mp.workdps(DIGITS):
        rate = mp.exp(mp.mpf(m) + mp.mpf(s) ** 2 / 2)
        log_likelihood = y * mp.mpf(m) - rate - mp.loggamma(y + 1)
    assert rows.log_likelihood.item() == pytest.approx(float(log_likelihood), rel=1e-12)
    assert rows.error.item() == pytest.approx(float(y - rate), rel=1e-11, abs=1e-14 * y)
    assert rows.curvature.item() == pytest.approx(float(rate), rel=1e-13)


@pytest.mark.parametrize(
    ("m", "s"), [(710.0, 0.0), (0.0, 40.0), (-1e4, 1e3), (1e300, 0.0), (0.0, 1e200), (-1e300, 1e200)]
)
def test_poisson_overflow_is_infinite_and_never_nan(m, s):
    mean, spread, y = np.array([m, m]), np.array([s, s]), np.array([0.0, 5.0])
    for part in Poisson().expected_log_partition(mean, spread):
        assert (part == np.inf).all()
    rows = Poisson().expectations(y, mean, spread)
    assert (rows.log_likelihood == -np.inf).all()
    assert (rows.error == -np.inf).all()
    assert (rows.curvature == np.inf).all()
    assert (Poisson().log_partition_gap(mean, spread, spread) == 0).all()
    assert Poisson().log_partition(np.array(710.0)) == np.inf


def test_poisson_overflow_in_float32():
    part = Poisson().expected_log_partition(np.float32([89.0]), np.float32([1.0]))
    assert part.value.dtype == np.float32
    assert part.value == np.inf


def test_poisson_gap_of_close_spreads():
    gap = Poisson().log_partition_gap(np.array([20.0]), np.array([1 + 2**-30]), np.array([1.0]))
    assert gap.item() == pytest.approx(np.exp(20.5) * 2**-30, rel=1e-8)
    assert Poisson().log_partition_gap(np.array([-800.0]), np.array([40.0]), np.array([0.0])) == pytest.approx(1.0)


# Shapes and precision.

FAMILIES = {"bernoulli": Bernoulli(), "binomial": Binomial([3, 5, 9, 4]), "poisson": Poisson()}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("spread_shape", [(), (4,), (1, 4), (3, 4), (3, 1)])
def test_arguments_broadcast(name, spread_shape):
    family = FAMILIES[name]
    rng = np.random.default_rng(1)
    mean, spread, y = rng.normal(size=(3, 4)), rng.uniform(0, 2, spread_shape), np.ones((3, 4))
    wide = np.broadcast_to(spread, (3, 4)).copy()
    for part, full in zip(
        (*family.expected_log_partition(mean, spread), *family.expectations(y, mean, spread)),
        (*family.expected_log_partition(mean, wide), *family.expectations(y, mean, wide)),
        strict=True,
    ):
        assert part.shape == (3, 4)
        assert (part == full).all()
    assert family.log_partition_gap(mean, wide + 1, spread).shape == (3, 4)


@pytest.mark.parametrize("name", FAMILIES)
def test_single_precision_in_and_out(name):
    family = FAMILIES[name].astype(np.dtype(np.float32))
    rng = np.random.default_rng(2)
    mean, spread = rng.normal(size=(3, 4)).astype(np.float32), rng.uniform(0, 2, 4).astype(np.float32)
    y = np.ones((3, 4), np.float32)
    results = [
        *family.expected_log_partition(mean, spread),
        *family.expectations(y, mean, spread),
        family.log_partition_gap(mean, spread, spread / 2),
        family.log_base(y), family.statistic(y), family.log_partition(mean),
        family.log_partition_slope(mean), family.sample(mean, rng),
    ]  # fmt: skip
    assert [part.dtype for part in results] == [np.float32] * len(results)
    double = family.expectations(y.astype(float), mean.astype(float), spread.astype(float))
    for single, right in zip(results[3:6], double, strict=True):
        assert single == pytest.approx(right, rel=2e-7)


# Supports and parameters.


@pytest.mark.parametrize(
    ("family", "good", "bad"),
    [
        (Bernoulli(), [0, 1], [2, -1, 0.5, np.inf]),
        (Binomial(3), [0, 1, 2, 3], [4, -1, 1.5, np.inf]),
        (Poisson(), [0, 1, 7, 1e9], [-1, 0.5, np.inf, -np.inf]),
    ],
)
def test_support(family, good, bad):
    for dtype in (np.float64, np.float32):
        family.check_support("x", np.array([*good, np.nan], dtype))
    family.check_support("x", np.array(good, np.int64))
    for value in bad:
        with pytest.raises(
            ArgumentError, match=rf"^x must be .*NaN.* got 1 other entries, the first {value}.* \(0, 1\)"
        ):
            family.check_support("x", np.array([[good[0], value, np.nan]], float))


def test_support_of_one_number_per_variable():
    family = Binomial([1, 5])
    family.check_support("x", np.array([[1.0, 5.0], [0.0, np.nan]]))
    with pytest.raises(ArgumentError, match=r"from 0 to trials \(here 1\).*the first 2.0 at index \(1, 0\)"):
        family.check_support("x", np.array([[1.0, 5.0], [2.0, 0.0]]))


@pytest.mark.parametrize("trials", [0, -2, 1.5, [3, 2.5], [[1, 2]], [], np.nan, "many"])
def test_trials_that_are_refused(trials):
    with pytest.raises(ArgumentError, match="trials must"):
        Binomial(trials)


def test_trials_per_variable():
    family = Binomial([2, 3, 4])
    assert family.take(np.array([2, 2, 0])).trials.tolist() == [4, 4, 2]
    assert Binomial(3).take(np.array([0, 1])).trials == 3
    family.check_size(3, "rows")
    with pytest.raises(ArgumentError, match="trials must be a number or have one entry for each of the 4 rows; got 3"):
        family.check_size(4, "rows")
    with pytest.raises(ArgumentError, match="trials must be exact in float32; got 16777217"):
        Binomial(2**24 + 1).astype(np.dtype(np.float32))
    assert repr(family) == "Binomial(trials=<3 values>)"
    assert repr(Binomial(3)) == "Binomial(trials=3)"


def test_families_without_parameters():
    for family in (Bernoulli(), Poisson()):
        family.check_size(17, "rows")
        assert type(family.take(np.array([0, 0]))) is type(family)
        assert repr(family) == f"{type(family).__name__}()"
    assert Bernoulli.curvature_is_bounded
    assert not Poisson.curvature_is_bounded


def test_poisson_refuses_to_draw_what_does_not_fit():
    with pytest.raises(ArgumentError, match="eta must be at most 43"):
        Poisson().sample(np.array([0.0, 50.0]), np.random.default_rng(0))
    assert Poisson().sample(np.array([43.0]), np.random.default_rng(0)).item() == pytest.approx(np.exp(43.0), rel=1e-8)
