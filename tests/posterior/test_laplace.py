"""Modes and their curvature against scipy.optimize and finite differences, for what a model may have."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import optimize, special, stats

import forestmix as fmx
from forestmix.errors import ArgumentError

RNG = np.random.default_rng(0)
W = RNG.standard_normal((40, 4))
BIAS, WEIGHT, SD, PRIOR_MEAN = RNG.uniform(-0.5, 0.5, 40), RNG.integers(0, 3, 40) * 1.0, 1.5, 0.3
ETA = W @ [0.4, -0.3, 0.2, 0.1] + BIAS
ROWS = {
    "bernoulli": (fmx.Bernoulli(), lambda x, eta: x * eta - np.logaddexp(0, eta), RNG.random(40) < special.expit(ETA)),
    "binomial": (
        fmx.Binomial(5),
        lambda x, eta: x * eta - 5 * np.logaddexp(0, eta),
        RNG.binomial(5, special.expit(ETA)),
    ),
    "poisson": (fmx.Poisson(), lambda x, eta: x * eta - np.exp(eta), RNG.poisson(np.exp(ETA))),
    "gaussian": (fmx.Gaussian(0.7), lambda x, eta: -0.5 * ((x - eta) / 0.7) ** 2, ETA + 0.7 * RNG.standard_normal(40)),
}
KINDS = {"dense": W, "float32": W.astype(np.float32), "sparse": sp.csr_array(W)}


def model(name, weights=W, **options):
    layer = fmx.Layer(ROWS[name][0], weights, b=BIAS, **options)
    return fmx.DEF(layer, prior=fmx.Prior(fmx.Gaussian(SD), bias=np.full(4, PRIOR_MEAN)))


def exact(name, x, weight=1.0):
    """The mode by scipy.optimize, and the inverse of the Hessian there by finite differences of gradients."""
    log_row, seen = ROWS[name][1], ~np.isnan(x)
    weight = np.broadcast_to(weight, 40)[seen]

    def minus_log_joint(y):
        rows = weight * log_row(x[seen], (W @ y + BIAS)[seen])
        return -rows.sum() + 0.5 * np.sum(((y - PRIOR_MEAN) / SD) ** 2)

    found = optimize.minimize(minus_log_joint, np.zeros(4), method="BFGS", options={"gtol": 1e-6})
    step, eye = 1e-4, np.eye(4)
    hessian = [
        [
            sum(s * t * minus_log_joint(found.x + step * (s * a + t * b)) for s in (1, -1) for t in (1, -1)) / 4
            for a in eye
        ]
        for b in eye
    ]
    return found.x, np.linalg.inv(np.array(hessian) / step**2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ROWS)
def test_batches_with_missing_rows(name, kind):
    x = np.stack([ROWS[name][2]] * 2).astype(float)
    x[1, [3, 17]] = np.nan
    posterior = fmx.infer(model(name, KINDS[kind]), x).posterior("laplace")
    assert posterior.kind == "laplace"
    for k in range(2):
        mode, covariance = exact(name, x[k])
        np.testing.assert_allclose(posterior.mean[k], mode, atol=1e-5)
        np.testing.assert_allclose(posterior.sd[k], np.diag(covariance) ** 0.5, rtol=1e-4)


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_case_weights(name):
    x = ROWS[name][2].astype(float)
    posterior = fmx.infer(model(name, case_weights=WEIGHT), x).posterior("laplace")
    mode, covariance = exact(name, x, WEIGHT)
    np.testing.assert_allclose(posterior.mean, mode, atol=1e-5)
    np.testing.assert_allclose(posterior.covariance(), covariance, atol=1e-5)


def test_rows_left_out_are_as_after_fitting_again():
    """To first order in the row: as close to refits as the leave-one-out of the corrected posterior is."""
    x = ROWS["poisson"][2].astype(float)
    found, nodes = fmx.infer(model("poisson"), x).posterior("laplace").loo(), np.polynomial.hermite_e.hermegauss(60)
    refits = []
    for i in range(40):
        without = x.copy()
        without[i] = np.nan
        mode, covariance = exact("poisson", without)
        eta = W[i] @ mode + BIAS[i] + np.sqrt(W[i] @ covariance @ W[i]) * nodes[0]
        log_density = x[i] * eta - np.exp(eta) - special.gammaln(x[i] + 1)
        refits.append(special.logsumexp(log_density, b=nodes[1] / nodes[1].sum()))
    assert found.elpd == pytest.approx(sum(refits), rel=5e-3)


def test_unknown_scales_are_at_the_mode_of_their_logarithms(tmp_path):
    """Against SciPy's maximum of the exact density of two log scales, and the exact posterior of the latents there."""
    noise, tau = fmx.scales.HalfNormal(1.0), fmx.scales.HalfCauchy(2.0)
    unknown = fmx.DEF(fmx.Layer(fmx.Gaussian(noise), W), prior=fmx.Prior(fmx.Gaussian(tau)))
    x = 2 * np.random.default_rng(3).standard_normal(len(W))

    def negative(theta):
        sd, prior_sd = np.exp(theta)
        evidence = stats.multivariate_normal(np.zeros(len(x)), prior_sd**2 * W @ W.T + sd**2 * np.eye(len(x)))
        prior = stats.halfnorm.logpdf(sd) + stats.halfcauchy.logpdf(prior_sd, scale=2.0) + np.sum(theta)
        return -(evidence.logpdf(x) + prior)

    best = optimize.minimize(negative, np.zeros(2), tol=1e-10).x
    laplace = fmx.infer(unknown, x).posterior("laplace")
    laplace.save(tmp_path / "posterior.nc")
    covariance = np.linalg.inv(np.exp(-2 * best[1]) * np.eye(W.shape[1]) + np.exp(-2 * best[0]) * W.T @ W)
    for found in (laplace, fmx.load(tmp_path / "posterior.nc")):
        modes = dict(zip(("noise", "sd"), np.exp(best), strict=True))
        assert {name: one.mode for name, one in found.scales.items()} == pytest.approx(modes, rel=2e-3)
        np.testing.assert_allclose(found.mean, np.exp(-2 * best[0]) * covariance @ W.T @ x, rtol=5e-3)
        np.testing.assert_allclose(found.sd, np.sqrt(np.diag(covariance)), rtol=2e-3)
        assert "at their mode: noise" in str(found.summary())


