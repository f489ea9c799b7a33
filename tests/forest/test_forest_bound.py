"""The identity of the paper's section 4.1, and the covariance that a forest implies."""

import numpy as np
import pytest
from scipy import sparse, stats

import forestmix as fmx

ROWS = {
    "gaussian": lambda n: fmx.Gaussian(np.linspace(0.5, 2, n)),
    "bernoulli": lambda n: fmx.Bernoulli(),
    "binomial": lambda n: fmx.Binomial(np.arange(1, n + 1)),
    "poisson": lambda n: fmx.Poisson(),
}


def model_of(kind, rng, n=7, m=3, dense=True):
    W = rng.standard_normal((n, m)) * 0.6 * (rng.random((n, m)) < 0.7)
    W[2] = 0  # a row without parents
    prior = fmx.Prior(fmx.Gaussian(rng.uniform(0.5, 2, m)), rng.standard_normal(m) * 0.3)
    return fmx.DEF(
        fmx.Layer(ROWS[kind](n), W if dense else sparse.csr_array(W), rng.standard_normal(n) * 0.3), prior=prior
    )


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("dense", [True, False])
def test_elbo_of_the_forest_mixture_is_the_bound(kind, dense):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        model = model_of(kind, rng, dense=dense)
        x = model.sample(rng).x
        q = (rng.standard_normal(3) * 0.5, rng.uniform(0.2, 1, 3))
        auxiliary = fmx.optimal_auxiliary(model, q)
        forest = fmx.ForestMixtureModel.from_bound(model, q, auxiliary)
        assert forest.elbo(x, q) == pytest.approx(fmx.fm_bound(model, x, q), rel=1e-10)
        assert forest.elbo(x, q) == pytest.approx(fmx.fm_bound(model, x, q, auxiliary), rel=1e-10)
        assert fmx.ForestMixtureModel.from_bound(model, q).elbo(x, q) == pytest.approx(forest.elbo(x, q), rel=1e-12)


def test_identity_holds_for_any_auxiliary_parameters_and_missing_entries():
    rng = np.random.default_rng(5)
    W, b = rng.standard_normal((6, 3)), rng.standard_normal(6)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.8), W, b))
    x, q = model.sample(rng).x, (rng.standard_normal(3), rng.uniform(0.2, 1, 3))
    epsilon = rng.dirichlet(np.ones(3), 6)
    b_hat = rng.standard_normal((6, 3))
    b_hat += (b - (epsilon * b_hat).sum(axis=1))[:, None]
    auxiliary = fmx.Auxiliary(epsilon, b_hat)
    forest = fmx.ForestMixtureModel.from_bound(model, q, auxiliary)
    assert forest.elbo(x, q) == pytest.approx(fmx.fm_bound(model, x, q, auxiliary), rel=1e-10)
    x[1] = np.nan
    assert forest.elbo(x, q) == pytest.approx(fmx.fm_bound(model, x, q, auxiliary), rel=1e-10)
    np.testing.assert_allclose(forest.responsibilities_, epsilon)


def test_a_result_of_inference_gives_its_bound():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), fmx.windows((6, 6), 3)))
    x = model.sample(0).x
    result = fmx.infer(model, x)
    forest = fmx.ForestMixtureModel.from_bound(model, result)
    assert forest.elbo(x, result) == pytest.approx(result.fm_bound, rel=1e-10)


def fitted(rng):
    model = fmx.ForestMixtureModel.from_parameters(
        rng.standard_normal((6, 3)),
        rng.standard_normal(6),
        noise=rng.uniform(0.5, 1, 6),
        parent_prior=np.eye(3)[[0, 1, 2, 0, 1, 2]],
    )
    return model, model.get_covariance()


def test_covariance_is_that_of_the_dense_matrix():
    rng = np.random.default_rng(0)
    model, covariance = fitted(rng)
    w = model.weights_ * model.responsibilities_
    dense = w @ w.T + np.diag(model.noise_[:, 0] ** 2)
    np.testing.assert_allclose(covariance.toarray(), dense, rtol=1e-12)
    assert covariance.logdet() == pytest.approx(np.linalg.slogdet(dense)[1], rel=1e-12)
    v = rng.standard_normal((6, 2))
    np.testing.assert_allclose(covariance.solve(v), np.linalg.solve(dense, v), rtol=1e-10)
    np.testing.assert_allclose(covariance.solve(v[:, 0]), np.linalg.solve(dense, v[:, 0]), rtol=1e-10)
    np.testing.assert_allclose(covariance @ v, dense @ v, rtol=1e-12)
    assert covariance.shape == (6, 6)
    with pytest.raises(fmx.ArgumentError, match="v must be finite; got 1 entries"):
        covariance.solve([np.nan, 0, 0, 0, 0, 0])


def test_score_is_the_gaussian_density_with_and_without_missing_entries():
    rng = np.random.default_rng(1)
    model, covariance = fitted(rng)
    X = model.sample(5, rng).x
    X[1, 2] = X[1, 3] = X[4, 0] = np.nan
    mean, dense = model.biases_[:, 0], covariance.toarray()
    for x, score in zip(X, model.score_samples(X), strict=True):
        there = ~np.isnan(x)
        exact = stats.multivariate_normal.logpdf(x[there], mean[there], dense[np.ix_(there, there)])
        assert score == pytest.approx(exact, rel=1e-10)
    assert model.score(X) == pytest.approx(model.score_samples(X).mean())


def test_latents_with_missing_entries_are_the_dense_posterior():
    rng = np.random.default_rng(2)
    model, _ = fitted(rng)
    X = model.sample(3, rng).x
    X[0, :2] = np.nan
    w, sd = model.weights_ * model.responsibilities_, model.noise_[:, 0]
    for x, y in zip(X, model.transform(X), strict=True):
        o = ~np.isnan(x)
        precision = np.eye(3) + (w[o] / sd[o, None] ** 2).T @ w[o]
        np.testing.assert_allclose(
            y, np.linalg.solve(precision, w[o].T @ ((x - model.biases_[:, 0]) / sd**2)[o]), rtol=1e-9
        )


def test_covariance_of_many_variables_stays_small():
    n = 20_000
    parents = np.arange(n) % 4
    model = fmx.ForestMixtureModel.from_parameters(np.full((n, 4), 0.5), parent_prior=np.eye(4)[parents])
    assert model.get_covariance().logdet() == pytest.approx(4 * np.log(1 + n / 4 * 0.25), rel=1e-12)
