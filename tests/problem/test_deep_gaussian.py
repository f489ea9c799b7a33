"""Deep models with Gaussian latents: the exact joint posterior, both bounds, every schedule and algorithm."""

import numpy as np
import pytest

import forestmix as fmx
from support import deep_oracles as oracles

DEPTHS = [1, 2, 3, 4, 5]


def stacked(result, name="mean"):
    return np.concatenate([getattr(layer, name) for layer in result.layers], axis=-1)


def assert_monotone(result):
    objective = result.trace.objective
    assert (np.diff(objective, axis=0) >= -1e-12 * (np.abs(objective[:-1]) + 50)).all()


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("seed", range(4))
def test_mean_is_the_exact_joint_posterior_and_the_bounds_are_below_the_evidence(depth, seed):
    rng = np.random.default_rng(10 * seed + depth)
    model, arrays = oracles.deep_gaussian(rng, depth)
    x = model.sample(rng).x
    mean, covariance, evidence = oracles.deep_posterior(*arrays, x)
    assert fmx.log_evidence(model, x) == pytest.approx(evidence, abs=1e-8)
    for objective in ("elbo", "fm"):
        result = fmx.infer(model, x, objective=objective, tol=1e-13)
        assert stacked(result) == pytest.approx(mean, abs=1e-10)
        assert result.fm_bound <= result.elbo + 1e-12
        assert result.elbo <= evidence + 1e-10
        assert_monotone(result)
    result = fmx.infer(model, x, tol=1e-12)
    assert stacked(result, "sd") == pytest.approx(np.diag(np.linalg.inv(covariance)) ** -0.5, rel=1e-10)


@pytest.mark.parametrize("schedule", ["red-black", "bottom-up", "top-down"])
@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_plain_steps_climb_to_the_same_place_on_every_schedule(schedule, objective):
    rng = np.random.default_rng(3)
    model, arrays = oracles.deep_gaussian(rng, 3)
    x = model.sample(rng).x
    mean, _, _ = oracles.deep_posterior(*arrays, x)
    algorithm = fmx.ForestMixture(objective, accelerate=False, schedule=schedule)
    result = fmx.infer(model, x, algorithm, tol=1e-9)
    assert result.converged
    assert_monotone(result)
    assert stacked(result) == pytest.approx(mean, abs=1e-6)
    best = fmx.infer(model, x, objective=objective, tol=1e-12)
    assert result.objective == pytest.approx(best.objective, abs=1e-9)
    steps = {"red-black": 2, "bottom-up": 3, "top-down": 3}[schedule]
    assert result.trace.step[1] == steps


@pytest.mark.parametrize("algorithm", [fmx.CAVI(), fmx.CAVI("random"), fmx.CAVI("greedy"), fmx.BlockCoordinate()])
def test_coordinate_methods_work_on_stacked_latents(algorithm):
    rng = np.random.default_rng(5)
    model, arrays = oracles.deep_gaussian(rng, 2)
    x = model.sample(rng).x
    result = fmx.infer(model, x, algorithm, tol=1e-10)
    assert result.converged
    assert stacked(result) == pytest.approx(oracles.deep_posterior(*arrays, x)[0], abs=1e-7)


@pytest.mark.parametrize("depth", [2, 3])
def test_fm_bound_is_that_of_appendix_c(depth):
    rng = np.random.default_rng(depth)
    model, arrays = oracles.deep_gaussian(rng, depth)
    x = model.sample(rng).x
    means = [rng.standard_normal(size) for size in model.latent_sizes]
    sds = [rng.uniform(0.2, 1.0, size) for size in model.latent_sizes]
    q = list(zip(means, sds, strict=True))
    expected = oracles.deep_fm_bound(*arrays, x, means, sds)
    assert fmx.fm_bound(model, x, q) == pytest.approx(expected, rel=1e-11)
    assert fmx.gap(model, x, q).sum() == pytest.approx(fmx.elbo(model, x, q) - expected, rel=1e-9)


def test_elbo_is_the_expected_joint_density_plus_the_entropy():
    rng = np.random.default_rng(8)
    model, arrays = oracles.deep_gaussian(rng, 3)
    x = model.sample(rng).x
    means = [rng.standard_normal(size) for size in model.latent_sizes]
    sds = [rng.uniform(0.2, 1.0, size) for size in model.latent_sizes]
    mean, covariance = oracles.deep_joint(*arrays)
    precision = np.linalg.inv(covariance)
    point = np.concatenate([x, *means]) - mean
    spread = np.concatenate([np.zeros(len(x)), *sds])
    size = len(point)
    expected = -0.5 * (point @ precision @ point + np.sum(np.diag(precision) * spread**2))
    expected -= 0.5 * (np.linalg.slogdet(covariance)[1] + size * np.log(2 * np.pi))
    expected += np.sum(np.log(np.concatenate(sds)) + 0.5 * np.log(2 * np.pi * np.e))
    assert fmx.elbo(model, x, list(zip(means, sds, strict=True))) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("family", [fmx.Poisson(), fmx.Bernoulli(), fmx.Binomial(6)])
