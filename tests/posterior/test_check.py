"""The verdict on a posterior: Pareto fits against SciPy, evidence against exact values, flags on real data."""

import numpy as np
import pytest
from scipy import special, stats
from sklearn.datasets import load_breast_cancer

import forestmix as fmx
from forestmix.posterior.importance import generalised_pareto, smoothed
from forestmix.posterior.predictive_check import discrepancies
from support import known_models


@pytest.mark.parametrize("k", [-0.3, 0.1, 0.5, 0.9, 1.5])
def test_the_fit_recovers_the_shape_and_scale(k):
    fits = [generalised_pareto(stats.genpareto(k, scale=2.0).rvs(2000, random_state=seed)) for seed in range(40)]
    shapes, scales = np.array(fits).T
    # The ten pseudo-observations at 0.5 are part of the estimate.
    expected = (2000 * k + 5) / 2010
    assert shapes.mean() == pytest.approx(expected, abs=4 * shapes.std() / np.sqrt(40) + 0.01)
    assert np.median(scales) == pytest.approx(2.0, rel=0.03)


@pytest.mark.parametrize("k", [-0.5, 0.0, 0.4])
def test_the_tail_has_the_quantiles_of_its_fit(k):
    weights = np.sort(1 + stats.genpareto(k, scale=3.0).rvs(1000, random_state=0))
    tail, found = 95, smoothed(np.log(weights)).log_weights
    cutoff, p = weights[-tail - 1], (np.arange(tail) + 0.5) / tail
    shape, scale = generalised_pareto((weights[-tail:] - cutoff) / weights[-1])
    quantiles = cutoff + stats.genpareto(shape, scale=scale * weights[-1]).ppf(p)
    np.testing.assert_allclose(np.exp(found), [*weights[:-tail], *np.minimum(quantiles, weights[-1])], rtol=1e-9)


@pytest.mark.parametrize(("width", "k"), [(1.5, 0.0), (0.8, 0.36), (0.6, 0.64)])
def test_k_of_a_normal_proposal_is_what_theory_says(width, k):
    """Weights of N(0, 1) over N(0, s^2) have a tail of shape 1 - s^2, and a bounded one for s > 1."""
    rng = np.random.default_rng(0)
    found, means = [], []
    for _ in range(20):
        y = width * rng.standard_normal(40_000)
        fit = smoothed(stats.norm.logpdf(y) - stats.norm.logpdf(y, scale=width) + 3.0)
        found.append(fit.k)
        means.append(fit.log_mean)
    if width > 1:
        assert max(found) < 0.3
    else:
        assert np.mean(found) == pytest.approx(k, abs=0.15)
    assert np.mean(means) == pytest.approx(3.0, abs=0.02)


def test_equal_weights_have_no_tail():
    fit = smoothed(np.full(1000, -7.0))
    assert fit.k == -np.inf
    assert fit.log_mean == pytest.approx(-7.0)
    assert smoothed(np.full(1000, -np.inf)).k == np.inf


def test_gaussian_rows_are_exact():
    rng = np.random.default_rng(0)
    model, x, *_ = known_models.model_of(rng.standard_normal((40, 5)), rng)
    found = fmx.infer(model, x).posterior().check()
    evidence = fmx.log_evidence(model, x)
    assert found.passed
    assert found.verdict.startswith("Exact")
    assert found.log_evidence == pytest.approx(evidence, abs=1e-8)
    assert found.elbo == pytest.approx(evidence, abs=1e-8)
    assert found.factorised_elbo < evidence
    assert found.mean_shift == pytest.approx(0, abs=1e-4)
    assert found.sd_ratio > 1


