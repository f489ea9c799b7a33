"""Gaussian q with full covariance: exact for Gaussian rows, monotone, at the maximum of an ELBO written anew."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import forestmix as fmx
from forestmix.model import observations
from forestmix.posterior.full import Start
from support import oracles
from support.posterior_models import fit_full

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
WEIGHTS = WEIGHTS / np.sqrt(2 * np.pi)
ROWS = {
    "bernoulli": fmx.Bernoulli(),
    "binomial": fmx.Binomial(7),
    "poisson": fmx.Poisson(),
    "mixed": fmx.Mixed([fmx.Gaussian(0.5), fmx.Poisson(), fmx.Bernoulli()], np.arange(25) % 3),
}


def model_of(rows, rng, n=25, m=3, prior_sd=1.5):
    W, b = 0.7 * rng.standard_normal((n, m)), 0.3 * rng.standard_normal(n)
    return fmx.DEF(fmx.Layer(rows, W, b), prior=fmx.Prior(fmx.Gaussian(prior_sd), 0.2))


def log_density(family, x, eta):
    """log p(x | eta), of each row of the families here, without their own code."""
    if isinstance(family, fmx.Mixed):
        parts = [log_density(part, x, eta) for part in family.families]
        return np.choose(family.which, parts)
    if isinstance(family, fmx.Gaussian):
        return -0.5 * ((x - eta) / family.sd) ** 2 - np.log(family.sd) - 0.5 * np.log(2 * np.pi)
    log_factorial = scipy.special.gammaln
    if isinstance(family, fmx.Poisson):
        return x * eta - np.exp(eta) - log_factorial(x + 1)
    trials = getattr(family, "trials", 1)
    choose = log_factorial(trials + 1) - log_factorial(x + 1) - log_factorial(trials - x + 1)
    return choose + x * eta - trials * np.logaddexp(0, eta)


def elbo(model, x, mean, covariance):
    """The ELBO of a Gaussian q by Gauss-Hermite quadrature, row by row."""
    layer = model.layers[0]
    W, m = layer.weights.toarray(), len(mean)
    eta, sd = W @ mean + layer.bias, np.sqrt(np.einsum("ij,jk,ik->i", W, covariance, W))
    rows = sum(
        weight * log_density(layer.family, x, eta + sd * node) for node, weight in zip(NODES, WEIGHTS, strict=True)
    )
    s0 = np.broadcast_to(model.prior.family.sd, m).astype(float)
    distance = mean - model.prior.bias
    divergence = 0.5 * (
        np.sum((np.diag(covariance) + distance**2) / s0**2) - m
        + 2 * np.sum(np.log(s0)) - np.linalg.slogdet(covariance)[1]
    )  # fmt: skip
    return np.sum(rows[~np.isnan(x)]) - divergence


def best(model, x, m):
    """The largest ELBO over all Gaussian q, by a general optimiser on the mean and a Cholesky factor."""
    lower = np.tril_indices(m)

    def unpacked(z):
        L = np.zeros((m, m))
        L[lower] = z[m:]
        L[np.diag_indices(m)] = np.exp(np.diag(L))
        return z[:m], L @ L.T

    start = np.zeros(m + len(lower[0]))
    start[m:][lower[0] == lower[1]] = -1.0
    found = scipy.optimize.minimize(lambda z: -elbo(model, x, *unpacked(z)), start, tol=1e-9, options={"maxiter": 2000})
    return (-found.fun, *unpacked(found.x))


@pytest.mark.parametrize("rows", ROWS)
def test_it_is_the_best_gaussian(rows):
    rng = np.random.default_rng(5)
    model = model_of(ROWS[rows], rng)
    x = model.sample(2).x.astype(float)
    x[4] = np.nan
    (fit,) = fit_full(model, observations(model, x))
    covariance = fit.covariance.covariance()
    assert fit.converged
    assert fit.elbo == pytest.approx(elbo(model, x, fit.mean, covariance), abs=1e-7)
    value, mean, sigma = best(model, x, 3)
    assert fit.elbo >= value - 1e-8
    np.testing.assert_allclose(fit.mean, mean, atol=2e-3)
    np.testing.assert_allclose(covariance, sigma, atol=2e-3)


@pytest.mark.parametrize("rows", ROWS)
def test_fixed_point_and_row_terms(rows):
    rng = np.random.default_rng(6)
    model = model_of(ROWS[rows], rng)
    x = model.sample(3).x.astype(float)
    x[7] = np.nan
    (fit,) = fit_full(model, observations(model, x))
    W, s0 = model.layers[0].weights.toarray(), 1.5
    sigma = np.linalg.inv(np.eye(3) / s0**2 + (W.T * fit.kappa) @ W)
    np.testing.assert_allclose(fit.covariance.covariance(), sigma, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(fit.variance, np.einsum("ij,jk,ik->i", W, sigma, W), rtol=1e-4)
    np.testing.assert_allclose(fit.eta, W @ fit.mean + model.layers[0].bias, rtol=1e-12)
    np.testing.assert_allclose(W.T @ fit.error, (fit.mean - 0.2) / s0**2, atol=1e-4)
    assert fit.kappa[7] == fit.error[7] == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", ["bernoulli", "binomial", "poisson"])
def test_the_elbo_never_falls(rows, seed):
    """Also with wide priors and large weights, where an undamped step overflows."""
    rng = np.random.default_rng(seed)
    model = model_of(ROWS[rows], rng, m=6, prior_sd=10.0 ** (seed - 2))
    x = model_of(ROWS[rows], rng, m=6, prior_sd=1.0).sample(seed).x
    (fit,) = fit_full(model, observations(model, x))
    assert fit.converged
    assert (np.diff(fit.trace) > 0).all()


def test_counts_of_zero_under_a_wide_prior():
    """The posterior ends nowhere but in the prior: kappa and the means pull at each other, and steps are short."""
    W = np.c_[np.ones(30), np.random.default_rng(0).standard_normal((30, 2))]
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), W), prior=fmx.Prior(fmx.Gaussian(5.0)))
    (fit,) = fit_full(model, observations(model, np.zeros(30)))
    assert fit.converged
    assert (np.diff(fit.trace) > 0).all()
    assert fit.elbo >= best(model, np.zeros(30), 3)[0] - 1e-6


def test_gaussian_rows_are_exact():
    rng = np.random.default_rng(7)
    W, b, sd = rng.standard_normal((12, 4)), rng.standard_normal(12), rng.uniform(0.3, 2, 12)
    prior_sd = rng.uniform(0.5, 3, 4)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd), W, b), prior=fmx.Prior(fmx.Gaussian(prior_sd), 0.5))
    x = model.sample(0, size=5).x
    fits = fit_full(model, observations(model, x))
    assert len({id(fit.covariance) for fit in fits}) == 1
    for fit, one in zip(fits, x, strict=True):
        mean, covariance = oracles.posterior(W, b, sd, 0.5, prior_sd, one)
        np.testing.assert_allclose(fit.mean, mean, rtol=1e-10)
        np.testing.assert_allclose(fit.covariance.covariance(), covariance, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose([fit.elbo for fit in fits], fmx.log_evidence(model, x), rtol=1e-11)


def test_missing_entries_share_a_factor_where_they_can():
    rng = np.random.default_rng(8)
    W = rng.standard_normal((10, 3))
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W))
    x = model.sample(0, size=4).x
    x[[0, 2], 3] = x[1, 5] = np.nan
    fits = fit_full(model, observations(model, x))
    np.testing.assert_allclose([fit.elbo for fit in fits], fmx.log_evidence(model, x), rtol=1e-11)
    assert fits[0].covariance is fits[2].covariance
    assert len({id(fit.covariance) for fit in fits}) == 3


def test_batches_are_what_each_is_alone():
    model = model_of(fmx.Poisson(), np.random.default_rng(9))
    x = model.sample(0, size=3).x
    for fit, one in zip(fit_full(model, observations(model, x)), x, strict=True):
        (alone,) = fit_full(model, observations(model, one))
        assert fit.elbo == alone.elbo


def test_a_start_nearby_saves_steps():
    model = model_of(fmx.Bernoulli(), np.random.default_rng(10))
    data = observations(model, model.sample(1).x)
    (fit,) = fit_full(model, data)
    (again,) = fit_full(model, data, init=[Start(fit.mean, fit.kappa)])
    assert len(again.trace) <= 3 < len(fit.trace)
    np.testing.assert_allclose(again.mean, fit.mean, atol=1e-5)


def test_random_intercepts_by_elimination_and_dense():
    rng = np.random.default_rng(11)
    n, groups = 2000, 200
    level = rng.integers(0, groups, n)
    Z = scipy.sparse.csr_array((np.ones(n), (np.arange(n), level)), (n, groups))
    W = scipy.sparse.csr_array(scipy.sparse.hstack([np.c_[np.ones(n), rng.standard_normal((n, 2))], Z]))
    prior = fmx.Prior(fmx.Gaussian(np.r_[2.0, 2.0, 2.0, np.full(groups, 0.6)]))
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), W), prior=prior)
    x = model.sample(4).x
    (fit,) = fit_full(model, observations(model, x))
    assert fit.converged
    assert len(fit.covariance.columns.block) == groups
    dense = W.toarray()
    sigma = np.linalg.inv(np.diag(prior.family.sd**-2.0) + (dense.T * fit.kappa) @ dense)
    np.testing.assert_allclose(fit.covariance.variance(), np.diag(sigma), rtol=1e-5)
    gradient = dense.T @ (x - np.exp(fit.eta + 0.5 * fit.variance)) - fit.mean * prior.family.sd**-2.0
    assert gradient @ sigma @ gradient < 1e-8


def test_single_precision_weights():
    model = model_of(fmx.Poisson(), np.random.default_rng(12))
    layer = model.layers[0]
    x = model.sample(1).x
    single = fmx.DEF(
        fmx.Layer(fmx.Poisson(), layer.weights.toarray().astype(np.float32), layer.bias), prior=model.prior
    )
    (double,), (found,) = (fit_full(one, observations(one, x)) for one in (model, single))
    np.testing.assert_allclose(found.mean, double.mean, atol=1e-5)


def test_what_it_is_not_for():
    W = np.eye(3)
    deep = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W), fmx.Layer(fmx.Gaussian(1.0), W))
    binary = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W), prior=fmx.Prior(fmx.Bernoulli()))
    for model in (deep, binary):
        with pytest.raises(fmx.ArgumentError, match="one layer and a Gaussian prior for a full covariance"):
            fit_full(model, observations(model, np.ones(3)))
        with pytest.raises(fmx.ArgumentError, match="Leave covariance at 'factorised'"):
            fmx.infer(model, np.ones(3), covariance="full")
    unknown = fmx.DEF(fmx.Layer(fmx.Gaussian(fmx.scales.Flat()), W), prior=fmx.Prior(fmx.Laplace(1.0)))
    with pytest.raises(fmx.ArgumentError, match=r"1 layer\(s\) and Laplace.* Give numbers for its unknown scales"):
        fmx.infer(unknown, np.ones(3))
