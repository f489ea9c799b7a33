"""Solving for the means at once: the exact posterior mean, and when it takes over from conjugate gradients."""

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.inference import accelerate, direct
from forestmix.inference.start import default_start
from forestmix.model import observations


def model_of(W, sd=0.5, prior_sd=1.5):
    return fmx.DEF(fmx.Layer(fmx.Gaussian(sd), W, 0.3), prior=fmx.Prior(fmx.Gaussian(prior_sd), bias=0.2))


def exact_mean(W, x, sd=0.5, prior_sd=1.5):
    """Return the posterior mean by least squares on the stacked system, which forms no normal equations."""
    seen = ~np.isnan(x)
    stacked = np.vstack([W[seen] / sd, np.eye(W.shape[1]) / prior_sd])
    target = np.concatenate([(x[seen] - 0.3) / sd, np.full(W.shape[1], 0.2 / prior_sd)])
    return np.linalg.lstsq(stacked, target, rcond=None)[0]


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_direct_is_the_exact_mean_of_a_batch(kind, dtype):
    rng = np.random.default_rng(0)
    W = (rng.standard_normal((30, 12)) * (rng.random((30, 12)) < 0.4)).astype(dtype)
    x = rng.standard_normal((5, 30)).astype(dtype)
    result = fmx.infer(model_of(kind(W)), x, accelerate="direct")
    assert result.converged.all()
    assert result.n_iter.max() <= 3
    want = np.array([exact_mean(W.astype(float), one.astype(float)) for one in x])
    np.testing.assert_allclose(result.mean, want, atol=1e-12 if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_direct_and_conjugate_gradients_agree(objective):
    rng = np.random.default_rng(1)
    W, x = rng.standard_normal((40, 25)), rng.standard_normal(40)
    x[3] = np.nan
    both = [fmx.infer(model_of(W), x, objective=objective, accelerate=how, tol=1e-12) for how in ("direct", "cg")]
    np.testing.assert_allclose(both[0].mean, exact_mean(W, x), atol=1e-12)
    np.testing.assert_allclose(both[0].mean, both[1].mean, atol=1e-9)
    np.testing.assert_allclose(both[0].sd, both[1].sd, rtol=1e-12)


def test_observations_that_miss_entries_of_their_own_keep_to_conjugate_gradients():
    rng = np.random.default_rng(2)
    W, x = rng.standard_normal((20, 6)), rng.standard_normal((3, 20))
    x[0, 1] = x[1, 5] = x[1, 6] = np.nan
    result = fmx.infer(model_of(W), x, accelerate="direct", tol=1e-10)
    np.testing.assert_allclose(result.mean, [exact_mean(W, one) for one in x], atol=1e-9)


def test_a_factor_takes_over_once_conjugate_gradients_have_spent_its_price(monkeypatch):
    monkeypatch.setattr(accelerate, "LEAST_PATIENCE", 0)
    monkeypatch.setattr(direct, "price", lambda problem, point: 4.5)
    rng = np.random.default_rng(3)
    # Columns nearly alike: conjugate gradients alone take many more steps than five.
    W = rng.standard_normal((60, 1)) + 1e-3 * rng.standard_normal((60, 40))
    x = rng.standard_normal(60)
    auto = fmx.infer(model_of(W, prior_sd=100.0), x, tol=1e-9)
    assert auto.converged
    assert 6 <= auto.n_iter <= 8
    np.testing.assert_allclose(auto.mean, exact_mean(W, x, prior_sd=100.0), atol=1e-5)
    assert (np.diff(auto.trace.objective) >= -1e-9 * np.abs(auto.objective)).all()


def price(model, count=1):
    data = observations(model, np.zeros((count, model.n_observed)))
    problem = fmx.ForestMixture().problem(model, data)
    return direct.price(problem, problem.evaluate(default_start(problem)))


def test_the_price_grows_with_latents_and_falls_with_observations():
    small, large = (model_of(np.ones((2000, m))) for m in (50, 500))
    assert price(small) < price(large)
    assert price(large, 200) < price(large)


def test_no_factor_of_a_matrix_that_is_too_large():
    wide = model_of(sparse.csr_array(([1.0], ([0], [0])), shape=(2, direct.LARGEST + 1)))
    assert price(wide) == np.inf
