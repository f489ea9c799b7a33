"""The posterior to report: exact for Gaussian rows, quadrature for others; batches, deep models, mixtures."""

import numpy as np
import pytest
from scipy import special, stats

import forestmix as fmx
from forestmix.posterior.component import Component
from forestmix.posterior.covariance import DiagonalCovariance, FactoredCovariance
from forestmix.weights import as_weights
from posterior.test_covariance import check_draws
from support import deep_oracles, known_models, oracles
from support.posterior_models import ROWS, count_model


@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_gaussian_rows_give_the_exact_posterior(objective):
    rng = np.random.default_rng(0)
    model, x, mean, covariance, mean_field = known_models.model_of(rng.standard_normal((9, 5)), rng)
    result = fmx.infer(model, x, objective=objective, tol=1e-3)
    posterior = result.posterior()
    assert posterior.mean == pytest.approx(mean, rel=1e-10), "whatever tol the run had"
    assert posterior.sd == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-12)
    assert posterior.covariance() == pytest.approx(covariance, rel=1e-10, abs=1e-13)
    assert posterior.sd_error is None
    assert posterior.log_evidence == posterior.elbo == pytest.approx(fmx.log_evidence(model, x), abs=1e-9)
    assert (posterior.sd > mean_field).all(), "mean field is too narrow, so this test can tell them apart"
    low, high = posterior.interval(0.8)
    assert low == pytest.approx(stats.norm.ppf(0.1, mean, np.sqrt(np.diag(covariance))))
    assert high == pytest.approx(stats.norm.ppf(0.9, mean, np.sqrt(np.diag(covariance))))
    assert posterior.kind == "corrected"
    assert posterior.scales == {}


def test_draws_have_the_right_correlations():
    rng = np.random.default_rng(1)
    model, x, mean, covariance, _ = known_models.model_of(rng.standard_normal((9, 5)), rng)
    posterior = fmx.infer(model, x).posterior()
    draws = posterior.sample(100_000, rng=3)
    check_draws(draws - mean, covariance)
    assert (posterior.sample(4, rng=3) == posterior.sample(4, rng=3)).all()
    assert posterior.sample(rng=3).shape == (5,)


def test_the_factorised_kind_is_q():
    rng = np.random.default_rng(2)
    model, x, *_ = known_models.model_of(rng.standard_normal((9, 5)), rng)
    result = fmx.infer(model, np.stack([x, x + 1]))
    posterior = result.posterior("factorised")
    assert (posterior.mean == result.mean).all()
    assert posterior.sd == pytest.approx(result.sd, rel=1e-15)
    assert posterior.interval(0.9)[0] == pytest.approx(result.layers[0].interval(0.9)[0])
    assert posterior.correlation[0] == pytest.approx(np.eye(5))
    assert posterior.elbo == pytest.approx(result.elbo, rel=1e-9)
    assert posterior.log_evidence is None
    assert posterior.take(1).mean == pytest.approx(result.mean[1])


@pytest.mark.parametrize("prior", [fmx.Laplace(0.5), fmx.Bernoulli(), fmx.SpikeSlab(0.4), fmx.Exponential(1.0)])
def test_latents_that_are_not_gaussian_have_their_factors(prior):
    rng = np.random.default_rng(3)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), rng.standard_normal((12, 4))), prior=fmx.Prior(prior))
    result = fmx.infer(model, model.sample(rng, 2).x)
    posterior = result.posterior("factorised")
    low, high = result.layers[0].interval(0.8)
    assert posterior.interval(0.8)[0] == pytest.approx(low)
    assert posterior.interval(0.8)[1] == pytest.approx(high)
    draws = posterior.sample(20_000, rng=0)
    assert draws.shape == (20_000, 2, 4)
    assert np.abs(draws.mean(axis=0) - result.mean) == pytest.approx(0, abs=0.05)
    assert posterior.take(0).sample(7, rng=0).shape == (7, 4)
    assert posterior.take(0).check(rng=0).pareto_k == {}
    for call in (result.posterior, posterior.loo):
        with pytest.raises(fmx.ArgumentError, match=r"needs Gaussian latents; .* kind='factorised'"):
            call()


def grid_posterior(model, x, width=7.0, points=401):
    """Mean and sd of two latents by a sum over a fine grid, and the log evidence."""
    prior_sd = np.broadcast_to(model.prior.family.sd, 2)
    centre = np.broadcast_to(model.prior.bias, 2)
    axes = [c + s * np.linspace(-width, width, points) for c, s in zip(centre, prior_sd, strict=True)]
    y = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    layer = model.layers[0]
    eta = y @ layer.weights.toarray().T + layer.bias
    log_p = {
        "bernoulli": lambda: special.log_expit((2 * x - 1) * eta),
        "binomial": lambda: stats.binom(7, special.expit(eta)).logpmf(x),
        "poisson": lambda: stats.poisson(np.exp(eta)).logpmf(x),
    }[layer.family.name]()
    joint = np.sum(log_p, axis=1) + np.sum(stats.norm.logpdf(y, centre, prior_sd), axis=1)
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    p = special.softmax(joint)
    mean = p @ y
    return mean, np.sqrt(p @ (y - mean) ** 2), special.logsumexp(joint) + np.log(cell)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("seed", range(3))
