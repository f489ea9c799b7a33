"""Priors at the ends of what numbers hold, weights without entries, and observations that are alone or in company."""

import numpy as np
import pytest

import forestmix as fmx
from support.deep_oracles import log_row

EXTREME = [
    *[fmx.Prior(fmx.Exponential(rate)) for rate in (1e-300, 1e-60, 1e60, 1e300)],
    *[fmx.Prior(fmx.Laplace(scale), 0.5) for scale in (1e-300, 1e-60, 1e60, 1e300)],
    *[fmx.Prior(fmx.SpikeSlab(p)) for p in (1e-300, 1e-9, 1 - 1e-9, 1 - 1e-16)],
    *[fmx.Prior(fmx.SpikeSlab(0.5, sd), 0.5) for sd in (1e-60, 1e60)],
    *[fmx.Prior(fmx.Bernoulli(), eta) for eta in (-1e4, 1e4)],
    fmx.Prior(fmx.Poisson(), -1e4),
]


@pytest.mark.parametrize("prior", EXTREME, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_priors_give_numbers_and_no_warnings(prior, dtype):
    W = np.array([[1.0, 0.5], [0.3, 2.0]], dtype)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W), prior=prior)
    result = fmx.infer(model, np.array([1.0, 2.0], dtype))
    layer = result.layers[0]
    shown = (layer.mean, layer.sd, *layer.interval(), layer.density(0.25), result.elbo, result.trace.objective)
    assert not any(np.isnan(part).any() for part in shown)
    assert np.isfinite(result.elbo)
    # A slab that is all but a point away from 0 has a mean whose shift rounding does not show.
    assert result.converged or prior.family.name == "spike_slab"
    if prior.family.name == "exponential" and prior.family.rate < 1:
        # A flat prior: the rate is a constant of the evidence, and the answer does not depend on it.
        other = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W), prior=fmx.Prior(fmx.Exponential(1e-12)))
        assert layer.mean == pytest.approx(fmx.infer(other, np.array([1.0, 2.0], dtype)).layers[0].mean, rel=1e-4)


@pytest.mark.parametrize("latents", [fmx.Bernoulli(), fmx.Poisson()], ids=repr)
@pytest.mark.parametrize("rows", [fmx.Bernoulli(), fmx.Binomial(3), fmx.Poisson(), fmx.Gaussian(1.0)], ids=repr)
@pytest.mark.parametrize("algorithm", ["fm", "cavi"])
def test_weights_of_zeros_leave_the_prior(latents, rows, algorithm):
    model = fmx.DEF(fmx.Layer(rows, np.zeros((3, 2)), 0.2), prior=fmx.Prior(latents, 0.3))
    x = np.array([0.0, 1.0, 1.0])
    result = fmx.infer(model, x, algorithm)
    expected = 1 / (1 + np.exp(-0.3)) if isinstance(latents, fmx.Bernoulli) else np.exp(0.3)
    assert result.converged
    assert result.layers[0].mean == pytest.approx([expected, expected])
    assert result.elbo == pytest.approx(np.sum(log_row(rows, x, np.full(3, 0.2))))


@pytest.mark.parametrize("rows", [fmx.Binomial(5), fmx.Bernoulli(), fmx.Poisson()], ids=repr)
def test_an_observation_ends_in_a_batch_where_it_ends_alone(rows):
    for seed in (5, 10):
        rng = np.random.default_rng(seed)
        model = fmx.DEF(fmx.Layer(rows, rng.standard_normal((8, 4)), 0.5), prior=fmx.Prior(fmx.Bernoulli()))
        x = model.sample(rng, size=2).x
        alone = fmx.infer(model, x[0])
        for batch in (x[[0, 0]], x):
            together = fmx.infer(model, batch)
            assert together.objective[0] == pytest.approx(alone.objective, abs=1e-8)
            assert together.layers[0].mean[0] == pytest.approx(alone.layers[0].mean, abs=1e-4)


@pytest.mark.parametrize("prior", [fmx.Laplace(1.0), fmx.Exponential(1.0), fmx.SpikeSlab(0.3)], ids=repr)
def test_under_gaussian_rows_too(prior):
    rng = np.random.default_rng(2)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.05), rng.standard_normal((5, 9))), prior=fmx.Prior(prior))
    x = model.sample(rng, size=3).x
    together = fmx.infer(model, x)
    for k in range(3):
        assert together.layers[0].mean[k] == pytest.approx(fmx.infer(model, x[k]).layers[0].mean, abs=1e-6)