def test_the_evidence_of_logistic_rows_against_a_grid():
    rng = np.random.default_rng(1)
    W = rng.standard_normal((40, 2))
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), W))
    x = model.sample(rng).x
    grid = np.linspace(-7, 7, 561)
    y = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    joint = np.sum(special.log_expit((2 * x - 1) * (y @ W.T)), axis=1) + np.sum(stats.norm.logpdf(y), axis=1)
    exact = special.logsumexp(joint) + 2 * np.log(grid[1] - grid[0])
    for kind in ("corrected", "factorised"):
        found = fmx.infer(model, x).posterior(kind).check(rng=2)
        assert abs(found.log_evidence - exact) < 5 * found.log_evidence_error
        assert found.elbo < exact


def test_a_factorised_q_is_flagged():
    rng = np.random.default_rng(2)
    W = rng.standard_normal((40, 1)) + 0.2 * rng.standard_normal((40, 3))
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W))
    found = fmx.infer(model, model.sample(rng).x).posterior("factorised").check()
    assert not found.passed
    assert "times too small here: use posterior()" in found.advice[0]
    assert list(found.pareto_k) == ["factorised q"]


def standardised(columns):
    columns = np.asarray(columns, float)
    return np.c_[np.ones(len(columns)), (columns - columns.mean(axis=0)) / columns.std(axis=0)]


def test_breast_cancer_means_are_flagged():
    data = load_breast_cancer()
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), standardised(data.data)))
    found = fmx.infer(model, data.target.astype(float)).posterior().check()
    assert not found.passed
    assert "Means of a factorised q are off here" in found.advice[0]
    assert "covariance='full'" in found.advice[0]
    assert found.pareto_k["factorised q"] > 0.7 > found.pareto_k["corrected posterior"]
    assert found.factorised_elbo < found.elbo < found.log_evidence
    assert "Pareto k-hat" in repr(found)


def test_affairs_and_doctor_visits_are_not_flagged():
    datasets = pytest.importorskip("statsmodels.datasets")
    affairs = datasets.fair.load_pandas().data
    visits = datasets.randhie.load_pandas().data
    cases = [
        (fmx.Bernoulli(), affairs.drop(columns="affairs"), affairs.affairs > 0),
        (fmx.Poisson(), visits.drop(columns="mdvis"), visits.mdvis),
    ]
    for family, columns, x in cases:
        model = fmx.DEF(fmx.Layer(family, standardised(columns)))
        found = fmx.infer(model, np.asarray(x, float)).posterior().check(size=400)
        assert found.passed, found
        assert found.verdict.startswith("To be trusted")
    assert "share of zeros" in found.misfit, "but counts of visits are not Poisson, and the check says so"
    assert "does not fit" in found.verdict


def test_predictive_p_values_against_another_simulation():
    """With the latents known the replicates are independent draws, whose statistics are simulated with SciPy."""
    rng = np.random.default_rng(3)
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), np.zeros((60, 1)), 0.7))
    x = rng.poisson(np.exp(0.7), 60).astype(float)
    found = discrepancies(fmx.infer(model, x).posterior(), np.random.default_rng(0), 20_000)
    drawn = rng.poisson(np.exp(0.7), (20_000, 60))
    for name, statistic in (
        ("mean", lambda v: v.mean(axis=-1)),
        ("sd", lambda v: v.std(axis=-1)),
        ("largest", lambda v: v.max(axis=-1)),
        ("share of zeros", lambda v: (v == 0).mean(axis=-1)),
    ):
        values, own = statistic(drawn), statistic(x)
        equal = np.isclose(values, own, rtol=1e-9, atol=0)
        right = np.mean(np.where(equal, 0.5, values > own))
        assert found[name].p_value == pytest.approx(right, abs=0.02)
        assert found[name].observed == pytest.approx(own)


def test_missing_entries_and_batches():
    rng = np.random.default_rng(4)
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), 0.5 * rng.standard_normal((50, 3))))
    x = model.sample(rng, 2).x
    x[1, :20] = np.nan
    posterior = fmx.infer(model, x).posterior()
    with pytest.raises(fmx.ForestmixError, match=r"use posterior.take\(k\)"):
        posterior.check()
    found = posterior.take(1).check()
    assert found.predictive["mean"].observed == pytest.approx(np.nanmean(x[1]))
    alone = fmx.infer(model, x[1]).posterior().check()
    assert found.log_evidence == pytest.approx(alone.log_evidence, abs=1e-6)


