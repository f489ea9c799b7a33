"""Covariances by draws: honest errors, certified functionals, draws with the right correlations."""

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.model import Prior
from forestmix.posterior import iterative, kinds
from forestmix.posterior.iterative import IterativeCovariance, PrecisionSystem, certified_variances
from forestmix.weights import as_weights, blocks
from posterior.test_covariance import check_draws
from support import deep_oracles
from support.posterior_models import ROWS, count_model


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """No factors, however few the latents."""
    monkeypatch.setattr(kinds, "FACTOR_LIMIT", 0)
    monkeypatch.setattr(kinds, "ROW_FACTOR_LIMIT", 0)


def sparse_case(seed=0, n=600, m=300, density=0.02):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((n, m)) * (rng.random((n, m)) < density)
    kappa, scale = rng.uniform(0.05, 0.25, n), rng.uniform(0.5, 2, m)
    exact = np.linalg.inv(np.diag(scale**-2) + W.T * kappa @ W)
    return sparse.csr_array(W), kappa, scale, Prior(fmx.Gaussian(scale)).variance_of, exact


def test_the_stated_errors_are_honest():
    W, kappa, scale, prior, exact = sparse_case()
    covariance = IterativeCovariance(as_weights(W), kappa, scale, prior, tol=0.02, rng=1)
    sd, error = np.sqrt(covariance.variance()), covariance.sd_error()
    assert np.median(error / sd) <= 0.02
    score = (sd - np.sqrt(np.diag(exact))) / error
    assert 0.85 < np.std(score) < 1.15
    assert np.abs(score).max() < 5.5, "of 300"
    assert np.sum(np.abs(sd / np.sqrt(np.diag(exact)) - 1)) < 300 * 0.03


def test_the_same_seed_gives_the_same_and_a_smaller_tol_more_draws():
    W, kappa, scale, prior, _ = sparse_case()
    first, again, other, fine = (
        IterativeCovariance(as_weights(W), kappa, scale, prior, tol, seed)
        for tol, seed in ((0.05, 1), (0.05, 1), (0.05, 2), (0.02, 1))
    )
    assert (first.variance() == again.variance()).all()
    assert (first.variance() != other.variance()).any()
    fine.variance()
    assert fine._count > 2 * first._count


def test_draws_have_the_right_covariance():
    W, kappa, scale, prior, exact = sparse_case(3, 60, 8, 0.5)
    covariance = IterativeCovariance(as_weights(W), kappa, scale, prior)
    check_draws(covariance.sample(50_000, np.random.default_rng(0)), exact)


@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-10])
def test_functionals_come_from_below_and_within_tol(tol, monkeypatch):
    monkeypatch.setattr(blocks, "MEMORY_BUDGET", 50_000)
    W, kappa, scale, prior, exact = sparse_case(1, 60, 40, 0.3)
    system = PrecisionSystem(as_weights(W), kappa, scale, prior)
    C = np.random.default_rng(0).standard_normal((20, 40))
    C[3] = 0
    right = np.diag(C @ exact @ C.T)
    found = certified_variances(system, as_weights(C), tol)
    assert (found <= right * (1 + 1e-12)).all()
    assert (found >= right * (1 - tol) - 1e-300).all()
    if tol == 1e-2:
        assert (found < right * (1 - 1e-8)).any(), "tol is used"


def test_covariances_and_solutions():
    W, kappa, scale, prior, exact = sparse_case(2, 60, 40, 0.3)
    covariance = IterativeCovariance(as_weights(W), kappa, scale, prior)
    C = np.random.default_rng(1).standard_normal((4, 40))
    assert covariance.covariance(as_weights(C)) == pytest.approx(C @ exact @ C.T, rel=1e-5, abs=1e-5)
    assert covariance.solve(C) == pytest.approx(C @ exact, rel=1e-4, abs=1e-5)
    assert covariance.log_determinant() is None


def test_many_functionals_come_from_draws(monkeypatch):
    monkeypatch.setattr(iterative, "MANY_FUNCTIONALS", 10)
    W, kappa, scale, prior, exact = sparse_case(2, 60, 40, 0.3)
    covariance = IterativeCovariance(as_weights(W), kappa, scale, prior)
    C = np.random.default_rng(1).standard_normal((200, 40))
    ratio = covariance.quadratic(as_weights(C)) / np.diag(C @ exact @ C.T)
    assert np.abs(ratio - 1).max() < 5 * np.sqrt(2 / 256)


@pytest.mark.parametrize("name", ROWS)
def test_a_posterior_of_each_family_both_ways(name, monkeypatch):
    rng = np.random.default_rng(4)
    model = count_model(ROWS[name], rng)
    x = model.sample(rng, 2).x
    x[1, :4] = np.nan
    result = fmx.infer(model, x)
    posterior = result.posterior(tol=0.01)
    assert (posterior.mean == result.mean).all(), "without a factor the means are those of q"
    monkeypatch.setattr(kinds, "FACTOR_LIMIT", 100)
    exact = result.posterior().sd
    assert (np.abs(posterior.sd - exact) <= 5 * posterior.sd_error).all()
    assert posterior.elbo is None


def test_deep_models_without_a_factor():
    rng = np.random.default_rng(9)
    model, arrays = deep_oracles.deep_gaussian(rng, 3)
    result = fmx.infer(model, model.sample(rng).x, tol=1e-11)
    _, covariance, _ = deep_oracles.deep_posterior(*arrays, result.data.x[0])
    m = model.latent_sizes[0]
    posterior = result.posterior()
    assert posterior.layers[0].variance(np.eye(m)) == pytest.approx(np.diag(covariance)[:m], rel=1e-4)
    for layer, part in zip(
        posterior.layers, np.split(np.diag(covariance), np.cumsum(model.latent_sizes)), strict=False
    ):
        assert (np.abs(layer.sd - np.sqrt(part)) <= 5 * layer.sd_error).all()


def test_progress_shows_a_bar(capsys):
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.eye(3)))
    sd = fmx.infer(model, np.ones(3)).posterior(progress=True).sd
    assert sd == pytest.approx(np.full(3, 0.5**0.5), rel=1e-12), "independent latents have nothing to estimate"
    assert "posterior draws" in capsys.readouterr().out


def test_out_of_reach_is_said(monkeypatch):
    monkeypatch.setattr(iterative, "MOST_ITERATIONS", 200)
    W = np.hstack([np.ones((4, 1)), np.ones((4, 1)) + 1e-9 * np.arange(4)[:, None]])
    scale = np.full(2, 1e9)
    system = PrecisionSystem(as_weights(W), np.full(4, 1e24), scale, Prior(fmx.Gaussian(1e9)).variance_of)
    with pytest.raises(fmx.ForestmixError, match=r"did not reach tol=1e-06 .* the worst, number .* Raise tol"):
        certified_variances(system, as_weights(np.eye(2)), 1e-6)
    with pytest.raises(fmx.ForestmixError, match=r"did not solve for .* draws"):
        iterative.solutions(system, np.ones((3, 2)), 1e-20)
