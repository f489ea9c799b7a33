"""Inference where the arrays are: the same answers in every array library, in arrays of that library."""

import numpy as np
import pytest

import forestmix as fmx
from forestmix.weights.arrays import ArrayWeights
from support.array_libraries import LIBRARIES, namespace, numpy_of

FAMILIES = {
    "gaussian": fmx.Gaussian(sd=0.7),
    "bernoulli": fmx.Bernoulli(),
    "binomial": fmx.Binomial(5),
    "poisson": fmx.Poisson(),
    "mixed": fmx.Mixed([fmx.Gaussian(sd=0.5), fmx.Poisson()], np.arange(20) % 2),
}


def models(xp, family):
    rng = np.random.default_rng(3)
    W, b = rng.standard_normal((20, 6)) / 2, rng.standard_normal(20) / 4
    prior = fmx.Prior(fmx.Gaussian(sd=rng.uniform(0.5, 2, 6)), bias=rng.standard_normal(6) / 4)
    # NumPy's own array goes the same way as those of other libraries here.
    return tuple(fmx.DEF(fmx.Layer(FAMILIES[family], W, b), prior=prior) for W in (W, ArrayWeights(xp.asarray(W))))


@pytest.mark.parametrize("objective", ["elbo", "fm"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_results_are_the_same_and_stay_in_the_library(library, family, objective):
    xp = namespace(library)
    right, own = models(xp, family)
    batch = right.sample(rng=1, size=3).x
    batch[1, 4:7] = np.nan
    for x in (batch[0], batch):
        want = fmx.infer(right, x, objective=objective, tol=1e-10)
        got = fmx.infer(own, xp.asarray(x), objective=objective, tol=1e-10)
        assert np.all(got.converged)
        for name in ("mean", "sd"):
            array = getattr(got, name)
            assert type(array) is type(own.layers[0].weights.array)
            np.testing.assert_allclose(numpy_of(array), getattr(want, name), atol=1e-8)
        for name in ("objective", "elbo", "fm_bound"):
            np.testing.assert_allclose(getattr(got, name), getattr(want, name), atol=1e-8)
        np.testing.assert_allclose(got.posterior().sd, want.posterior().sd, rtol=1e-6)
        np.testing.assert_allclose(numpy_of(got.layers[0].interval(0.9)[0]), want.layers[0].interval(0.9)[0], atol=1e-7)


@pytest.mark.parametrize("library", LIBRARIES)
def test_plain_steps_starts_and_single_precision(library):
    xp = namespace(library)
    right, own = models(xp, "poisson")
    x = right.sample(rng=2).x
    want = fmx.infer(right, x)
    plain = fmx.infer(own, x, accelerate=False, max_iter=3000)
    np.testing.assert_allclose(numpy_of(plain.mean), want.mean, atol=1e-4)
    assert (np.diff(plain.trace.objective) >= -1e-9).all()
    again = fmx.infer(own, x, init=plain)
    assert again.converged
    assert again.n_iter <= 3
    given = fmx.infer(own, x, init=(xp.asarray(np.zeros(6)), xp.asarray(np.full(6, 0.1))))
    np.testing.assert_allclose(numpy_of(given.mean), want.mean, atol=1e-6)
    single = ArrayWeights(xp.astype(own.layers[0].weights.array, xp.float32))
    assert fmx.infer(fmx.DEF(fmx.Layer(fmx.Poisson(), single)), x).mean.dtype == xp.float32


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_needs_numpy_says_so(library):
    xp = namespace(library)
    _, own = models(xp, "gaussian")
    with pytest.raises(fmx.ArgumentError, match="NumPy"):
        fmx.infer(own, np.zeros(20), "cavi")
    with pytest.raises(fmx.ArgumentError, match="NumPy"):
        fmx.infer(own, np.zeros(20), fmx.ForestMixture(groups=[[0, 1, 2], [3, 4, 5]]))
    binary = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), own.layers[0].weights), prior=fmx.Prior(fmx.Bernoulli()))
    with pytest.raises(fmx.ArgumentError, match="NumPy"):
        fmx.infer(binary, np.zeros(20))
