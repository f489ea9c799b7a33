"""Predictive distributions against exact normals, SciPy quadrature and Monte Carlo."""

import itertools

import numpy as np
import pytest
from scipy import integrate, sparse, special, stats

import forestmix as fmx
from forestmix.families import Bernoulli, Binomial, Mixed, Poisson
from forestmix.posterior import prediction
from forestmix.posterior.component import Component
from forestmix.posterior.covariance import DiagonalCovariance
from forestmix.posterior.marginals import Mixture
from support import oracles

TWINS = {
    "gaussian": (fmx.Gaussian(0.7), lambda eta: stats.norm(eta, 0.7)),
    "bernoulli": (Bernoulli(), lambda eta: stats.bernoulli(special.expit(eta))),
    "binomial": (Binomial(9), lambda eta: stats.binom(9, special.expit(eta))),
    "many trials": (Binomial(10**6), lambda eta: stats.binom(10**6, special.expit(eta))),
    "poisson": (Poisson(), lambda eta: stats.poisson(np.exp(eta))),
}
COUNTS = [name for name in TWINS if name not in ("gaussian", "bernoulli")]
#: Mean and sd of eta: narrow and wide beside the family's own spread, and none at all.
MIXTURES = [(0.3, 0.5), (-1.2, 2.0), (4.0, 0.05), (2.0, 6.0), (-5.0, 1.0), (7.5, 0.4), (1.0, 0.0)]


def mixture_cdf(twin, y, mean, sd):
    """E_z F(y; m + s z) by Gauss-Legendre in many pieces, most of them where F falls."""
    if y < 0:
        return 0.0
    if sd == 0:
        return float(twin(mean).cdf(y))
    first, last = -10.0, 10.0
    for _ in range(6):
        z = np.linspace(first, last, 101)
        values = np.asarray(twin(mean + sd * z).cdf(y))
        first = z[values >= 1 - 1e-12].max(initial=first)
        last = z[values <= 1e-12].min(initial=last)
    pieces = np.unique([*np.linspace(-10, 10, 21), *np.linspace(first, last, 41)])
    integrand = lambda z: np.asarray(twin(mean + sd * z).cdf(y)) * stats.norm.pdf(z)  # noqa: E731
    return sum(integrate.fixed_quad(integrand, a, b, n=20)[0] for a, b in itertools.pairwise(pieces))


def gaussian_result(rng, batch=False, dtype=np.float64):
    W, b, sd = rng.standard_normal((8, 4)), rng.standard_normal(8), rng.uniform(0.5, 1.5, 8)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd), W.astype(dtype), b), prior=fmx.Prior(fmx.Gaussian(0.8), 0.3))
    x = model.sample(rng, 3 if batch else None).x
    return fmx.infer(model, x), W, b, sd


def predictive(family, mean, sd, level=0.9):
    """Prediction of rows that have eta ~ N(mean, sd^2), by a model without observations."""
    mean, sd = np.atleast_1d(mean), np.atleast_1d(sd)
    # A row of zeros has no spread; one with a weight has that of its own latent.
    layer = fmx.Layer(family, np.diag((sd > 0).astype(float)), mean)
    one = Component(np.zeros(len(mean)), DiagonalCovariance(np.where(sd > 0, sd, 1.0) ** 2), layer)
    return prediction.predict(Mixture([one], np.ones(1)), None, level, True)


# The natural parameter, and Gaussian rows.


@pytest.mark.parametrize("batch", [False, True])
def test_gaussian_rows_are_exact(batch):
    result, W, b, sd = gaussian_result(np.random.default_rng(0), batch)
    for corrected in (False, True):
        got = result.posterior("corrected" if corrected else "factorised").predict(level=0.8)
        covariance = (
            oracles.posterior(W, b, sd, 0.3, 0.8, np.zeros(8))[1]
            if corrected
            else np.diag(result.sd.T[..., 0] ** 2 if batch else result.sd**2)
        )
        variance = np.einsum("ij,jk,ik->i", W, covariance, W)
        mean = result.mean @ W.T + b
        eta, x = stats.norm(mean, np.sqrt(variance)), stats.norm(mean, np.sqrt(variance + sd**2))
        exact = (eta.mean(), eta.std(), *eta.interval(0.8), x.mean(), *x.interval(0.8))
        fields = (got.eta_mean, got.eta_sd, got.eta_lower, got.eta_upper, got.mean, got.lower, got.upper)
        for field, right in zip(fields, exact, strict=True):
            assert field.shape == ((3, 8) if batch else (8,))
            assert field == pytest.approx(right, rel=1e-9)


