"""What conjugate gradients carry on from step to step, against bounds computed in NumPy at every one of them."""

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.inference.accelerate import REFRESH

ROWS, LATENTS = 90, 60


def gaussian_bound(W, x, noise, prior_sd, mean, sd, objective):
    """Return the bound of one observation from its definition."""
    spread = np.abs(W) @ sd if objective == "fm" else np.sqrt((W**2) @ sd**2)
    rows = -0.5 * ((x - W @ mean) ** 2 + spread**2) / noise**2 - np.log(noise) - 0.5 * np.log(2 * np.pi)
    ratio = (sd / prior_sd) ** 2
    return np.nansum(rows) - 0.5 * np.sum((mean / prior_sd) ** 2 + ratio - 1 - np.log(ratio))


def steps(model, x, objective, **options):
    """Return what a callback sees, before the first step and after each."""
    seen = []
    algorithm = fmx.ForestMixture(objective=objective, accelerate="cg")
    result = fmx.infer(model, x, algorithm, callback=seen.append, **options)
    return seen, result


@pytest.mark.parametrize("layout", [np.asarray, np.asfortranarray, sparse.csr_array], ids=["rows", "columns", "sparse"])
@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_objective_of_every_step(objective, layout):
    rng = np.random.default_rng(0)
    W = rng.standard_normal((ROWS, LATENTS)) * (rng.random((ROWS, LATENTS)) < 0.5)
    noise, prior_sd = 0.1 + rng.random(ROWS), 0.5 + rng.random(LATENTS)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(noise), layout(W)), prior=fmx.Prior(fmx.Gaussian(prior_sd)))
    x = W @ rng.standard_normal(LATENTS) + noise * rng.standard_normal(ROWS)
    x[3] = np.nan
    seen, result = steps(model, x, objective, tol=1e-14, max_iter=2 * REFRESH + 20)
    assert len(seen) > REFRESH + 10
    for info in seen:
        assert info.objective == pytest.approx(
            gaussian_bound(W, x, noise, prior_sd, info.mean, info.sd, objective), rel=1e-11
        )  # fmt: skip
    assert np.all(np.diff(result.trace.objective) >= -1e-11 * np.abs(result.objective))
    assert result.objective == result.trace.objective[-1]


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-11), (np.float32, 3e-5)])
def test_batch_whose_observations_end_one_by_one(dtype, tolerance):
    rng = np.random.default_rng(1)
    W = rng.standard_normal((ROWS, LATENTS)).astype(dtype)
    x = np.stack([W[:, 0] * 0, W @ rng.standard_normal(LATENTS), 100 * rng.standard_normal(ROWS)]).astype(dtype)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W))
    seen, result = steps(model, x, "elbo", tol=1e-3)
    assert len(set(result.n_iter)) > 1
    exact = fmx.elbo(model, x, result)
    np.testing.assert_allclose(result.objective, exact, rtol=1e-13 if dtype == np.float64 else 1e-6)
    half, one = np.full(ROWS, 0.5), np.ones(LATENTS)
    for info in seen:
        for k in range(3):
            expected = gaussian_bound(W.astype(float), x[k], half, one, info.mean[k], info.sd[k], "elbo")
            assert info.objective[k] == pytest.approx(expected, rel=tolerance)


def test_limit_and_callback_end_at_the_bound_itself():
    rng = np.random.default_rng(2)
    W, x = rng.standard_normal((ROWS, LATENTS)), 1e4 * rng.standard_normal(ROWS)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.01), W))
    limited = fmx.infer(model, x, fmx.ForestMixture(accelerate="cg"), max_iter=7)
    stopped = fmx.infer(model, x, fmx.ForestMixture(accelerate="cg"), callback=lambda info: info.iteration == 7)
    for result in (limited, stopped):
        assert result.n_iter == 7
        assert result.objective == pytest.approx(fmx.elbo(model, x, result), rel=1e-13)
        assert result.trace.objective[-1] == result.objective
