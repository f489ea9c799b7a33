"""Latents of every family under Gaussian rows, ill-scaled on purpose, against oracles that share no code."""

import numpy as np
import pytest

import forestmix as fmx
from support import latent_oracles as oracles

FAMILIES = {
    "laplace": oracles.laplace,
    "exponential": oracles.exponential,
    "spike_slab": oracles.spike_slab,
    "bernoulli": oracles.bernoulli,
    "poisson": oracles.poisson,
}


def draw(name, seed):
    """A model with noise from 1e-3 to 10 and prior scales from 1e-2 to 100; half of them have one or two latents."""
    rng = np.random.default_rng([seed, len(name)])
    n, m = int(rng.integers(1, 9)), int(rng.integers(1, 9)) if seed % 2 else 1 + seed // 2 % 2
    noise, scale = 10.0 ** rng.uniform(-3, 1), 10.0 ** rng.uniform(-2, 2)
    inclusion, eta = rng.uniform(0.05, 0.9), rng.uniform(-1, 1.5)
    location = 3 * scale if seed % 4 == 3 else 0.0
    prior, parameters = {
        "laplace": (fmx.Prior(fmx.Laplace(scale), location), (scale, location)),
        "exponential": (fmx.Prior(fmx.Exponential(1 / scale)), (1 / scale,)),
        "spike_slab": (fmx.Prior(fmx.SpikeSlab(inclusion, scale)), (inclusion, scale)),
        "bernoulli": (fmx.Prior(fmx.Bernoulli(), eta), (eta,)),
        "poisson": (fmx.Prior(fmx.Poisson(), eta), (eta,)),
    }[name]
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(noise), rng.standard_normal((n, m))), prior=prior)
    return model, parameters, noise, model.sample(rng).x


@pytest.mark.parametrize("name", FAMILIES)
def test_every_end_is_an_optimum_and_no_elbo_is_above_the_evidence(name):
    for seed in range(20):
        model, parameters, noise, x = draw(name, seed)
        W = model.layers[0].weights.toarray()
        result = fmx.infer(model, x)
        mean, layer = np.array(result.layers[0].mean), result.layers[0]
        assert result.status is fmx.Status.CONVERGED, seed
        assert all(np.isfinite(part).all() for part in (mean, layer.sd, *layer.interval(), layer.density(mean)))
        objective = result.trace.objective
        assert (np.diff(objective) >= -1e-10 * (np.abs(objective[:-1]) + 20)).all(), seed
        slack = 1e-3 + 1e-9 * abs(result.elbo)
        # Sweeps from where the run ended neither gain anything nor find another value for it.
        again = oracles.coordinate_ascent(FAMILIES[name], parameters, W, noise, x, mean, 10)
        assert result.elbo == pytest.approx(again, abs=slack), seed
        if name in ("laplace", "exponential"):  # concave, so that other starts end nowhere else
            cold = np.full(len(mean), parameters[-1] if name == "laplace" else 1 / parameters[0])
            assert oracles.coordinate_ascent(FAMILIES[name], parameters, W, noise, x, cold, 30) <= result.elbo + slack
        if len(mean) <= 2:
            centred = x - W.sum(axis=1) * (parameters[1] if name == "laplace" else 0.0)
            evidence = oracles.log_evidence(name, parameters, W, noise, centred)
            assert result.elbo <= evidence + 1e-6 * (1 + abs(evidence)), seed
            if len(mean) == 1:
                assert result.elbo == pytest.approx(evidence, rel=1e-6, abs=1e-6), seed


def test_few_rows_do_not_let_latents_run_away():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.1), [[1.0, 1.5]]), prior=fmx.Prior(fmx.Laplace(1.0)))
    result = fmx.infer(model, [3.0])
    assert result.converged
    assert result.elbo == pytest.approx(-5.222265, abs=1e-5)
    assert result.layers[0].mean == pytest.approx([0.094215, 1.932745], abs=1e-5)


@pytest.mark.parametrize(("family", "shape", "noise"), [
    (fmx.Laplace(1.0), (3, 6), 0.01), (fmx.Exponential(1.0), (3, 6), 0.01), (fmx.Exponential(1.0), (10, 30), 0.3),
    (fmx.Laplace(30.0), (10, 30), 0.001),
])  # fmt: skip
def test_wide_models_get_there_and_further_than_sweeps(family, shape, noise):
    """Many sweeps do not end, so the optimum is known by what no sweep and no joint step could gain."""
    factor = oracles.laplace if isinstance(family, fmx.Laplace) else oracles.exponential
    parameters = (float(family.scale), 0.0) if factor is oracles.laplace else (float(family.rate),)
    for seed in range(1 if noise == 0.001 else 2):
        rng = np.random.default_rng(seed)
        W = rng.standard_normal(shape)
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(noise), W), prior=fmx.Prior(family))
        x = model.sample(rng).x
        result = fmx.infer(model, x)
        assert result.converged
        start = np.zeros(shape[1])
        assert oracles.coordinate_ascent(factor, parameters, W, noise, x, start, 40) < result.elbo + 1e-3
        plain = fmx.infer(model, x, accelerate=False, init=result, max_iter=200)
        assert plain.elbo < result.elbo + 1e-5


def test_a_narrow_factor_far_from_its_location():
    """Terms of size 1e20 once cancelled here, to an ELBO above the evidence."""
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1e-6), [[100.0]]), prior=fmx.Prior(fmx.Laplace(1e4), -200.0))
    assert fmx.infer(model, [1.0]).elbo == pytest.approx(-14.528659, abs=1e-5)


def test_overlapping_patches_of_a_sparse_code():
    """Bumps that overlap make the surrogate far narrower than the ELBO; the run once stood still in the middle."""
    rng = np.random.default_rng(0)
    place = np.stack(np.meshgrid(np.arange(7.0), np.arange(7.0)), axis=-1).reshape(-1, 2)
    W = np.exp(-0.5 * np.sum((place[:, None] - place[None]) ** 2, axis=-1) / 1.5**2)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.03), W), prior=fmx.Prior(fmx.SpikeSlab(0.1, 0.5)))
    for x in model.sample(rng, size=3).x:
        result = fmx.infer(model, x)
        assert result.converged
        again = oracles.coordinate_ascent(
            oracles.spike_slab, (0.1, 0.5), W, 0.03, x, np.array(result.layers[0].mean), 20
        )
        assert result.elbo == pytest.approx(again, abs=1e-3)
