"""Coordinate algorithms through ``infer``, against an explicit loop over coordinates that shares no code with them."""

import numpy as np
import pytest
from scipy import sparse, special

import forestmix as fmx

N, M, NODES = 30, 7, 90
Z, NODE_WEIGHTS = special.roots_hermitenorm(NODES)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
LAYOUTS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "cut by rows": lambda W: np.pad(W, 3)[3:-3, 3:-3],
    "cut by columns": lambda W: np.asfortranarray(np.pad(W, 3))[3:-3, 3:-3],
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
}


def gaussian(x, eta):
    return x - eta, np.ones_like(eta)


def bernoulli(x, eta):
    p = special.expit(eta)
    return x - p, p * (1 - p)


def poisson(x, eta):
    return x - np.exp(eta), np.exp(eta)


FAMILIES = {"gaussian": (fmx.Gaussian(1.0), gaussian), "bernoulli": (fmx.Bernoulli(), bernoulli),
            "poisson": (fmx.Poisson(), poisson)}  # fmt: skip


def terms(derivatives, W, x, mean, sd):
    """Return e and kappa of the rows by Gauss-Hermite nodes."""
    eta = (W @ mean)[:, None] + np.sqrt(W**2 @ sd**2)[:, None] * Z
    return (part @ NODE_WEIGHTS for part in derivatives(x[:, None], eta))


def updated(derivatives, W, x, mean, sd, j, prior=1.0):
    """Return the factors after the exact update of latent j, everything computed anew."""
    e, kappa = terms(derivatives, W, x, mean, sd)
    precision = prior + W[:, j] ** 2 @ kappa
    mean, sd = mean.copy(), sd.copy()
    mean[j] += (W[:, j] @ e - prior * mean[j]) / precision
    sd[j] = precision**-0.5
    return mean, sd


def case(name):
    rng = np.random.default_rng(0)
    W = 0.4 * rng.standard_normal((N, M)) * (rng.random((N, M)) < 0.6)
    family, derivatives = FAMILIES[name]
    x = fmx.DEF(fmx.Layer(family, W)).sample(rng).x
    return family, derivatives, W, x, (0.1 * rng.standard_normal(M), rng.uniform(0.2, 0.6, M))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cavi_goes_from_one_latent_to_the_next(name, layout):
    family, derivatives, W, x, start = case(name)
    model = fmx.DEF(fmx.Layer(family, LAYOUTS[layout](W)))
    result = fmx.infer(model, x, fmx.CAVI(), init=start, max_iter=2, tol=0)
    mean, sd = start
    for _ in range(2):
        for j in range(M):
            mean, sd = updated(derivatives, W, x, mean, sd, j)
    np.testing.assert_allclose(result.mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(result.sd, sd, rtol=1e-8)


@pytest.mark.parametrize("name", FAMILIES)
def test_greedy_takes_the_latent_that_gains_most(name):
    family, derivatives, W, x, start = case(name)
    result = fmx.infer(fmx.DEF(fmx.Layer(family, W)), x, fmx.CAVI(order="greedy"), init=start, max_iter=1, tol=0)
    mean, sd = start
    for _ in range(M):
        e, kappa = terms(derivatives, W, x, mean, sd)
        precision = 1 + W.T**2 @ kappa
        ratio = sd**2 * precision
        gain = (W.T @ e - mean) ** 2 / precision + ratio - 1 - np.log(ratio)
        mean, sd = updated(derivatives, W, x, mean, sd, int(np.argmax(gain)))
    np.testing.assert_allclose(result.mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(result.sd, sd, rtol=1e-8)


@pytest.mark.parametrize("name", FAMILIES)
def test_synchronous_blocks_see_each_other_as_they_were(name):
    family, derivatives, W, x, start = case(name)
    blocks = [[0, 3, 5], [1], [2, 4, 6]]
    algorithm = fmx.Hogwild(blocks, synchronous=True)
    result = fmx.infer(fmx.DEF(fmx.Layer(family, W)), x, algorithm, init=start, max_iter=1, tol=0)
    means, sds = np.empty(M), np.empty(M)
    for block in blocks:
        mean, sd = start
        for j in block:
            mean, sd = updated(derivatives, W, x, mean, sd, j)
        means[block], sds[block] = mean[block], sd[block]
    np.testing.assert_allclose(result.mean, means, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(result.sd, sds, rtol=1e-8)


def test_single_precision():
    family, derivatives, W, x, start = case("bernoulli")
    result = fmx.infer(fmx.DEF(fmx.Layer(family, W.astype(np.float32))), x, "cavi", init=start, max_iter=1, tol=0)
    mean, sd = start
    for j in range(M):
        mean, sd = updated(derivatives, W, x, mean, sd, j)
    assert result.mean.dtype == np.float32
    np.testing.assert_allclose(result.mean, mean, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("algorithm", [fmx.CAVI(), fmx.CAVI(order="greedy"), fmx.ForestMixture(groups=[range(M)])])
def test_steps_that_overflow_are_halved(algorithm):
    """Counts of 10,000 where exp(0) is expected: a whole step would lead to exp(1000) and more."""
    W = 40 * np.random.default_rng(0).standard_normal((N, M))
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), W))
    start = np.zeros(M), np.full(M, 0.01)
    result = fmx.infer(model, np.full(N, 1e4), algorithm, init=start, max_iter=3, tol=0)
    assert np.isfinite(result.trace.objective).all()
    assert (np.diff(result.trace.objective) > 0).all()