def test_corrected_intervals_of_other_rows_are_wider():
    rng = np.random.default_rng(1)
    W = np.ones((20, 1)) + 0.3 * rng.standard_normal((20, 3))
    model = fmx.DEF(fmx.Layer(Poisson(), W, 0.5))
    result = fmx.infer(model, model.sample(rng, 2).x)
    got = result.posterior().predict()
    assert got.eta_sd == pytest.approx(np.sqrt(result.posterior().variance(W)), rel=1e-12)
    assert not np.allclose(got.eta_sd, result.posterior("factorised").predict().eta_sd, rtol=0.05)


# Counts.


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("level", [0.5, 0.9, 0.999])
def test_interval_of_counts(name, level):
    """The smallest counts with at least alpha / 2 and 1 - alpha / 2 up to them, by quadrature of SciPy's cdf."""
    family, twin = TWINS[name]
    mean, sd = (np.array(column) for column in zip(*MIXTURES, strict=True))
    got = predictive(family, mean, sd, level)
    tail = (1 - level) / 2
    for m, s, lower, upper in zip(mean, sd, got.lower, got.upper, strict=True):
        for count, p in ((lower, tail), (upper, 1 - tail)):
            assert mixture_cdf(twin, count - 1, m, s) < p + 1e-8
            assert mixture_cdf(twin, count, m, s) >= p - 1e-8


@pytest.mark.parametrize("name", COUNTS)
def test_mixture_cdf_to_eight_digits(name):
    family, twin = TWINS[name]
    for m, s in MIXTURES:
        for y in (0.0, 2.0, 8.0, 40.0, 1e3, 5e5):
            mixture = prediction._Mixture(family, np.array([m]), np.array([s]))
            assert mixture.cumulative(np.array([y]))[0] == pytest.approx(mixture_cdf(twin, y, m, s), abs=1e-8)


@pytest.mark.parametrize("rate", [1e6, 1e12])
def test_mixture_cdf_where_the_fall_is_narrow(rate):
    """At a large rate with a wide eta, the count is the rate: a log-normal distribution."""
    mixture = prediction._Mixture(Poisson(), np.array([np.log(rate)]), np.array([3.0]))
    for z in (-2.0, 0.0, 1.5):
        cdf = mixture.cumulative(np.array([np.floor(rate * np.exp(3.0 * z))]))[0]
        assert cdf == pytest.approx(stats.norm.cdf(z), abs=20 / rate**0.5 if rate < 1e9 else 1e-8)


@pytest.mark.parametrize("name", COUNTS)
def test_mean_and_interval_equal_monte_carlo(name):
    family = TWINS[name][0]
    rng = np.random.default_rng(2)
    mean, sd = np.array([0.2, -1.0, 2.5]), np.array([0.4, 1.0, 0.2])
    draws = family.sample(mean + sd * rng.standard_normal((200_000, 3)), rng)
    got = predictive(family, mean, sd)
    standard_error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(got.mean - draws.mean(axis=0)) < 5 * standard_error).all()
    inside = np.mean((draws >= got.lower) & (draws <= got.upper), axis=0)
    assert (inside > 0.9 - 0.004).all()
    for end, p in ((got.lower, 0.05), (got.upper, 0.95)):
        assert (np.mean(draws <= end, axis=0) > p - 0.004).all()
        assert (np.mean(draws < end, axis=0) < p + 0.004).all()


def test_binomial_rows_with_their_own_trials():
    trials = np.array([1, 5, 300, 20_000])
    got = predictive(Binomial(trials), np.array([0.5, -1.0, 0.0, 2.0]), np.full(4, 0.7))
    for i, (n, m) in enumerate(zip(trials, (0.5, -1.0, 0.0, 2.0), strict=True)):
        alone = predictive(Binomial(n), m, 0.7)
        assert (got.mean[i], got.lower[i], got.upper[i]) == (alone.mean[0], alone.lower[0], alone.upper[0])
        cdf = [
            mixture_cdf(lambda eta, n=n: stats.binom(n, special.expit(eta)), y, m, 0.7)
            for y in (got.lower[i] - 1, got.upper[i])
        ]
        assert cdf[0] < 0.05
        assert cdf[1] >= 0.95


