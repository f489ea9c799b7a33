"""Many latents under few rows: the factor of the rows gives what the factor of the latents gives."""

import mpmath
import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.posterior import kinds
from forestmix.posterior.covariance import FactoredCovariance
from forestmix.posterior.row_factored import RowFactoredCovariance
from forestmix.weights import as_weights
from posterior.test_covariance import check_interface
from support.posterior_models import ROWS, count_model


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (1, 3)])
def test_it_gives_all(kind, shape):
    rng = np.random.default_rng(0)
    W, kappa, scale = rng.standard_normal(shape), rng.uniform(0.1, 3, shape[0]), rng.uniform(0.5, 2, shape[1])
    kappa[0] = 0 if shape[0] > 1 else kappa[0]
    covariance = RowFactoredCovariance(as_weights(kind(W)), kappa, scale)
    exact = np.linalg.inv(np.diag(scale**-2) + W.T * kappa @ W)
    assert covariance.quadratic(covariance.weights) == pytest.approx(np.diag(W @ exact @ W.T), rel=1e-10)
    check_interface(covariance, exact, np.random.default_rng(1))


def test_little_noise_loses_no_digits():
    """Prior variances twelve orders above those of the posterior: 50 digits say what is right."""
    rng = np.random.default_rng(2)
    W = np.vstack([rng.standard_normal((2, 5)), [1e3, 0, 0, 0, 0]])
    kappa, scale = np.array([1.0, 1e4, 1e6]), np.array([1.0, 1.0, 2.0, 1.0, 1.0])
    with mpmath.workdps(50):
        A = mpmath.diag([1 / mpmath.mpf(s) ** 2 for s in scale])
        rows = mpmath.matrix(W.tolist())
        exact = (A + rows.T * mpmath.diag(kappa.tolist()) * rows) ** -1
        right = [float(exact[j, j]) for j in range(5)]
    covariance = RowFactoredCovariance(as_weights(W), kappa, scale)
    assert right[0] < 1e-11
    assert covariance.variance() == pytest.approx(right, rel=1e-8)
    right = FactoredCovariance(covariance.weights, kappa, scale).quadratic(covariance.weights)
    assert covariance.quadratic(covariance.weights) == pytest.approx(right, rel=1e-6)
    assert covariance.quadratic(as_weights(W)) == pytest.approx(right, rel=1e-6)


@pytest.mark.parametrize("name", ["gaussian", *ROWS])
def test_posteriors_are_the_same_either_way(name, monkeypatch):
    rng = np.random.default_rng(3)
    model = count_model(ROWS.get(name, fmx.Gaussian(0.6)), rng, n=8, m=14)
    x = model.sample(rng, 2).x
    x[1, :3] = np.nan
    result = fmx.infer(model, x)
    right = result.posterior()
    monkeypatch.setattr(kinds, "FACTOR_LIMIT", 0)
    found = result.posterior()
    assert isinstance(found.mixture.components[0].covariance.distinct[0], RowFactoredCovariance)
    assert found.mean == pytest.approx(right.mean, abs=1e-8)
    assert found.sd == pytest.approx(right.sd, rel=1e-9)
    assert found.elbo == pytest.approx(right.elbo, rel=1e-9)
    assert found.loo().pointwise == pytest.approx(right.loo().pointwise, rel=1e-7)
