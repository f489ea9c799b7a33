"""Solving for the means at once: the exact posterior mean, and when it takes over from conjugate gradients."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.engines.reference import ReferenceEngine
from forestmix.inference import accelerate, direct
from forestmix.model import observations
from forestmix.problem import newton_system
from forestmix.weights import as_weights, gram


def model_of(W, sd=0.5, prior_sd=1.5):
    return fmx.DEF(fmx.Layer(fmx.Gaussian(sd), W, 0.3), prior=fmx.Prior(fmx.Gaussian(prior_sd), bias=0.2))


def exact_mean(W, x, sd=0.5, prior_sd=1.5):
    """Return the posterior mean by least squares on the stacked system, which forms no normal equations."""
    seen = ~np.isnan(x)
    stacked = np.vstack([W[seen] / sd, np.eye(W.shape[1]) / prior_sd])
    target = np.concatenate([(x[seen] - 0.3) / sd, np.full(W.shape[1], 0.2 / prior_sd)])
    return np.linalg.lstsq(stacked, target, rcond=None)[0]


@pytest.mark.parametrize("shape", [(30, 12), (12, 30)], ids=["tall", "wide"])
@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_direct_is_the_exact_mean_of_a_batch(kind, dtype, shape):
    rng = np.random.default_rng(0)
    W = (rng.standard_normal(shape) * (rng.random(shape) < 0.4)).astype(dtype)
    x = rng.standard_normal((5, shape[0])).astype(dtype)
    result = fmx.infer(model_of(kind(W)), x, accelerate="direct")
    assert result.converged.all()
    assert result.n_iter.max() <= 3
    want = np.array([exact_mean(W.astype(float), one.astype(float)) for one in x])
    np.testing.assert_allclose(result.mean, want, atol=1e-12 if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize("shape", [(40, 25), (25, 40)], ids=["tall", "wide"])
@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_direct_and_conjugate_gradients_agree(objective, shape):
    rng = np.random.default_rng(1)
    W, x = rng.standard_normal(shape), rng.standard_normal(shape[0])
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
    monkeypatch.setattr(direct, "LEAST_PATIENCE", 0)
    monkeypatch.setattr(direct, "price", lambda problem, point, diagonal: 4.5)
    rng = np.random.default_rng(3)
    # Columns nearly alike: conjugate gradients alone take many more steps than five.
    W = rng.standard_normal((60, 1)) + 1e-3 * rng.standard_normal((60, 40))
    x = rng.standard_normal(60)
    auto = fmx.infer(model_of(W, prior_sd=100.0), x, tol=1e-9)
    assert auto.converged
    assert 6 <= auto.n_iter <= 8
    np.testing.assert_allclose(auto.mean, exact_mean(W, x, prior_sd=100.0), atol=1e-5)
    assert (np.diff(auto.trace.objective) >= -1e-9 * np.abs(auto.objective)).all()


def test_an_orthogonal_factor_takes_over_from_a_point_whose_rows_were_not_looked_at(monkeypatch):
    """It is affordable only once the other observation has ended; until then conjugate gradients carry the point on."""
    monkeypatch.setattr(accelerate, "SMALL", 0)
    monkeypatch.setattr(direct, "price", lambda problem, point, diagonal: 25.0)
    rng = np.random.default_rng(0)
    W = rng.standard_normal((60, 30)) * np.logspace(0, -3, 30)
    monkeypatch.setattr(newton_system, "AFFORDABLE", 1.5 * 4 * 90 * 30 * 30)
    x = np.stack([W @ np.full(30, 0.2) + 0.3, rng.standard_normal(60)])
    found = fmx.infer(model_of(W, prior_sd=1e5), x, tol=1e-9)
    assert found.converged.all()
    assert found.n_iter[1] > 25
    np.testing.assert_allclose(found.mean[1], exact_mean(W, x[1], prior_sd=1e5), rtol=1e-6)


def in_no_order(W):
    """Return W in CSR form with the entries of every row turned around."""
    matrix = sparse.csr_array(W)
    order = np.concatenate([np.arange(b - 1, a - 1, -1) for a, b in pairwise(matrix.indptr)])
    return sparse.csr_array((matrix.data[order], matrix.indices[order], matrix.indptr), shape=W.shape)


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sparse.csr_array, sparse.csc_array, in_no_order])
@pytest.mark.parametrize("density", [1.0, 0.02])
def test_both_matrices_are_those_of_their_formulas(kind, density):
    rng = np.random.default_rng(4)
    W = rng.standard_normal((60, 90)) * (rng.random((60, 90)) < density)
    kappa, precision = rng.random(60), 0.1 + rng.random(90)
    kappa[7] = 0
    R = np.sqrt(kappa)[:, None] * W / np.sqrt(precision)
    weights = as_weights(kind(W))
    for found, want in [
        (gram.precision_matrix(weights, kappa, precision), np.diag(precision) + W.T @ np.diag(kappa) @ W),
        (gram.row_matrix(weights, kappa, precision), np.eye(60) + R @ R.T),
    ]:
        np.testing.assert_allclose(np.tril(found), np.tril(want), atol=1e-12)


def at_start(model, x):
    """Return the rows, what they say at the start, and the diagonal of the matrix that a factor is made of."""
    problem = fmx.ForestMixture().problem(model, observations(model, x), ReferenceEngine())
    point = problem.evaluate(problem.default_start())
    rows, at = problem.rows, point.rows
    return rows, at, rows.prior.precision + rows.exact_information(at)


def factor_of(model, x):
    """Return the name of the function that made the factor."""
    return direct.factor(*at_start(model, x)).__qualname__.split(".")[0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_smaller_factor_is_made_where_it_keeps_its_digits(dtype, monkeypatch):
    rng = np.random.default_rng(5)
    W, x = rng.standard_normal((20, 50)).astype(dtype), rng.standard_normal(20).astype(dtype)
    assert factor_of(model_of(W), x) == "factor_of_rows"
    assert factor_of(model_of(W.T.copy()), np.zeros(50, dtype)) == "factor_of_latents"
    assert factor_of(model_of(W, prior_sd=1e6), x) == "orthogonal_step"
    monkeypatch.setattr(newton_system, "AFFORDABLE", 0)
    vague = 1e2 if dtype == np.float32 else 1e6
    assert factor_of(model_of(W, prior_sd=vague), x) == "factor_of_latents"


def test_a_vague_prior_over_few_rows_is_solved_to_rounding(monkeypatch):
    """Close to the limit, where the solution from the rows has lost most, the next steps find it again."""
    monkeypatch.setattr(newton_system, "AFFORDABLE", 0)
    rng = np.random.default_rng(6)
    W, x = rng.standard_normal((10, 40)), rng.standard_normal(10)
    model = model_of(W, sd=1e-2, prior_sd=1e2)
    assert factor_of(model, x) == "factor_of_rows"
    result = fmx.infer(model, x)
    assert result.converged
    assert result.n_iter <= 4
    np.testing.assert_allclose(result.mean, exact_mean(W, x, sd=1e-2, prior_sd=1e2), rtol=1e-6, atol=1e-9)


def price(model, count=1):
    return direct.price(*at_start(model, np.zeros((count, model.n_observed))))


def test_the_price_grows_with_latents_and_falls_with_observations():
    small, large = (model_of(np.ones((2000, m))) for m in (50, 500))
    assert price(small) < price(large)
    assert price(large, 200) < price(large)


def test_the_price_is_that_of_the_smaller_matrix():
    tall, wide = (model_of(np.ones(shape)) for shape in ((2000, 300), (300, 2000)))
    assert price(wide) == price(tall)


@pytest.mark.parametrize("vague", [False, True])
def test_no_factor_of_a_matrix_that_is_too_large(vague):
    rows = 2 if vague else direct.LARGEST + 1
    large = sparse.csr_array(([1.0], ([0], [0])), shape=(rows, direct.LARGEST + 2))
    assert price(model_of(large, prior_sd=1e7 if vague else 1.0)) == np.inf