def test_chunks_do_not_show(monkeypatch):
    rng = np.random.default_rng(3)
    mean, sd = rng.normal(1, 2, 50), rng.uniform(0, 1, 50)
    whole = predictive(Binomial(np.arange(1, 51)), mean, sd)
    monkeypatch.setattr(prediction, "MEMORY_BUDGET", 50_000)
    parts = predictive(Binomial(np.arange(1, 51)), mean, sd)
    assert (whole.lower == parts.lower).all()
    assert (whole.upper == parts.upper).all()


def test_a_rate_beyond_float64_is_infinite():
    got = predictive(Poisson(), np.array([0.0, 2000.0]), np.array([300.0, 1.0]))
    assert got.lower.tolist() == [0.0, np.inf]
    assert got.upper[1] == np.inf
    assert np.isfinite(got.upper[0])
    assert got.upper[0] == pytest.approx(np.exp(300 * special.ndtri(0.95)), rel=1e-6)


def test_rows_of_several_families():
    families = [fmx.Gaussian([0.5, 2.0]), Poisson(), Binomial([4, 9])]
    which = np.array([1, 0, 2, 0, 1, 2])
    mean, sd = np.linspace(-1, 2, 6), np.full(6, 0.6)
    got = predictive(Mixed(families, which), mean, sd)
    for family, rows in (
        (fmx.Gaussian(0.5), [1]),
        (fmx.Gaussian(2.0), [3]),
        (Poisson(), [0, 4]),
        (Binomial([4, 9]), [2, 5]),
    ):
        alone = predictive(family, mean[rows], sd[rows])
        for field in ("mean", "lower", "upper"):
            assert getattr(got, field)[rows] == pytest.approx(getattr(alone, field), rel=1e-12)


def test_coverage_on_data_from_the_model():
    """Of held-out entries about the level lies inside, if q is nearly the posterior: few latents, many rows."""
    rng = np.random.default_rng(4)
    W = rng.standard_normal((80, 3)) * 0.5
    for family in (fmx.Gaussian(0.7), Poisson(), Binomial(12)):
        model = fmx.DEF(fmx.Layer(family, W, 1.0))
        x = model.sample(rng, 60).x
        hidden = rng.random(x.shape) < 0.3
        got = fmx.infer(model, np.where(hidden, np.nan, x)).posterior().predict(level=0.9)
        covered = np.mean(((x >= got.lower) & (x <= got.upper))[hidden])
        # Counts cover at least the level, since an interval cannot cut one.
        assert 0.88 < covered < (0.92 if family.name == "gaussian" else 0.99)


# Which rows.


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("batch", [False, True])
def test_chosen_rows(kind, batch):
    rng = np.random.default_rng(5)
    W = rng.standard_normal((8, 4)) * (rng.random((8, 4)) < 0.6)
    model = fmx.DEF(fmx.Layer(Binomial(np.arange(1, 9)), kind(W), rng.standard_normal(8)))
    result = fmx.infer(model, model.sample(rng, 2 if batch else None).x)
    for kind in ("factorised", "corrected"):
        posterior = result.posterior(kind)
        whole = posterior.predict()
        mask = np.arange(8) % 3 == 0
        for rows, chosen in (([5, 1, 1], [5, 1, 1]), (mask, mask), (list(mask), mask), (6, [6])):
            got = posterior.predict(rows)
            for field in ("eta_mean", "eta_sd", "eta_lower", "eta_upper", "mean", "lower", "upper"):
                assert getattr(got, field) == pytest.approx(getattr(whole, field)[..., chosen], rel=1e-6)


def test_new_rows_with_a_family_of_their_own():
    rng = np.random.default_rng(6)
    result, *_ = gaussian_result(rng, batch=True)
    design = rng.standard_normal((5, 4)) * 0.3
    got = result.posterior("factorised").predict(fmx.Layer(Poisson(), design, 0.2))
    mean, variance = result.mean @ design.T + 0.2, result.sd**2 @ (design**2).T
    assert got.eta_mean == pytest.approx(mean)
    assert got.eta_sd == pytest.approx(np.sqrt(variance))
    assert got.mean == pytest.approx(np.exp(mean + variance / 2))
    assert (got.upper == np.floor(got.upper)).all()


