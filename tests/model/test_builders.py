"""Models from arrays, and from estimators of scikit-learn or what looks like them."""

from types import SimpleNamespace

import numpy as np
import pytest

import forestmix as fmx


def test_arrays_make_the_same_model_as_layers():
    rng = np.random.default_rng(0)
    W = [rng.standard_normal((6, 4)), rng.standard_normal((4, 2))]
    b = [rng.standard_normal(6), 0.3]
    model = fmx.from_arrays(W, b, [fmx.Poisson(), 0.5], prior=fmx.Prior(fmx.Laplace()))
    assert isinstance(model.layers[0].family, fmx.Poisson)
    assert model.layers[1].family.sd == 0.5
    assert isinstance(model.prior.family, fmx.Laplace)
    assert model.layers[0].bias == pytest.approx(b[0])
    one = fmx.from_arrays(W[0], 0.1, 0.7)
    assert one.latent_sizes == (4,)
    assert one.layers[0].family.sd == pytest.approx(0.7)
    assert fmx.from_arrays(W).latent_sizes == (4, 2)
    several = fmx.from_arrays(W, families=[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.5])
    assert several.layers[0].family.sd.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert fmx.from_arrays(W[1], families=[1.0, 2.0, 3.0, 4.0]).layers[0].family.sd.tolist() == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(fmx.ArgumentError, match="biases must have one entry for each of the 2 layers; got 3"):
        fmx.from_arrays(W, [0, 0, 0])
    with pytest.raises(fmx.ArgumentError, match="at least one W"):
        fmx.from_arrays([])


def probabilistic_pca(X, k):
    """PCA by its definition: what scikit-learn's estimator holds after fitting."""
    mean = X.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(X.T))
    order = np.argsort(values)[::-1]
    return SimpleNamespace(
        components_=vectors[:, order[:k]].T, mean_=mean, explained_variance_=values[order[:k]],
        noise_variance_=values[order[k:]].mean(),
    )  # fmt: skip


def test_pca_has_its_own_covariance():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((500, 3)) @ rng.standard_normal((3, 6)) + 0.4 * rng.standard_normal((500, 6))
    estimator = probabilistic_pca(X, 3)
    model = fmx.from_sklearn(estimator)
    W, noise = model.layers[0].weights.toarray(), estimator.noise_variance_
    covariance = np.cov(X.T)
    values, vectors = np.linalg.eigh(covariance)
    values[:3] = noise  # the smallest three, which the model takes for noise
    assert W @ W.T + noise * np.eye(6) == pytest.approx(vectors @ np.diag(values) @ vectors.T, abs=1e-10)
    result = fmx.infer(model, X[:4])
    assert result.converged.all()


def test_factor_analysis_posterior_mean():
    rng = np.random.default_rng(2)
    components, noise, mean = rng.standard_normal((2, 5)), rng.uniform(0.2, 1, 5), rng.standard_normal(5)
    model = fmx.from_sklearn(SimpleNamespace(components_=components, noise_variance_=noise, mean_=mean))
    x = rng.standard_normal(5)
    precision = np.eye(2) + (components / noise) @ components.T
    expected = np.linalg.solve(precision, (components / noise) @ (x - mean))
    assert fmx.infer(model, x, tol=1e-12).mean == pytest.approx(expected, abs=1e-10)


def test_against_scikit_learn_itself():
    decomposition = pytest.importorskip("sklearn.decomposition")
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 7)) + 0.5 * rng.standard_normal((300, 7))
    for estimator in (decomposition.FactorAnalysis(3), decomposition.PCA(3)):
        estimator.fit(X)
        model = fmx.from_sklearn(estimator)
        assert fmx.log_evidence(model, X[:5]) == pytest.approx(estimator.score_samples(X[:5]), abs=1e-6)
        if hasattr(estimator, "loglike_"):
            assert fmx.infer(model, X[:5], tol=1e-10).mean == pytest.approx(estimator.transform(X[:5]), abs=1e-7)


def test_what_is_not_fitted_is_refused():
    with pytest.raises(fmx.ArgumentError, match="has no components_"):
        fmx.from_sklearn(object())
    whole = SimpleNamespace(components_=np.eye(3), noise_variance_=0.0, mean_=np.zeros(3))
    with pytest.raises(fmx.ArgumentError, match="noise variance above 0"):
        fmx.from_sklearn(whole)