def test_other_rows_take_newton_steps_over_all_layers_and_end_where_plain_steps_do(family):
    rng = np.random.default_rng(2)
    model = fmx.DEF(
        fmx.Layer(family, 0.3 * rng.standard_normal((15, 4)), 0.2),
        fmx.Layer(fmx.Gaussian(0.7), 0.6 * rng.standard_normal((4, 3)), 0.1),
        fmx.Layer(fmx.Gaussian(0.7), 0.6 * rng.standard_normal((3, 2))),
    )
    x = model.sample(rng, size=2).x
    x[1, :4] = np.nan
    for objective in ("elbo", "fm"):
        fast = fmx.infer(model, x, objective=objective, tol=1e-9)
        plain = fmx.infer(model, x, fmx.ForestMixture(objective, accelerate=False), tol=1e-7, max_iter=3000)
        assert fast.converged.all()
        assert_monotone(fast)
        assert_monotone(plain)
        assert fast.objective == pytest.approx(plain.objective, abs=1e-6)
        assert fast.n_iter.max() < 60


def test_mixed_rows_and_missing_entries():
    rng = np.random.default_rng(4)
    which = rng.integers(0, 2, 12)
    model = fmx.DEF(
        fmx.Layer(fmx.Mixed([fmx.Gaussian(0.5), fmx.Bernoulli()], which), rng.standard_normal((12, 4))),
        fmx.Layer(fmx.Gaussian(0.5), rng.standard_normal((4, 3))),
    )
    x = model.sample(rng, size=3).x
    x[0, 3:6] = np.nan
    together = fmx.infer(model, x, tol=1e-9)
    for k in range(3):
        alone = fmx.infer(model, x[k], tol=1e-9)
        assert together.elbo[k] == pytest.approx(alone.elbo, abs=1e-8)
        assert together.layers[1].mean[k] == pytest.approx(alone.layers[1].mean, abs=1e-6)


def test_missing_rows_are_marginalised():
    rng = np.random.default_rng(6)
    model, (W, b, sd, top) = oracles.deep_gaussian(rng, 2)
    x = model.sample(rng).x
    keep = np.arange(9) % 3 != 0
    part = oracles.deep_posterior([W[0][keep], W[1]], [b[0][keep], b[1]], [sd[0][keep], sd[1]], top, x[keep])
    result = fmx.infer(model, np.where(keep, x, np.nan), tol=1e-12)
    assert stacked(result) == pytest.approx(part[0], abs=1e-9)
    assert fmx.log_evidence(model, np.where(keep, x, np.nan)) == pytest.approx(part[2], abs=1e-8)


def test_float32_and_warm_starts():
    rng = np.random.default_rng(11)
    model, arrays = oracles.deep_gaussian(rng, 2, dtype=np.float32)
    x = model.sample(rng).x
    result = fmx.infer(model, x)
    assert [layer.mean.dtype for layer in result.layers] == [np.float32, np.float32]
    assert stacked(result) == pytest.approx(oracles.deep_posterior(*arrays, x)[0], abs=1e-3)
    for init in (result, [(layer.mean, layer.sd) for layer in result.layers], result.layers):
        assert fmx.infer(model, x, init=init).n_iter <= 3


def test_large_latents_with_little_noise_do_not_raise_a_false_alarm():
    """Means that cancel in y - W y' - b, a million times their noise, are rounded more coarsely than the residual."""
    rng = np.random.default_rng(0)
    W = [rng.standard_normal((6, 4)), rng.standard_normal((4, 3))]
    layers = [fmx.Layer(fmx.Gaussian(1e-3), W[0], 1e3), fmx.Layer(fmx.Gaussian(1e-3), W[1], 1e3)]
    model = fmx.DEF(*layers)
    for algorithm in ("fm", "cavi", fmx.ForestMixture(accelerate=False)):
        result = fmx.infer(model, model.sample(rng).x, algorithm, max_iter=200)
        assert result.status not in (fmx.Status.DECREASED, fmx.Status.NON_FINITE)


def test_one_layer_flattened_is_itself():
    rng = np.random.default_rng(12)
    model, arrays = oracles.deep_gaussian(rng, 1)
    x = model.sample(rng).x
    assert fmx.infer(model, x, tol=1e-12).mean == pytest.approx(oracles.deep_posterior(*arrays, x)[0], abs=1e-10)


def test_the_result_of_a_deep_model_says_where_its_layers_are():
    rng = np.random.default_rng(13)
    model, _ = oracles.deep_gaussian(rng, 2)
    result = fmx.infer(model, model.sample(rng).x)
    with pytest.raises(fmx.ForestmixError, match=r"Use result.layers\[k\].mean"):
        _ = result.mean
    assert "CONVERGED" in repr(result)
