"""``infer`` with a full covariance and with unknown scales: what a user sees, against closed forms."""

import numpy as np
import pytest
import scipy.sparse
import scipy.stats

import forestmix as fmx
from forestmix.model import observations
from forestmix.posterior import columns
from forestmix.posterior.scale_terms import scale_names
from forestmix.scales import HalfNormal, InverseGamma
from support.posterior_models import fit_full

RNG = np.random.default_rng(0)
W = np.c_[np.ones(40), RNG.standard_normal((40, 3))]
X = W @ [1.0, -0.5, 0.3, 2.0] + 0.7 * RNG.standard_normal(40)


class TestUnknownNoise:
    """A conjugate regression: latents and rows share the unknown sd, whose square is inverse gamma."""

    sd = InverseGamma(2.0, 1.0)
    result = fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(sd=sd), W), prior=fmx.Prior(fmx.Gaussian(sd=sd))), X)
    A = np.eye(4) + W.T @ W
    mean = np.linalg.solve(A, W.T @ X)
    shape, rate = 2.0 + 20, 1.0 + 0.5 * (X @ X - mean @ A @ mean)

    def t(self, j):
        return scipy.stats.t(
            2 * self.shape, self.mean[j], np.sqrt(self.rate / self.shape * np.linalg.inv(self.A)[j, j])
        )

    def test_posterior(self):
        post = self.result.posterior()
        assert post.kind == "full"
        np.testing.assert_allclose(post.mean, self.mean, rtol=1e-9)
        np.testing.assert_allclose(post.sd, [self.t(j).std() for j in range(4)], rtol=1e-6)
        for end, p in zip(post.interval(0.9), (0.05, 0.95), strict=True):
            np.testing.assert_allclose(end, [self.t(j).ppf(p) for j in range(4)], rtol=1e-6)
        covariance = self.rate / (self.shape - 1) * np.linalg.inv(self.A)
        np.testing.assert_allclose(post.covariance(), covariance, rtol=1e-5, atol=1e-9)
        drawn = post.sample(20_000, rng=1)
        assert scipy.stats.kstest(drawn[:, 2], self.t(2).cdf).pvalue > 1e-4

    def test_result(self):
        assert self.result.converged
        assert "integrated over, by" in self.result.message
        np.testing.assert_allclose(self.result.mean, self.mean, rtol=1e-9)
        np.testing.assert_allclose(self.result.sd, [self.t(j).std() for j in range(4)], rtol=1e-6)
        noise = self.result.posterior().scales["noise"]
        assert noise.quantile(0.5) == pytest.approx(
            scipy.stats.invgamma(self.shape, scale=self.rate).median() ** 0.5, rel=1e-4
        )

    @pytest.mark.parametrize("noise", ["the same object", "left out", "own rows"])
    def test_predictions_are_student_t(self, noise):
        """The noise of each component, also for new rows that name its scale or leave it out."""
        family = fmx.Gaussian() if noise == "left out" else fmx.Gaussian(sd=self.sd)
        prediction = self.result.posterior().predict([0, 1] if noise == "own rows" else fmx.Layer(family, W[:2]), 0.9)
        spread = np.sqrt(self.rate / self.shape * (1 + np.einsum("ij,ji->i", W[:2], np.linalg.solve(self.A, W[:2].T))))
        predictive = scipy.stats.t(2 * self.shape, W[:2] @ self.mean, spread)
        np.testing.assert_allclose(prediction.mean, predictive.mean(), rtol=1e-9)
        np.testing.assert_allclose(prediction.lower, predictive.ppf(0.05), rtol=1e-4)
        np.testing.assert_allclose(prediction.upper, predictive.ppf(0.95), rtol=1e-4)

    def test_predictions_with_an_unknown_scale_of_another_model(self):
        rows = fmx.Layer(fmx.Gaussian(sd=HalfNormal(1.0)), W[:2])
        with pytest.raises(fmx.ArgumentError, match="rows must have scales of the model, the same objects"):
            self.result.posterior().predict(rows)

    def test_leave_one_out(self):
        """Against t densities of each row given the others, in closed form."""
        expected = []
        for i in range(40):
            rest = np.arange(40) != i
            A = np.eye(4) + W[rest].T @ W[rest]
            mean = np.linalg.solve(A, W[rest].T @ X[rest])
            shape, rate = 2 + 39 / 2, 1 + 0.5 * (X[rest] @ X[rest] - mean @ A @ mean)
            spread = np.sqrt(rate / shape * (1 + W[i] @ np.linalg.solve(A, W[i])))
            expected.append(scipy.stats.t.logpdf(X[i], 2 * shape, W[i] @ mean, spread))
        np.testing.assert_allclose(self.result.posterior().loo().pointwise, expected, atol=2e-3)


def test_full_covariance_of_rows_that_are_not_gaussian():
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), 0.4 * W), prior=fmx.Prior(fmx.Gaussian(2.0)))
    x = model.sample(3).x
    result = fmx.infer(model, x, covariance="full")
    (fit,) = fit_full(model, observations(model, x))
    assert result.objective == result.elbo == fit.elbo
    assert (np.diff(result.trace.objective) > 0).all()
    assert result.n_iter == len(result.trace) - 1
    post = result.posterior("full")
    np.testing.assert_array_equal(post.mean, fit.mean)
    assert (post.sd >= np.sqrt(np.diag(fit.covariance.covariance())) * (1 - 1e-12)).all()
    assert post.elbo == pytest.approx(fit.elbo, abs=1e-6)
    assert fit.elbo < post.log_evidence < fit.elbo + 0.1
    assert post.log_evidence == pytest.approx(post.check(size=4000).log_evidence, abs=0.01)
    assert post.loo().elpd < 0
    assert result.objective > fmx.infer(model, x).elbo


