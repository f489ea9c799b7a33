"""Every family against finite differences of its log-partition function, numerical integration and its SciPy twin."""

from functools import partial

import numpy as np
import pytest
from scipy import integrate, special, stats

from forestmix.families import FAMILIES, Bernoulli, Binomial, Gaussian, Poisson
from forestmix.families.row_terms import log_partition

#: Each family as an instance, values in its support, and its SciPy twin at natural parameter eta.
TWINS = {
    "gaussian": (Gaussian(sd=0.7), np.array([-3.0, -0.2, 0.0, 1.5, 40.0]), lambda eta: stats.norm(eta, 0.7)),
    "bernoulli": (Bernoulli(), np.array([0.0, 1.0, 1.0]), lambda eta: stats.bernoulli(special.expit(eta))),
    "binomial": (Binomial(9), np.array([0.0, 4.0, 9.0]), lambda eta: stats.binom(9, special.expit(eta))),
    "poisson": (Poisson(), np.array([0.0, 3.0, 50.0]), lambda eta: stats.poisson(np.exp(eta))),
}
ETA = np.array([-30.0, -2.0, -0.1, 0.0, 0.4, 3.0, 20.0])


def second_derivative(family, eta):
    return log_partition(family.without_data(eta), 2, eta)


def discrete(scipy_twin):
    return hasattr(scipy_twin(0.0), "logpmf")


def test_every_family_has_a_twin():
    assert set(TWINS) == set(FAMILIES)


@pytest.fixture(params=TWINS)
def twin(request):
    return TWINS[request.param]


def test_density_equals_scipy(twin):
    family, values, scipy_twin = twin
    for eta in ETA:
        density = family.log_base(values) + family.statistic(values) * eta - family.log_partition(eta)
        right = scipy_twin(eta).logpmf(values) if discrete(scipy_twin) else scipy_twin(eta).logpdf(values)
        # SciPy takes a probability, and near 1 its distance from 1 has lost digits.
        assert density == pytest.approx(right, rel=1e-8 if discrete(scipy_twin) else 1e-10, abs=1e-10)


def test_moments_are_derivatives_of_the_log_partition(twin):
    family, _, _ = twin
    step = 1e-4
    slope = (family.log_partition(ETA + step) - family.log_partition(ETA - step)) / (2 * step)
    curvature = (family.log_partition_slope(ETA + step) - family.log_partition_slope(ETA - step)) / (2 * step)
    assert family.log_partition_slope(ETA) == pytest.approx(slope, rel=1e-6, abs=1e-6)
    assert second_derivative(family, ETA) == pytest.approx(curvature, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("mean", [-4.0, 0.0, 2.5])
@pytest.mark.parametrize("spread", [0.0, 0.3, 5.0])
def test_expectations_equal_numerical_integration(twin, mean, spread):
    family, values, _ = twin

    def expect(function):
        if spread == 0:
            return float(function(np.array(mean)))
        return integrate.quad(lambda z: function(np.array(mean + spread * z)) * stats.norm.pdf(z), -12, 12)[0]

    expected = family.expected_log_partition(np.array([mean]), np.array([spread]))
    exact = [expect(f) for f in (family.log_partition, family.log_partition_slope, partial(second_derivative, family))]
    assert [part.item() for part in expected] == pytest.approx(exact, rel=1e-8, abs=1e-8)
    rows = family.expectations(values[1:2], np.array([mean]), np.array([spread]))
    assert rows.log_likelihood.item() == pytest.approx(
        (family.log_base(values[1]) + family.statistic(values[1]) * mean) - exact[0], rel=1e-8
    )
    assert rows.error.item() == pytest.approx(family.statistic(values[1]) - exact[1], rel=1e-8, abs=1e-8)
    assert np.ravel(rows.curvature)[0] == pytest.approx(exact[2], rel=1e-8)


def test_gap_is_the_difference_of_expectations(twin):
    family, _, _ = twin
    wide, narrow = np.array([2.0, 1.0, 0.5]), np.array([1.0, 1.0, 0.0])
    mean = np.array([0.3, -1.0, 2.0])
    difference = family.expected_log_partition(mean, wide).value - family.expected_log_partition(mean, narrow).value
    assert family.log_partition_gap(mean, wide, narrow) == pytest.approx(difference, abs=1e-12)


def test_samples_follow_the_twin(twin):
    family, _, scipy_twin = twin
    draws = family.sample(np.full(4000, 0.4), np.random.default_rng(0))
    family.check_support("x", draws)
    if discrete(scipy_twin):
        # Rare values are counted together with the nearest that is not.
        low, high = (int(scipy_twin(0.4).ppf(p)) for p in (0.01, 0.99))
        edges = np.array([-np.inf, *np.arange(low, high), np.inf])
        counts = np.bincount(np.searchsorted(edges[1:], draws), minlength=high - low + 1)
        assert stats.chisquare(counts, 4000 * np.diff(scipy_twin(0.4).cdf(edges))).pvalue > 1e-3
    else:
        assert stats.kstest(draws, scipy_twin(0.4).cdf).pvalue > 1e-3


def test_gaussian_residual_form_keeps_its_digits():
    """x = 1e6 with sd = 1e-6: g + t m - E a would lose everything, being a difference of numbers of size 1e24."""
    family = Gaussian(sd=1e-6)
    rows = family.expectations(np.array([1e6]), np.array([1e6 + 1e-6]), np.array([0.0]))
    residual = (1e6 - (1e6 + 1e-6)) / 1e-6
    assert rows.log_likelihood.item() == pytest.approx(stats.norm.logpdf(residual) - np.log(1e-6), rel=1e-12)


def test_parameters_per_variable_and_taking_some():
    family = Gaussian(sd=[1.0, 2.0, 4.0])
    assert family.take(np.array([2, 2, 0])).sd.tolist() == [4.0, 4.0, 1.0]
    assert Gaussian(3.0).take(np.array([0, 1])).sd == 3.0
    assert family.astype(np.dtype(np.float32)).sd.dtype == np.float32
    assert "3 values" in repr(family)
