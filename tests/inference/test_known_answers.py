"""Every algorithm on models whose exact answer is known."""

import numpy as np
import pytest

import forestmix as fmx
from support import known_models, oracles


@pytest.mark.parametrize("objective", ["fm", "elbo"])
@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("start", ["prior", "elsewhere"])
def test_one_step_is_exact_on_a_forest(objective, accelerate, start):
    rng = np.random.default_rng(3)
    W = known_models.forest(rng)
    model, x, mean, covariance, _ = known_models.model_of(W, rng)
    init = None if start == "prior" else (rng.standard_normal(4) * 5, rng.uniform(0.01, 10, 4))
    result = fmx.infer(model, x, objective=objective, accelerate=accelerate, max_iter=1, init=init)
    assert result.mean == pytest.approx(mean, abs=1e-12)
    assert result.sd == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-12)
    assert result.elbo == pytest.approx(fmx.log_evidence(model, x), rel=1e-12)
    assert result.fm_bound == pytest.approx(result.elbo, rel=1e-12)


def ends(seed):
    rng = np.random.default_rng(seed)
    W, blocks = known_models.two_blocks(rng)
    return *known_models.model_of(W, rng), known_models.monotone_algorithms(6, blocks)


@pytest.mark.parametrize("name", ends(0)[-1])
@pytest.mark.parametrize("seed", range(3))
def test_every_algorithm_ends_at_the_exact_mean(name, seed):
    model, x, mean, _, mean_field_sd, algorithms = ends(seed)
    result = fmx.infer(model, x, algorithms[name], tol=1e-13, max_iter=50_000)
    assert result.converged, result.message
    assert result.mean == pytest.approx(mean, abs=1e-8)
    if result.objective_name == "elbo":
        assert result.sd == pytest.approx(mean_field_sd, rel=1e-10)
        assert result.objective == pytest.approx(result.elbo, rel=1e-12)


@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize(
    "algorithm",
    [
        fmx.ForestMixture(accelerate=False),
        fmx.ForestMixture("fm", accelerate=False),
        fmx.ForestMixture(),
        fmx.CAVI(),
        fmx.ForestMixture(groups=[range(50), range(50, 100)]),
    ],
    ids=["fm elbo", "fm paper", "accelerated", "cavi", "groups"],
)
def test_same_ridge_optimum_on_windows(size, algorithm):
    """The paper's problem at small size: the ridge objective at the end against a dense solve."""
    W = fmx.windows((10 - size + 1, 10 - size + 1), size)
    assert W.shape[1] == 100
    rng = np.random.default_rng(1)
    b, x = rng.uniform(-1, 1, W.shape[0]), rng.uniform(-1, 1, W.shape[0])
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W, b))
    dense = W.toarray()
    best = oracles.ridge(dense, b, x, oracles.posterior(dense, b, 1.0, 0.0, 1.0, x)[0])
    result = fmx.infer(model, x, algorithm, tol=1e-9, max_iter=100_000)
    assert result.converged, result.message
    assert oracles.ridge(dense, b, x, result.mean) == pytest.approx(best, rel=1e-8)


def test_paper_variances_solve_their_fixed_point():
    """At the end of objective "fm", sigma_j (A sigma)_j = 1 with A = diag(1/sd0^2) + |W|^T diag(1/sd^2) |W|."""
    rng = np.random.default_rng(5)
    W = rng.standard_normal((30, 12)) * (rng.random((30, 12)) < 0.5)
    model, x, *_ = known_models.model_of(W, rng)
    sd, prior_sd = model.layers[0].family.sd, model.prior.family.sd
    A = np.diag(prior_sd**-2) + np.abs(W).T @ (np.abs(W) / sd[:, None] ** 2)
    for accelerate in (True, False):
        sigma = fmx.infer(model, x, objective="fm", accelerate=accelerate, tol=1e-12, max_iter=100_000).sd
        assert sigma * (A @ sigma) == pytest.approx(np.ones(12), abs=1e-10)


def test_paper_variances_converge_at_rate_one_half():
    """The claim in accelerate.solve_variances: the error of log sigma at least halves, in the end, in each step."""
    rng = np.random.default_rng(6)
    W = rng.standard_normal((40, 25))
    model, x, *_ = known_models.model_of(W, rng)
    best = fmx.infer(model, x, objective="fm", tol=1e-12).sd
    errors = []
    fmx.infer(
        model, x, objective="fm", accelerate=False, max_iter=30,
        callback=lambda info: errors.append(np.abs(np.log(info.sd / best)).max()),
    )  # fmt: skip
    rates = np.array(errors[11:26]) / np.array(errors[10:25])
    assert (rates < 0.5 + 1e-3).all()


def test_groups_interpolate_between_cavi_and_fm():
    rng = np.random.default_rng(8)
    W = rng.standard_normal((20, 6))
    model, x, *_ = known_models.model_of(W, rng)
    one_by_one = fmx.infer(model, x, fmx.ForestMixture("fm", groups=[[j] for j in range(6)]), max_iter=3)
    cavi = fmx.infer(model, x, "cavi", max_iter=3)
    assert one_by_one.mean == pytest.approx(cavi.mean, rel=1e-12)
    assert one_by_one.trace.objective == pytest.approx(cavi.trace.objective, rel=1e-12)
    one_group = fmx.infer(model, x, fmx.ForestMixture("fm", groups=[range(6)]), max_iter=3)
    fm = fmx.infer(model, x, objective="fm", accelerate=False, max_iter=3)
    assert one_group.mean == pytest.approx(fm.mean, rel=1e-12)
    assert one_group.trace.objective == pytest.approx(fm.trace.objective, rel=1e-12)


def test_grouped_bound_lies_between_fm_bound_and_elbo():
    rng = np.random.default_rng(9)
    W = rng.standard_normal((20, 6))
    model, x, *_ = known_models.model_of(W, rng)
    q = rng.standard_normal(6), rng.uniform(0.1, 1, 6)
    grouped = fmx.infer(model, x, fmx.ForestMixture("fm", groups=[[0, 3], [1, 2, 5], [4]]), init=q, max_iter=0)
    spread = sum((np.abs(W[:, g]) @ q[1][g]) ** 2 for g in ([0, 3], [1, 2, 5], [4]))
    variance = W**2 @ q[1] ** 2
    expected = fmx.elbo(model, x, q) - 0.5 * ((spread - variance) / model.layers[0].family.sd ** 2).sum()
    assert grouped.objective == pytest.approx(expected, rel=1e-12)
    assert fmx.fm_bound(model, x, q) < grouped.objective < fmx.elbo(model, x, q)
