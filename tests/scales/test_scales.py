"""Each scale against its twin in scipy.stats, its gradient against differences, its draws against its quantiles."""

import numpy as np
import pytest
import scipy.stats

import forestmix as fmx
from forestmix.model import observations
from forestmix.posterior.scale_terms import ScaleTerms
from forestmix.scales import Exponential, Flat, FromData, HalfCauchy, HalfNormal, HalfStudentT, InverseGamma

POINTS = np.array([1e-6, 0.01, 0.3, 1.0, 2.5, 40.0])


class OfSquare:
    """The density of s where s^2 has a given distribution of SciPy."""

    def __init__(self, square):
        self.square = square

    def logpdf(self, s):
        return self.square.logpdf(s**2) + np.log(2 * s)

    def ppf(self, p):
        return np.sqrt(self.square.ppf(p))


class FoldedT:
    """Twice the upper half of a t."""

    def __init__(self, df, scale):
        self.t = scipy.stats.t(df, scale=scale)

    def logpdf(self, s):
        return self.t.logpdf(s) + np.log(2)

    def ppf(self, p):
        return self.t.isf(0.5 * (1 - p))


TWINS = {
    "half normal": (HalfNormal(0.7), scipy.stats.halfnorm(scale=0.7)),
    "half Cauchy": (HalfCauchy(2.5), scipy.stats.halfcauchy(scale=2.5)),
    "half t": (HalfStudentT(3, 1.5), FoldedT(3, 1.5)),
    "exponential": (Exponential(2.0), scipy.stats.expon(scale=0.5)),
    "inverse gamma of the sd": (InverseGamma(2.0, 3.0, of="sd"), scipy.stats.invgamma(2.0, scale=3.0)),
    "inverse gamma of the variance": (InverseGamma(2.0, 3.0), OfSquare(scipy.stats.invgamma(2.0, scale=3.0))),
}
each = pytest.mark.parametrize(("scale", "twin"), TWINS.values(), ids=TWINS)


@each
def test_density_is_that_of_its_twin(scale, twin):
    points = POINTS[2:] if isinstance(scale, InverseGamma) else POINTS
    np.testing.assert_allclose(scale.log_density(points), twin.logpdf(points), rtol=1e-12, atol=1e-12)


@each
def test_density_of_the_logarithm_integrates_to_one(scale, twin):
    theta = np.linspace(-60, 60, 200_001)
    assert np.trapezoid(np.exp(scale.log_density_of_log(theta)), theta) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("scale", [*(one for one, _ in TWINS.values()), Flat()], ids=repr)
def test_gradient_is_the_slope_of_the_density(scale):
    theta, step = np.linspace(-3, 3, 13), 1e-5
    slope = (scale.log_density_of_log(theta + step) - scale.log_density_of_log(theta - step)) / (2 * step)
    np.testing.assert_allclose(scale.gradient_of_log(theta), slope, rtol=1e-6, atol=1e-6)


@each
def test_quantiles_and_draws(scale, twin):
    p = np.array([1e-9, 0.01, 0.5, 0.9, 0.9999])
    np.testing.assert_allclose(scale.quantile(p), twin.ppf(p), rtol=1e-6)
    drawn = scale.sample(20_000, rng=0)
    assert drawn.shape == (20_000,)
    assert np.mean(drawn <= twin.ppf(0.3)) == pytest.approx(0.3, abs=0.015)


def test_flat_is_not_proper():
    assert not Flat().proper
    with pytest.raises(fmx.ForestmixError, match="has no integral"):
        Flat().sample()
    with pytest.raises(fmx.ForestmixError, match="no quantiles"):
        Flat().quantile(0.5)


def given_data(values, weights=None):
    """The prior of the noise of rows with these values, each with its case weight."""
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(), np.ones((len(values), 1)), case_weights=weights))
    return ScaleTerms.of(model, observations(model, np.array(values))).priors[0]


def test_prior_from_the_data():
    given = given_data([1.0, 3.0, np.nan])
    assert (given.df, given.scale) == (3.0, 2.5)
    assert given_data([2.0, 2.0]).scale == 2.5
    values, weights = [1.0, 2.0, 7.0, 9.0], np.array([3, 1, 2, 0])
    twice = given_data(np.repeat(values, weights))
    assert twice.scale > 2.5
    assert given_data(values, weights).scale == pytest.approx(twice.scale, rel=1e-14)
    with pytest.raises(fmx.ForestmixError, match="on the scale of the data, and there are none here"):
        FromData().log_density(1.0)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: HalfNormal(0), "scale must be a finite number above 0; got 0"),
        (lambda: HalfNormal([1.0]), r"scale must be a finite number above 0; got \[1.0\]"),
        (lambda: HalfStudentT(-1), "df must be a finite number above 0; got -1"),
        (lambda: Exponential(np.inf), "rate must be"),
        (lambda: InverseGamma(1, 1, of="precision"), "of must be one of 'sd', 'variance'; got 'precision'"),
        (lambda: fmx.Gaussian(sd=[HalfNormal(), "a"]), "sd must be a list of numbers and of scales such as"),
        (lambda: fmx.Gaussian(sd=[HalfNormal(), -1.0]), "sd must be greater than 0; got -1"),
    ],
)
def test_bad_arguments(make, match):
    with pytest.raises(fmx.ArgumentError, match=match):
        make()


def test_repr_is_the_call():
    assert repr(HalfStudentT(3, 2.5)) == "HalfStudentT(df=3.0, scale=2.5)"
    assert repr(InverseGamma(1, 2)) == "InverseGamma(shape=1.0, scale=2.0, of='variance')"
    assert repr(Flat()) == "Flat()"
