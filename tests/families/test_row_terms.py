"""Terms that follow from a primitive: gaps of close spreads, slopes of the curvature, and rows of several kinds."""

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from forestmix.errors import ArgumentError
from forestmix.families import Bernoulli, Binomial, Family, Gaussian, Mixed, Poisson
from forestmix.families.primitive import Kind, primitive
from forestmix.families.row_terms import curvature_slopes, formulas_of, softplus_gap
from support.array_libraries import LIBRARIES, namespace, numpy_of
from support.softplus_oracle import DIGITS, exact

SPREADS = [(0.0, 0.5), (0.3, 0.55), (1.0, 1.01), (5.0, 5.02), (8.0, 8.05), (8.0, 9.0), (100.0, 100.4), (100.0, 102.0)]


def gap(m, wide, narrow):
    return softplus_gap(np.array([m]), np.array([wide]), np.array([narrow])).item()


@pytest.mark.parametrize("m", [-50.0, -3.0, 0.0, 2.0, 30.0])
@pytest.mark.parametrize(("narrow", "wide"), SPREADS)
def test_gap_keeps_its_digits(m, narrow, wide):
    with mp.workdps(DIGITS):
        low = exact(m, narrow)[0] if narrow else mp.log1p(mp.exp(m))
        assert float(abs(gap(m, wide, narrow) / (exact(m, wide)[0] - low) - 1)) < 1e-10


def test_gap_of_equal_or_hardly_different_spreads():
    assert gap(1.0, 2.0, 2.0) == 0
    assert gap(1.0, 2.0, 2.0 + 1e-9) == 0, "rounding may put the narrow one above the wide one"
    slope = 2.0 * float(exact(1.0, 2.0)[2])
    assert gap(1.0, 2.0 + 2**-40, 2.0) == pytest.approx(2**-40 * slope, rel=1e-10)
    assert gap(1.0, np.inf, np.inf) == 0
    assert np.isnan(gap(1.0, np.nan, 1.0))


@pytest.mark.parametrize("family", [Gaussian(0.5), Bernoulli(), Binomial(7), Poisson()], ids=str)
@pytest.mark.parametrize("mean", [-3.0, 0.2, 2.0])
@pytest.mark.parametrize("spread", [0.0, 0.4, 3.0])
def test_slopes_of_the_curvature(family, mean, spread):
    """They are derivatives of ``E a''`` in the mean: here by differences of sixth order."""
    rows = family.primitive(np.zeros(1))
    third, fourth = curvature_slopes(np, int(rows.kind), rows, np.array([mean]), np.array([spread]))
    h = 0.02
    shifts = np.array([-3, -2, -1, 0, 1, 2, 3])
    curvature = family.expected_log_partition(mean + h * shifts, np.full(7, spread)).curvature
    first = np.array([-1, 9, -45, 0, 45, -9, 1]) / (60 * h)
    second = np.array([2, -27, 270, -490, 270, -27, 2]) / (180 * h**2)
    scale = np.max(np.abs(curvature))
    assert third.item() == pytest.approx(curvature @ first, rel=1e-5, abs=1e-5 * scale)
    assert fourth.item() == pytest.approx(curvature @ second, rel=1e-4, abs=1e-5 * scale)


class Growth(Family):
    """Durations with mean ``exp(eta)``, ``p = exp(-eta - x exp(-eta))``: its primitive has a shift and a sign."""

    name = "growth"

    def primitive(self, x):
        return primitive(Kind.EXPONENTIAL, 1.0, np.ones_like(x), -np.log(x) - 1, shift=np.log(x), sign=-1.0)

    def _nothing(self, *arguments):
        raise NotImplementedError

    check_support = sample = cumulative = quantile = _nothing


