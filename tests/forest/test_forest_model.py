"""Sampling, the ELBO and inference with parameters given, held to enumeration."""

import numpy as np
import pytest
from scipy import optimize, special, stats

import forestmix as fmx
from support.forest_models import log_evidence, log_given_parents, small

FAMILIES = ("gaussian", "bernoulli", "poisson")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("parents", ["shared", "observation"])
def test_elbo_is_below_the_exact_evidence(family, parents):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        model = small(family, rng, parents=parents)
        X = model.sample(3, rng).x
        posterior = model.infer(X)
        assert posterior.converged
        exact = log_evidence(model, X)
        assert posterior.elbo <= exact + 1e-9
        assert posterior.elbo > exact - 6, "a bound that is far off is of no use"
        assert np.all(np.diff(posterior.elbo_trace) >= -1e-9)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("parents", ["shared", "observation"])
def test_elbo_is_below_the_exact_evidence_with_missing_entries(family, parents):
    rng = np.random.default_rng(4)
    model = small(family, rng, parents=parents)
    X = model.sample(3, rng).x
    X[0, 1] = X[1, 0] = X[2, 3] = np.nan
    assert model.infer(X).elbo <= log_evidence(model, X) + 1e-9


def test_elbo_is_exact_where_the_forest_is_known():
    rng = np.random.default_rng(0)
    model = fmx.ForestMixtureModel.from_parameters(
        rng.standard_normal((5, 2)), noise=0.7, parent_prior=np.eye(2)[[0, 1, 0, 1, 0]]
    )
    X = model.sample(4, rng).x
    X[1, 2] = np.nan
    exact = sum(log_given_parents(model, x, (0, 1, 0, 1, 0)) for x in X)
    assert model.elbo(X) == pytest.approx(exact, rel=1e-9)
    assert model.score_samples(X).sum() == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_scores_of_other_families_are_the_integrals_over_the_latents(family):
    rng = np.random.default_rng(1)
    model = small(family, rng, n=5)
    X = model.sample(6, rng).x
    X[2, 1] = np.nan
    exact = [log_given_parents(model, x, tuple(model.parents_)) for x in X]
    np.testing.assert_allclose(model.score_samples(X), exact, rtol=1e-7)


def test_steep_leaves_settle_at_the_best_factors():
    """Plain steps go too far here, each about as far as the last; where they settle, no slope of the ELBO is left."""
    nodes, chances = np.polynomial.hermite_e.hermegauss(200)
    x = np.ones(8)
    model = fmx.ForestMixtureModel.from_parameters(np.full((8, 1), 6.0), family="bernoulli", parents="observation")
    posterior = model.infer(np.stack([x, 1 - x]), tol=1e-12, max_iter=200)
    assert posterior.converged
    for mean, sd, sign in zip(posterior.mean[:, 0], posterior.sd[:, 0], (1, -1), strict=True):
        miss = special.expit(-sign * 6 * (mean + sd * nodes)) * chances / chances.sum()
        assert 48 * sign * miss.sum() - mean == pytest.approx(0, abs=1e-8)
        # By Stein's identity the slope in sd is -6 sum_i E z sigma(-eta) - sd + 1 / sd, for eta = sign 6 (mean + sd z).
        assert 48 * sign * (nodes * miss).sum() - sd + 1 / sd == pytest.approx(0, abs=1e-8)
    result = optimize.minimize(
        lambda q: (
            8 * (np.logaddexp(0, -6 * (q[0] + q[1] * nodes)) * chances).sum() / chances.sum()
            + 0.5 * (q[0] ** 2 + q[1] ** 2 - 1)
            - np.log(q[1])
        ),
        (1.0, 0.5),
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-13},
    )
    assert posterior.elbo == pytest.approx(-2 * result.fun, rel=1e-9)


def test_elbo_at_given_factors_is_its_definition():
    rng = np.random.default_rng(2)
    model = small("gaussian", rng)
    X = model.sample(3, rng).x
    mean, sd = rng.standard_normal((3, 2)), rng.uniform(0.3, 1, (3, 2))
    w, b, noise, r = model.weights_, model.biases_, model.noise_, model.responsibilities_
    expected = 0.0
    for s in range(3):
        for i in range(4):
            for j in range(2):
                square = (X[s, i] - b[i, j] - w[i, j] * mean[s, j]) ** 2 + (w[i, j] * sd[s, j]) ** 2
                expected += r[i, j] * (-0.5 * np.log(2 * np.pi * noise[i, j] ** 2) - square / (2 * noise[i, j] ** 2))
        expected -= np.sum(0.5 * (mean[s] ** 2 + sd[s] ** 2 - 1) - np.log(sd[s]))
    assert model.elbo(X, (mean, sd)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("parents", ["shared", "observation"])
def test_inferred_factors_cannot_be_bettered(parents):
    """Both steps at their fixed point: q(e) ∝ pi exp E log p_hat, and no other q(y) near is higher."""
    rng = np.random.default_rng(3)
    model = small("gaussian", rng, parents=parents)
    X = model.sample(1, rng).x
    posterior = model.infer(X, tol=1e-14, max_iter=2000)
    square = (X[0][:, None] - model.biases_ - model.weights_ * posterior.mean[0]) ** 2
    square = square + (model.weights_ * posterior.sd[0]) ** 2
    logits = np.log(model.parent_prior_) - np.log(model.noise_) - square / (2 * model.noise_**2)
    best = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(posterior.responsibilities, best, atol=1e-6)
    precision = 1 + np.sum(best * model.weights_**2 / model.noise_**2, axis=0)
    mean = np.sum(best * model.weights_ * (X[0][:, None] - model.biases_) / model.noise_**2, axis=0) / precision
    np.testing.assert_allclose(posterior.mean[0], mean, atol=1e-5)
    np.testing.assert_allclose(posterior.sd[0], precision**-0.5, atol=1e-6)


def test_drawn_parents_have_the_prior_as_frequencies():
    rng = np.random.default_rng(0)
    model = small("gaussian", rng, n=3, m=3, parents="observation")
    draw = model.sample(40_000, rng)
    assert draw.parents.shape == draw.x.shape
    for i in range(3):
        counts = np.bincount(draw.parents[:, i], minlength=3)
        assert stats.chisquare(counts, model.parent_prior_[i] * 40_000).pvalue > 1e-4
        for j in range(3):
            x = draw.x[draw.parents[:, i] == j, i]
            sd = np.hypot(model.weights_[i, j], model.noise_[i, j])
            assert stats.kstest(x, stats.norm(model.biases_[i, j], sd).cdf).pvalue > 1e-4


def test_a_shared_forest_is_drawn_once():
    model = small("poisson", np.random.default_rng(0))
    draws = [model.sample(5, seed) for seed in range(3000)]
    assert draws[0].parents.shape == (4,)
    frequency = np.mean([np.eye(2)[draw.parents] for draw in draws], axis=0)
    np.testing.assert_allclose(frequency, model.parent_prior_, atol=0.05)


def test_parents_that_are_impossible_are_never_drawn():
    model = fmx.ForestMixtureModel.from_parameters(np.ones((2, 3)), parent_prior=[[0, 1, 0], [0.5, 0, 0.5]])
    parents = np.array([model.sample(1, seed).parents for seed in range(200)])
    assert set(parents[:, 0]) == {1}
    assert set(parents[:, 1]) == {0, 2}
