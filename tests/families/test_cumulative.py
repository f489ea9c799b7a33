"""Distribution functions and quantiles of families against their twins in SciPy, and mpmath."""

import mpmath
import numpy as np
import pytest
from scipy import special, stats

import forestmix as fmx
from forestmix.families import Bernoulli, Binomial, Poisson
from forestmix.families.base import smallest_count

TWINS = {
    "gaussian": (fmx.Gaussian(0.7), lambda eta: stats.norm(eta, 0.7)),
    "bernoulli": (Bernoulli(), lambda eta: stats.bernoulli(special.expit(eta))),
    "binomial": (Binomial(9), lambda eta: stats.binom(9, special.expit(eta))),
    "many trials": (Binomial(10**6), lambda eta: stats.binom(10**6, special.expit(eta))),
    "poisson": (Poisson(), lambda eta: stats.poisson(np.exp(eta))),
}
COUNTS = [name for name in TWINS if name != "gaussian"]
ETA = np.array([-30.0, -8.0, -2.0, -0.1, 0.0, 0.4, 3.0, 20.0])
PROBABILITY = np.array([1e-6, 0.025, 0.3, 0.5, 0.95, 0.999999])[:, None]


@pytest.mark.parametrize("name", TWINS)
def test_cumulative_equals_the_twin(name):
    family, twin = TWINS[name]
    y = np.array([-1.0, 0.0, 0.5, 1.0, 4.0, 8.0, 9.0, 31.5, 9e5, 1e6, 1e9])[:, None]
    assert family.cumulative(y, ETA) == pytest.approx(twin(ETA).cdf(y), rel=1e-9, abs=1e-12)
    single = family.astype(np.dtype(np.float32))
    assert single.cumulative(y.astype(np.float32), ETA.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("name", TWINS)
def test_quantile_equals_the_twin(name):
    family, twin = TWINS[name]
    quantile = family.quantile(PROBABILITY, ETA)
    right = twin(ETA).ppf(PROBABILITY)
    if name == "gaussian":
        assert quantile == pytest.approx(right, rel=1e-12)
        return
    # Where a cdf equals p to rounding, both neighbours are right.
    assert np.abs(quantile - right).max() <= 1
    assert (quantile == right)[:, ETA < 5].all()


@pytest.mark.parametrize("name", COUNTS)
def test_quantile_is_the_smallest_count_with_enough(name):
    family, _ = TWINS[name]
    eta = np.linspace(-10, 12, 89)
    quantile = family.quantile(PROBABILITY, eta)
    assert (family.cumulative(quantile, eta) >= PROBABILITY).all()
    assert (family.cumulative(quantile - 1, eta) < PROBABILITY).all()


def test_counts_of_large_rates():
    """Up to the range of float64, where counts are no longer exact, and beyond it."""
    eta = np.array([25.0, 60.0, 400.0])
    median = Poisson().quantile(np.array(0.5), eta)
    assert median == pytest.approx(np.exp(eta), rel=1e-9)
    assert Poisson().quantile(np.array(0.5), np.array([800.0])) == np.inf
    assert Poisson().cumulative(np.array(1e9), np.array([800.0])) == 0
    spread = Poisson().quantile(np.array(0.975), eta[:1]) - Poisson().quantile(np.array(0.025), eta[:1])
    assert spread == pytest.approx(2 * special.ndtri(0.975) * np.exp(12.5), rel=1e-5)


@pytest.mark.parametrize("rate", [3e5, 1e6, 1.1e6, 485265160.0, 1e12])
def test_tails_of_large_rates(rate):
    """To 1e-10 also beyond 4.5 standard deviations, where SciPy's function is wrong by 2e-6."""
    for z in (-6.0, -4.6, -2.0, 0.0, 3.0, 4.6):
        count = np.floor(rate - z * rate**0.5)
        with mpmath.workdps(30):
            # P(Y <= y) = P(Gamma(y + 1) > rate), by quadrature in standard deviations.
            a = mpmath.mpf(count) + 1
            scale, log_gamma = mpmath.sqrt(a), mpmath.loggamma(a)
            density = lambda t: mpmath.exp((a - 1) * mpmath.log(t) - t - log_gamma)  # noqa: B023, E731
            exact = mpmath.quad(density, [rate + scale * k for k in range(0, 22, 2)])
        eta = np.log(rate)
        # The logarithm of the rate is rounded: allow for what that moves.
        allowed = 1e-10 + 2e-16 * eta * rate**0.5
        assert Poisson().cumulative(np.array(count), np.array(eta)) == pytest.approx(float(exact), abs=allowed)


def test_smallest_count_in_wide_brackets():
    for target in (0.0, 1.0, 17.0, 2.0**40):
        found = smallest_count(
            lambda y, t=target: (y >= t).astype(float), np.array(0.5), np.array(-1.0), np.array(1e300)
        )
        assert found == target