def test_saved_and_read_again(tmp_path):
    posterior = fmx.infer(model("poisson"), ROWS["poisson"][2]).posterior("laplace")
    posterior.save(tmp_path / "posterior.fmx")
    again = fmx.load(tmp_path / "posterior.fmx")
    assert again.kind == "laplace"
    np.testing.assert_array_equal(again.mean, posterior.mean)
    np.testing.assert_array_equal(again.sd, posterior.sd)
    np.testing.assert_array_equal(again.predict().mean, posterior.predict().mean)


def test_what_has_no_laplace_posterior_says_so():
    deep = fmx.DEF(
        fmx.Layer(fmx.Poisson(), W), fmx.Layer(fmx.Gaussian(1.0), np.ones((4, 2))), prior=fmx.Prior(fmx.Gaussian(1.0))
    )
    with pytest.raises(ArgumentError, match="one layer"):
        fmx.infer(deep, ROWS["poisson"][2]).posterior("laplace")
    each = fmx.DEF(fmx.Layer(fmx.Gaussian(fmx.scales.HalfNormal(1.0)), W), prior=fmx.Prior(fmx.Gaussian(1.0)))
    with pytest.raises(ArgumentError, match="scales='each'"):
        fmx.infer(each, np.stack([ROWS["gaussian"][2]] * 2), scales="each").posterior("laplace")