def test_float32_in_float32_out():
    result, *_ = gaussian_result(np.random.default_rng(7), dtype=np.float32)
    for layer in (None, fmx.Layer(Poisson(), np.ones((2, 4), np.float32))):
        got = result.posterior().predict(layer)
        assert {getattr(got, field).dtype for field in got.__dataclass_fields__} == {np.dtype(np.float32)}
    assert result.posterior().sample(rng=0).dtype == np.float32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": 0.0}, "level must be a number between 0 and 1; got 0.0"),
        ({"level": 90}, "level must be a number between 0 and 1; got 90"),
        ({"rows": [0, 8]}, r"rows must lie in \[0, 8\), the rows of the model; got 8"),
        ({"rows": [-1]}, r"rows must lie in \[0, 8\), .* got -1"),
        ({"rows": []}, "rows must be None, row numbers"),
        ({"rows": np.zeros(8, bool)}, "rows must choose at least one row; got none"),
        ({"rows": np.ones(5, bool)}, r"rows must be None, row numbers, a mask of shape \(8,\), .* shape \(5,\)"),
        ({"rows": np.ones((2, 2), int)}, r"rows must be None, .* shape \(2, 2\)"),
        ({"rows": [0.5]}, "rows must be None, row numbers, .* got dtype float64"),
        ({"rows": "all"}, "rows must be None, row numbers"),
        ({"rows": fmx.Layer(fmx.Gaussian(1.0), np.ones((3, 5)))}, "a Layer with 4 columns of W, .* got 5"),
    ],
)
def test_bad_arguments(arguments, message):
    result, *_ = gaussian_result(np.random.default_rng(8))
    with pytest.raises(fmx.ArgumentError, match=message):
        result.posterior().predict(**arguments)


# Rows of 0 and 1, and mixtures of components.


def test_rows_of_0_and_1_have_the_interval_of_their_probability():
    mean, sd = np.array([-3.0, 0.4, 2.0]), np.array([0.5, 1.0, 3.0])
    got = predictive(Bernoulli(), mean, sd, 0.8)
    for i in range(3):
        probability = lambda z, i=i: special.expit(mean[i] + sd[i] * z) * stats.norm.pdf(z)  # noqa: E731
        assert got.mean[i] == pytest.approx(integrate.quad(probability, -12, 12, epsabs=1e-13)[0], rel=1e-9)
    assert got.lower == pytest.approx(special.expit(mean + sd * stats.norm.ppf(0.1)), rel=1e-12)
    assert got.upper == pytest.approx(special.expit(mean + sd * stats.norm.ppf(0.9)), rel=1e-12)


def two_components(family, other, weights=(0.3, 0.7)):
    W = np.array([[1.0, 0.0], [0.5, -1.0]])
    parts = [
        Component(np.array([0.2, 1.0]), DiagonalCovariance(np.array([0.3, 0.2])), fmx.Layer(family, W, 0.4)),
        Component(np.array([-0.5, 0.3]), DiagonalCovariance(np.array([0.1, 0.6])), fmx.Layer(other, W, 0.4)),
    ]
    return Mixture(parts, np.array(weights)), W


@pytest.mark.parametrize(("family", "other"), [(fmx.Gaussian(0.3), fmx.Gaussian(1.1)), (Poisson(), Poisson())])
def test_mixtures_equal_draws_from_them(family, other):
    mixture, W = two_components(family, other)
    got = prediction.predict(mixture, None, 0.8, True)
    rng = np.random.default_rng(0)
    count = 400_000
    drawn = []
    for part, share in zip(mixture.components, mixture.weights[0], strict=True):
        size = round(count * share)
        y = part.mean[0] + np.sqrt(part.covariance.variance()[0]) * rng.standard_normal((size, 2))
        drawn.append(np.stack([y @ W.T + 0.4, part.layer.family.sample(y @ W.T + 0.4, rng)]))
    eta, x = np.concatenate(drawn, axis=1)
    assert got.eta_mean == pytest.approx(eta.mean(axis=0), abs=0.01)
    assert got.eta_sd == pytest.approx(eta.std(axis=0), rel=0.01)
    assert got.mean == pytest.approx(x.mean(axis=0), rel=0.02)
    for end, p in ((got.eta_lower, 0.1), (got.eta_upper, 0.9)):
        assert np.mean(eta <= end, axis=0) == pytest.approx([p, p], abs=0.005)
    for end, p in ((got.lower, 0.1), (got.upper, 0.9)):
        assert (np.mean(x <= end, axis=0) > p - 0.005).all()
        assert (np.mean(x < end, axis=0) < p + 0.005).all()