def test_unknown_scales_of_groups():
    """The evidence by importance sampling, over scales, is that of the integral; with Gaussian rows it is exact."""
    rng = np.random.default_rng(4)
    Z = np.c_[np.ones(120), np.eye(10)[rng.integers(0, 10, 120)]]
    tau = fmx.scales.HalfNormal(1.0)
    prior = fmx.Prior(fmx.Gaussian(sd=[1.0, *[tau] * 10]))
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), Z), prior=prior)
    post = fmx.infer(model, model.with_scales({tau: 0.7}).sample(1).x).posterior()
    found = post.check()
    assert found.passed
    assert found.pareto_k["posterior over scales"] < 0.7
    assert found.log_evidence == pytest.approx(post.log_evidence, abs=0.02 + 4 * found.log_evidence_error)
    assert "To be trusted" in found.verdict
    gaussian = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), Z), prior=prior)
    found = fmx.infer(gaussian, gaussian.with_scales({tau: 0.7}).sample(1).x).posterior().check()
    assert found.passed
    assert found.verdict.startswith("Exact at given scales")
    assert "importance sampling" not in repr(found)


def test_a_full_covariance_is_advised_only_where_it_can_be_had():
    rng = np.random.default_rng(1)
    W = 3.0 + 0.1 * rng.standard_normal((30, 4))
    flat, layer = fmx.Layer(fmx.Bernoulli(), W), fmx.Layer(fmx.Gaussian(1.0), np.eye(4))
    for model, way in ((fmx.DEF(flat), "covariance='full', or NUTS"), (fmx.DEF(flat, layer), "use NUTS")):
        found = fmx.infer(model, np.arange(30) % 2.0).posterior("factorised").check(size=200)
        assert way in found.advice[-1]


@pytest.mark.parametrize("family", [fmx.Bernoulli(), fmx.Binomial(4), fmx.Poisson()])
def test_a_heavy_tail_of_weights_that_hardly_differ_is_no_reason_for_doubt(family):
    """With two columns and 150 rows every probability is right to 5 %: quadrature says so, whatever k-hat says."""
    rng = np.random.default_rng(1)
    W = np.c_[np.ones(150), rng.standard_normal(150)]
    model = fmx.DEF(fmx.Layer(family, W), prior=fmx.Prior(fmx.Gaussian(sd=2.5)))
    x = model.layers[0].family.sample(W @ [-0.2, 0.5], rng)
    posterior = fmx.infer(model, x, covariance="full").posterior()
    checks = [posterior.check(rng=seed) for seed in range(6)]
    assert max(one.pareto_k["full posterior"] for one in checks) > 0.7
    assert all(one.passed and one.verdict.startswith("To be trusted") for one in checks)
    root = np.linalg.cholesky(posterior.covariance())
    z = np.stack(np.meshgrid(*[np.linspace(-7, 7, 281)] * 2), axis=-1).reshape(-1, 2)
    y = posterior.mean + z @ root.T
    own = model.layers[0].family
    exact = y @ (W.T @ x) - np.array([own.log_partition(W @ one).sum() for one in y])
    exact = exact - 0.5 * np.sum((y / 2.5) ** 2, axis=1)
    own = stats.norm.logpdf(z).sum(axis=1)
    p, q = (special.softmax(one) for one in (exact, own))
    assert 0.5 * np.abs(p - q).sum() < 0.05
    divergence = np.sum(q * (np.log(q) - np.log(np.maximum(p, 1e-300))))
    assert checks[0].divergence == pytest.approx(divergence, rel=0.5, abs=1e-4)