@pytest.mark.parametrize(("mean", "spread"), [(0.3, 0.0), (-1.0, 0.7), (2.0, 1.5)])
def test_rows_with_a_shift_and_a_sign(mean, spread):
    """``E log p = -m - x exp(-m + s^2 / 2)``, whose derivatives in m are e and -kappa."""
    x = np.array([0.01, 1.0, 30.0])
    rows = Growth().expectations(x, np.full(3, mean), np.full(3, spread))
    rate = x * np.exp(-mean + 0.5 * spread**2)
    assert rows.log_likelihood == pytest.approx(-mean - rate, rel=1e-12)
    assert rows.error == pytest.approx(rate - 1, rel=1e-12)
    assert rows.curvature == pytest.approx(rate, rel=1e-12)
    if spread == 0:
        right = stats.expon(scale=np.exp(mean)).logpdf(x)
        assert rows.log_likelihood == pytest.approx(right, rel=1e-12)
        # a is x exp(-eta) here, so it needs the data, and only g and t can be asked for.
        assert Growth().statistic(x) == pytest.approx(-1.0)
        assert Growth().log_base(x) == pytest.approx(0.0, abs=1e-12)


PARTS = [Gaussian([0.5, 2.0]), Poisson(), Binomial([3, 9])]
WHICH = np.array([2, 0, 1, 0, 2])


@pytest.mark.parametrize("shape", [(5,), (1, 5), (4, 5)])
def test_mixed_rows_are_those_of_their_families(shape):
    mixed, rng = Mixed(PARTS, WHICH), np.random.default_rng(0)
    mean, spread, y = rng.normal(size=shape), rng.uniform(0, 2, shape), np.full(shape, 2.0)
    whole = [
        *mixed.expectations(y, mean, spread), *mixed.expected_log_partition(mean, spread),
        mixed.log_partition_gap(mean, spread + 0.5, spread), mixed.log_base(y), mixed.statistic(y),
        mixed.log_partition(mean), mixed.log_partition_slope(mean),
    ]  # fmt: skip
    for position, part in enumerate(PARTS):
        rows = np.flatnonzero(position == WHICH)
        m, s = mean[..., rows], spread[..., rows]
        own = [
            *part.expectations(y[..., rows], m, s), *part.expected_log_partition(m, s),
            part.log_partition_gap(m, s + 0.5, s), part.log_base(y[..., rows]), part.statistic(y[..., rows]),
            part.log_partition(m), part.log_partition_slope(m),
        ]  # fmt: skip
        for got, right in zip(whole, own, strict=True):
            assert got.shape == shape
            assert got[..., rows] == pytest.approx(np.broadcast_to(right, m.shape), rel=1e-15)


def test_mixed_without_rows():
    """A choice of no rows is empty, not an error."""
    nothing, empty = Mixed(PARTS, WHICH).take(np.array([], np.int64)), np.zeros((2, 0))
    assert nothing.expectations(empty, empty, empty).log_likelihood.shape == (2, 0)


def test_a_constant_curvature_is_shared_by_a_batch():
    for family in (Gaussian(0.5), Gaussian([0.5, 1.0, 2.0])):
        rows = family.expectations(np.ones((4, 3)), np.zeros((4, 3)), np.ones((1, 3)))
        assert rows.log_likelihood.shape == rows.error.shape == (4, 3)
        assert rows.curvature.shape == (1, 3)


def test_many_entries_need_little_memory():
    """Nodes of the quadrature are made for a block of entries at a time."""
    import tracemalloc

    mean, spread = np.linspace(-5, 5, 200_000), np.linspace(0, 3, 200_000)
    tracemalloc.start()
    try:
        Bernoulli().expectations(np.ones(200_000), mean, spread)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * mean.nbytes


def test_an_unknown_kind_is_refused():
    with pytest.raises(ArgumentError, match=r"kind of rows must be one of 1 \(quadratic\).*; got 7"):
        formulas_of(7)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("kind", list(Kind))
def test_formulas_take_arrays_of_any_library(name, kind):
    xp = namespace(name)
    m, r = np.linspace(-3, 3, 6).reshape(2, 3), np.linspace(0, 2, 6).reshape(2, 3)
    target = np.array([[0.0, 0.3, 1.0]])
    given = [xp.asarray(one) for one in (target, m, r)]
    own = formulas_of(kind)
    for found, right in zip(own.terms(xp, *given), own.terms(np, target, m, r), strict=True):
        assert numpy_of(found) == pytest.approx(right, rel=1e-13)