def test_check_of_a_full_covariance():
    """It has what to compare with: the same posterior without its correlations."""
    design = np.c_[W, W[:, 1] + 0.1 * RNG.standard_normal(40)]
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), design), prior=fmx.Prior(fmx.Gaussian(2.0)))
    post = fmx.infer(model, model.sample(1).x, covariance="full").posterior()
    precision = np.linalg.inv(post.mixture.components[0].fitted().covariance.distinct[0].covariance())
    np.testing.assert_allclose(post.factors[1][0], np.diag(precision) ** -0.5, rtol=1e-4)
    assert not str(post.check()).startswith("Not looked at")


def test_full_covariance_of_a_batch_of_gaussian_rows():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W))
    x = model.sample(0, size=3).x
    x[1, 4] = np.nan
    post = fmx.infer(model, x, covariance="full").posterior()
    np.testing.assert_allclose(post.log_evidence, fmx.log_evidence(model, x), rtol=1e-10)
    np.testing.assert_allclose(post.mean, fmx.infer(model, x).posterior().mean, atol=1e-6)
    np.testing.assert_allclose(post.sd, fmx.infer(model, x).posterior().sd, rtol=1e-6)


def test_scales_of_a_batch_are_shared():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=HalfNormal(1.0)), W))
    x = model.with_scales([0.4]).sample(0, size=5).x
    result = fmx.infer(model, x)
    low, high = result.scales["noise"].interval(0.99)
    assert low < 0.4 < high
    assert result.mean.shape == (5, 4)
    assert result.objective.shape == (5,)
    assert result.posterior().sd.shape == (5, 4)


def test_an_sd_left_out_is_reported():
    rows = fmx.Gaussian()
    result = fmx.infer(fmx.DEF(fmx.Layer(rows, W), prior=fmx.Prior(fmx.Gaussian(5.0))), X)
    assert result.scales["noise"].mean == pytest.approx(0.7, rel=0.3)
    assert result.model.unknown_scales == ()


def test_names_of_scales():
    tau, sigma, noise, other = (HalfNormal(1.0) for _ in range(4))
    rows = fmx.Gaussian(sd=[noise] * 20 + [other] * 20)
    model = fmx.DEF(fmx.Layer(rows, W), prior=fmx.Prior(fmx.Gaussian(sd=[1.0, tau, sigma, noise])))
    assert scale_names(model) == ["noise[0]", "noise[1]", "sd[0]", "sd[1]"]


def test_more_latents_than_a_factor_can_hold(monkeypatch):
    """Scales at their mode, by variational EM, and the message says so."""
    monkeypatch.setattr(columns, "MOST_COLUMNS", 3)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=HalfNormal(1.0)), W), prior=fmx.Prior(fmx.Gaussian(sd=HalfNormal(2.0))))
    result = fmx.infer(model, X)
    assert "variational EM, and their uncertainty is left out" in result.message
    assert set(result.scales) == {"noise", "sd"}
    assert result.scales["noise"].mean == pytest.approx(0.7, rel=0.3)
    assert result.posterior().scales["noise"].sd == 0


def test_random_intercepts_cover_the_truth():
    rng = np.random.default_rng(5)
    n, groups = 1000, 40
    level = rng.integers(0, groups, n)
    Z = scipy.sparse.csr_array((np.ones(n), (np.arange(n), level)), (n, groups))
    design = scipy.sparse.csr_array(scipy.sparse.hstack([np.c_[np.ones(n), rng.standard_normal(n)], Z]))
    tau = HalfNormal(1.0)
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), design), prior=fmx.Prior(fmx.Gaussian(sd=[2.0, 2.0, *[tau] * groups])))
    truth = model.with_scales([0.8]).sample(3)
    result = fmx.infer(model, truth.x)
    low, high = result.scales["sd"].interval(0.95)
    assert low < 0.8 < high
    low, high = result.posterior().interval(0.9)
    assert 0.8 <= np.mean((low < truth.latents[0]) & (truth.latents[0] < high)) <= 0.98


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"algorithm": "cavi"}, "algorithm and init must be left out with covariance='full'"),
        ({"init": (np.zeros(4), np.ones(4))}, "algorithm and init must be left out"),
        ({"covariance": "half"}, "covariance must be one of 'factorised', 'full'; got 'half'"),
    ],
)
def test_options_that_do_not_go_together(arguments, match):
    with pytest.raises(fmx.ArgumentError, match=match):
        fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W)), X, **{"covariance": "full", **arguments})


def test_models_that_it_is_not_for():
    deep = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=HalfNormal()), W), fmx.Layer(fmx.Gaussian(1.0), np.eye(4)))
    binary = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=HalfNormal()), W), prior=fmx.Prior(fmx.Bernoulli()))
    for model in (deep, binary):
        with pytest.raises(fmx.ArgumentError, match=r"one layer and a Gaussian prior .* for unknown scales"):
            fmx.infer(model, X)
