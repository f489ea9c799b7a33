"""Runs that must agree: batch and one by one, missing and dropped, every kind of weights, permutations, precisions."""

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from support import known_models

ALGORITHMS = known_models.monotone_algorithms(6) | {
    "damped": fmx.Damped(step=0.1),
    "hogwild, synchronous": fmx.Hogwild(2, synchronous=True),
}


@pytest.fixture
def model_and_batch():
    rng = np.random.default_rng(11)
    W = rng.standard_normal((14, 6)) * (rng.random((14, 6)) < 0.6)
    model, *_ = known_models.model_of(W, rng)
    return model, model.sample(rng, size=5).x


@pytest.mark.parametrize("name", ALGORITHMS)
def test_batch_equals_one_by_one(model_and_batch, name):
    model, x = model_and_batch
    x[2] *= 50  # finishes at another time than the others
    batch = fmx.infer(model, x, ALGORITHMS[name], tol=1e-9)
    assert batch.mean.shape == (5, 6)
    assert batch.sd.shape == (5, 6)
    for k in range(5):
        alone = fmx.infer(model, x[k], ALGORITHMS[name], tol=1e-9)
        assert batch.mean[k] == pytest.approx(alone.mean, abs=1e-7)
        assert batch.sd[k] == pytest.approx(alone.sd, rel=1e-7)
        for bound in ("objective", "elbo", "fm_bound"):
            assert getattr(batch, bound)[k] == pytest.approx(getattr(alone, bound), rel=1e-9)
        assert batch.status[k] is alone.status
        assert abs(batch.n_iter[k] - alone.n_iter) <= 1 + 0.05 * alone.n_iter


@pytest.mark.parametrize("name", ALGORITHMS)
def test_missing_entries_equal_dropped_rows(model_and_batch, name):
    model, x = model_and_batch
    x[0, [1, 5]] = x[1, 3] = x[3, :10] = np.nan
    batch = fmx.infer(model, x, ALGORITHMS[name], tol=1e-9)
    layer = model.layers[0]
    W = layer.weights.toarray()
    for k in range(5):
        kept = ~np.isnan(x[k])
        dropped = fmx.DEF(fmx.Layer(fmx.Gaussian(layer.family.sd[kept]), W[kept], layer.bias[kept]), prior=model.prior)
        alone = fmx.infer(dropped, x[k, kept], ALGORITHMS[name], tol=1e-9)
        assert batch.mean[k] == pytest.approx(alone.mean, abs=1e-6)
        assert batch.sd[k] == pytest.approx(alone.sd, rel=1e-6)
        assert batch.elbo[k] == pytest.approx(alone.elbo, rel=1e-8)


def test_nothing_observed_is_the_prior(model_and_batch):
    model, _x = model_and_batch
    result = fmx.infer(model, np.full(14, np.nan))
    assert result.mean == pytest.approx(model.prior.bias)
    assert result.sd == pytest.approx(model.prior.family.sd)
    assert result.elbo == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_convolution_equals_sparse_equals_dense(name):
    rng = np.random.default_rng(2)
    kernels = rng.standard_normal((2, 2, 3, 3)) * 0.4
    convolution = fmx.Convolution(kernels, (4, 4))
    dense = convolution.toarray()
    x = rng.standard_normal(dense.shape[0])
    m = dense.shape[1]
    algorithm = (known_models.monotone_algorithms(m) | {"damped": fmx.Damped(0.02)}).get(name, ALGORITHMS[name])
    kinds = (dense, np.asfortranarray(dense), sparse.csr_array(dense), sparse.coo_matrix(dense), convolution)
    results = [fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W)), x, algorithm, max_iter=20) for W in kinds]
    for result in results[1:]:
        assert result.mean == pytest.approx(results[0].mean, rel=1e-9, abs=1e-11)
        assert result.sd == pytest.approx(results[0].sd, rel=1e-9)
        assert result.trace.objective == pytest.approx(results[0].trace.objective, rel=1e-9)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_kept(name, dtype):
    rng = np.random.default_rng(4)
    W = rng.standard_normal((14, 6))
    model, x, mean, _, _ = known_models.model_of(W, rng, dtype)
    result = fmx.infer(model, x.astype(dtype), ALGORITHMS[name])
    assert result.mean.dtype == result.sd.dtype == dtype
    assert fmx.gap(model, x, result).dtype == dtype
    assert model.sample(0).x.dtype == dtype
    if result.status is not fmx.Status.DIVERGED:
        assert result.converged, result.message
        assert result.mean == pytest.approx(mean, abs=2e-3 if dtype == np.float32 else 1e-3)


@pytest.mark.parametrize("name", ["fm, paper", "fm, elbo", "fm, paper, accelerated", "fm, elbo, accelerated", "damped"])
def test_permuting_latents_permutes_the_answer(model_and_batch, name):
    model, x = model_and_batch
    order = np.random.default_rng(0).permutation(6)
    layer = model.layers[0]
    prior = fmx.Prior(fmx.Gaussian(model.prior.family.sd[order]), model.prior.bias[order])
    permuted = fmx.DEF(fmx.Layer(layer.family, layer.weights.toarray()[:, order], layer.bias), prior=prior)
    first, second = (fmx.infer(m, x, ALGORITHMS[name], max_iter=7) for m in (model, permuted))
    assert second.mean == pytest.approx(first.mean[:, order], rel=1e-9, abs=1e-12)
    assert second.sd == pytest.approx(first.sd[:, order], rel=1e-9)


def test_scaling_columns_scales_the_answer_and_stops_at_the_same_time(model_and_batch):
    """y_j -> c_j y_j with the prior scaled along is the same model in other units."""
    model, x = model_and_batch
    c = 10.0 ** np.array([-4, -2, 0, 1, 3, 4])
    layer = model.layers[0]
    prior = fmx.Prior(fmx.Gaussian(model.prior.family.sd / c), model.prior.bias / c)
    scaled = fmx.DEF(fmx.Layer(layer.family, layer.weights.toarray() * c, layer.bias), prior=prior)
    for objective in ("fm", "elbo"):
        for accelerate in (True, False):
            first, second = (fmx.infer(m, x, objective=objective, accelerate=accelerate) for m in (model, scaled))
            assert second.mean * c == pytest.approx(first.mean, rel=1e-6, abs=1e-8)
            assert (np.abs(second.n_iter - first.n_iter) <= 1).all()


def test_lists_and_integers_are_accepted():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1), [[1, 0], [1, 2]], [0, 1]), prior=fmx.Prior(fmx.Gaussian(2), 1))
    assert fmx.infer(model, [3, 4]).mean.dtype == np.float64
