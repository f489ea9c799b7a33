"""Layers, data and factors for the tests of engines: single observations, batches, and missing entries."""

from typing import NamedTuple

import numpy as np
from scipy import sparse

import forestmix as fmx
from forestmix.model import observations


class GaussianFactors(NamedTuple):
    """Means and standard deviations, all that engines ask of q."""

    mean: np.ndarray
    sd: np.ndarray


STORAGE = {"dense": np.ascontiguousarray, "sparse": sparse.csr_array}
DATA = ("single", "batch", "missing", "shared sd")


def families(n):
    rng = np.random.default_rng(n)
    return {
        "gaussian": fmx.Gaussian(sd=0.5 + rng.random(n)),
        "bernoulli": fmx.Bernoulli(),
        "binomial": fmx.Binomial(rng.integers(1, 9, n)),
        "poisson": fmx.Poisson(),
        "mixed": fmx.Mixed([fmx.Gaussian(0.3), fmx.Poisson(), fmx.Bernoulli(), fmx.Binomial(4)], np.arange(n) % 4),
        "mixed gaussian": fmx.Mixed([fmx.Gaussian(0.3), fmx.Gaussian(2.0)], np.arange(n) % 2),
    }


FAMILIES = tuple(families(8))


def case(family, storage="dense", data="single", dtype=np.float64, shape=(9, 5)):
    """Return a layer, its data, factors of its latents, and W as an array."""
    rng = np.random.default_rng(3)
    n, m = shape
    W = (rng.standard_normal(shape) * (rng.random(shape) < 0.8)).astype(dtype)
    model = fmx.DEF(fmx.Layer(families(n)[family], STORAGE[storage](W), rng.standard_normal(n).astype(dtype)))
    count = 1 if data == "single" else 3
    x = model.sample(rng, size=count).x
    if data == "missing":
        x[rng.random(x.shape) < 0.3] = np.nan
    mean, sd = rng.standard_normal((count, m)), 0.1 + rng.random((1 if data == "shared sd" else count, m))
    return model.layers[0], observations(model, x), GaussianFactors(mean.astype(dtype), sd.astype(dtype)), W