def test_means_are_corrected(name, seed):
    """Two correlated latents against a grid: closer than q, and the bound is tighter."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((25, 1)) + 0.4 * rng.standard_normal((25, 2))
    model = fmx.DEF(fmx.Layer(ROWS[name], 0.7 * W), prior=fmx.Prior(fmx.Gaussian([1.0, 1.5]), 0.2))
    x = model.sample(rng).x
    result = fmx.infer(model, x, tol=1e-9)
    posterior = result.posterior()
    mean, sd, evidence = grid_posterior(model, x)
    ours, theirs = (np.max(np.abs(one.mean - mean) / sd) for one in (posterior, result))
    assert ours < 0.05
    assert ours < theirs
    assert posterior.sd == pytest.approx(sd, rel=0.05)
    assert result.elbo < posterior.elbo < evidence
    assert evidence - posterior.elbo < 0.05


@pytest.mark.parametrize("shared", [True, False])
def test_batches(shared, monkeypatch):
    rng = np.random.default_rng(5)
    W = rng.standard_normal((8, 4))
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W))
    x = model.sample(rng, 40).x
    if not shared:
        x[1, :5] = np.nan
        x[7] = np.nan
    calls = []
    made = FactoredCovariance.__init__
    monkeypatch.setattr(
        FactoredCovariance, "__init__", lambda *given, **named: calls.append(1) or made(*given, **named)
    )
    posterior = fmx.infer(model, x).posterior()
    assert len(calls) == (1 if shared else 3), "one factor for each pattern of missing entries"
    for k in (0, 1, 7, 39):
        seen = ~np.isnan(x[k])
        mean, covariance = oracles.posterior(W[seen], 0.0, 0.5, 0.0, 1.0, x[k, seen])
        assert posterior.mean[k] == pytest.approx(mean, abs=1e-10)
        assert posterior.sd[k] == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-12)
        one = posterior.take(k)
        assert one.covariance() == pytest.approx(covariance, abs=1e-12)
        assert one.log_evidence == pytest.approx(posterior.log_evidence[k], abs=1e-9)
        assert one.log_evidence == pytest.approx(fmx.log_evidence(model, x[k]), abs=1e-9)
    assert posterior.sample(3, rng=0).shape == (3, 40, 4)
    assert posterior.take([3, 5]).mean.shape == (2, 4)
    with pytest.raises(fmx.ArgumentError, match="keep must be one or more of the 40"):
        posterior.take(40)
    with pytest.raises(fmx.ForestmixError, match=r"use posterior.take\(k\)"):
        posterior.summary()


@pytest.mark.parametrize("depth", [2, 3])
def test_deep_models_are_exact_in_every_layer(depth):
    rng = np.random.default_rng(7)
    model, arrays = deep_oracles.deep_gaussian(rng, depth)
    x = model.sample(rng).x
    mean, covariance, evidence = deep_oracles.deep_posterior(*arrays, x)
    posterior = fmx.infer(model, x, tol=1e-5).posterior()
    parts = np.cumsum([0, *model.latent_sizes])
    for k, layer in enumerate(posterior.layers):
        part = slice(parts[k], parts[k + 1])
        assert layer.mean == pytest.approx(mean[part], abs=1e-9)
        assert layer.sd == pytest.approx(np.sqrt(np.diag(covariance)[part]), rel=1e-9)
        assert layer.covariance() == pytest.approx(covariance[part, part], abs=1e-9)
        assert layer.interval(0.5)[1] == pytest.approx(stats.norm.ppf(0.75, layer.mean, layer.sd))
        assert layer.sample(6, rng=0).shape == (6, model.latent_sizes[k])
    draws = np.concatenate(posterior.sample(60_000, rng=1), axis=1)
    check_draws(draws - mean, covariance)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-8)
    W, block = arrays[0][0], covariance[: parts[1], : parts[1]]
    assert posterior.predict().eta_sd == pytest.approx(np.sqrt(np.diag(W @ block @ W.T)), rel=1e-9)
    with pytest.raises(fmx.ForestmixError, match=r"Use posterior.layers\[k\].mean"):
        _ = posterior.mean
    assert posterior.check(rng=0).passed
    assert len(posterior.summary(layer=depth - 1)) == model.latent_sizes[-1]


def test_deep_models_with_other_rows_and_batches():
    rng = np.random.default_rng(8)
    lower = fmx.Layer(fmx.Poisson(), 0.4 * rng.standard_normal((20, 5)), 0.5)
    model = fmx.DEF(lower, fmx.Layer(fmx.Gaussian(0.6), rng.standard_normal((5, 2))))
    x = model.sample(rng, 3).x
    result = fmx.infer(model, x)
    posterior = result.posterior()
    assert (posterior.elbo > result.elbo).all()
    assert posterior.layers[1].mean.shape == (3, 2)
    assert posterior.take(1).layers[0].mean == pytest.approx(posterior.layers[0].mean[1])
    assert len(posterior.loo().pointwise) == 60


def two_components():
    rng = np.random.default_rng(9)
    W = rng.standard_normal((6, 3))
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W))
    x = model.sample(rng).x
    parts, exact = [], []
    for sd in (0.4, 0.9):
        mean, covariance = oracles.posterior(W, 0.0, sd, 0.0, 1.0, x)
        kept = FactoredCovariance(as_weights(W), np.full(6, sd**-2), np.ones(3))
        parts.append(Component(mean, kept, fmx.Layer(fmx.Gaussian(sd), W)))
        exact.append((mean, covariance))
    data = fmx.infer(model, x).data
    return fmx.Posterior(parts, [0.25, 0.75], model, data, "corrected", log_evidence=-3.0), exact


def test_mixtures_have_total_moments_and_their_own_quantiles():
    posterior, ((first, one), (second, two)) = two_components()
    mean = 0.25 * first + 0.75 * second
    covariance = 0.25 * (one + np.outer(first - mean, first - mean)) + 0.75 * (
        two + np.outer(second - mean, second - mean)
    )
    assert posterior.mean == pytest.approx(mean)
    assert posterior.sd == pytest.approx(np.sqrt(np.diag(covariance)))
    assert posterior.covariance() == pytest.approx(covariance)
    low, high = posterior.interval(0.9)
    for end, p in ((low, 0.05), (high, 0.95)):
        below = 0.25 * stats.norm.cdf(end, first, np.sqrt(np.diag(one)))
        below += 0.75 * stats.norm.cdf(end, second, np.sqrt(np.diag(two)))
        assert below == pytest.approx(np.full(3, p), abs=1e-12)
    draws = posterior.sample(100_000, rng=0)
    assert np.cov(draws.T) == pytest.approx(covariance, rel=0.05, abs=0.01)
    assert posterior.log_evidence == -3.0
    assert "2 components" in repr(posterior)


def test_leaving_out_under_a_mixture_weighs_the_components_anew():
    posterior, _ = two_components()
    W, x = posterior.model.layers[0].weights.toarray(), posterior.data.x[0]
    found = posterior.loo().pointwise
    for i in range(6):
        rest = np.arange(6) != i
        each = []
        for sd in (0.4, 0.9):
            mean, covariance = oracles.posterior(W[rest], 0.0, sd, 0.0, 1.0, x[rest])
            each.append(stats.norm.pdf(x[i], W[i] @ mean, np.sqrt(W[i] @ covariance @ W[i] + sd**2)))
        assert found[i] == pytest.approx(-np.log(0.25 / each[0] + 0.75 / each[1]), rel=1e-9)


@pytest.mark.parametrize("name", ["sample", "interval", "predict", "corrected_sd"])
def test_what_left_result_says_where_it_went(name):
    result = fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(), np.eye(3))), np.ones(3))
    with pytest.raises(fmx.ForestmixError, match=rf"result.{name} is gone, .* Use result.posterior\(\)"):
        getattr(result, name)(3, level=0.9)


@pytest.mark.parametrize(("noise", "ratio"), [(0.1, "10"), (1.0, None), (6.0, "0.17")])
def test_a_noise_sd_far_from_the_residuals_is_said(noise, ratio):
    rng = np.random.default_rng(0)
    W = rng.standard_normal((500, 3))
    x = W @ [1.0, -1.0, 0.5] + rng.standard_normal(500)
    x[:20] = np.nan
    for data in (x, np.stack([x, x])):
        result = fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(noise), W)), data)
        found = "residuals are" in result.message
        assert found == (ratio is not None)
        assert not found or f"residuals are {ratio} times" in result.message


def test_many_latents_may_fit_the_noise_without_a_word():
    rng = np.random.default_rng(1)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), rng.standard_normal((30, 60))))
    assert "residuals" not in fmx.infer(model, model.sample(rng).x).message


def test_repr_and_counts():
    rng = np.random.default_rng(4)
    model = count_model(ROWS["poisson"], rng)
    posterior = fmx.infer(model, model.sample(rng, 2).x).posterior()
    assert repr(posterior) == "<Posterior (corrected) of 6 latents, 2 observations, float64>"
    assert "6 latents" in repr(posterior.layers[0])


def test_a_diagonal_component_is_not_left_out():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(), np.eye(3)))
    result = fmx.infer(model, np.ones(3))
    part = Component(result.mean, DiagonalCovariance(result.sd**2), model.layers[0])
    with pytest.raises(fmx.ForestmixError, match="knows the curvature of each row"):
        fmx.Posterior([part], [1.0], model, result.data, "full").loo()
