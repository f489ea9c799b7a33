"""Layers with W in every layout, and their site statistics from the formulas, for the tests of passes and steps."""

import numpy as np
from scipy import sparse

import forestmix as fmx
from forestmix.model import observations
from forestmix.problem.given import GaussianFactors

LAYOUTS = {
    "row-major": np.ascontiguousarray,
    "column-major": np.asfortranarray,
    "sparse": sparse.csr_array,
    "sparse by columns": sparse.csc_array,
    "cut from a larger array": lambda W: np.pad(W, 3)[3:-3, 3:-3],
    "sparse with 64-bit indices": lambda W: _with_long_indices(sparse.csr_array(W)),
}
SHAPES = [(1, 1), (3, 5), (4, 4), (9, 2), (37, 23), (130, 70)]
#: So tall that a column-major W is read in several blocks of rows, in either precision.
TALL = (2500, 480)
TOLERANCE = {np.float64: 1e-11, np.float32: 3e-4}


def _with_long_indices(matrix):
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return matrix


def families(n, rng):
    yield fmx.Gaussian(sd=0.5 + rng.random(n))
    yield fmx.Bernoulli()
    yield fmx.Binomial(rng.integers(1, 9, n))
    yield fmx.Poisson()
    yield fmx.Mixed([fmx.Gaussian(0.3), fmx.Poisson(), fmx.Bernoulli()], rng.integers(0, 3, n))


def cases(layout, dtype, shape):
    """Yield a layer with W in the layout, its W as an array, data with a missing entry, and factors."""
    rng = np.random.default_rng(shape[0])
    n, m = shape
    W = (rng.standard_normal(shape) * (rng.random(shape) < 0.7) / np.sqrt(m)).astype(dtype)
    for family in families(n, rng):
        layer = fmx.Layer(family, LAYOUTS[layout](W), rng.standard_normal(n).astype(dtype))
        model = fmx.DEF(layer)
        x = np.array(model.sample(rng).x)
        if n > 2:
            x[1] = np.nan
        q = GaussianFactors(rng.standard_normal((1, m)).astype(dtype), (0.1 + rng.random((1, m))).astype(dtype))
        yield model.layers[0], W.astype(np.float64), observations(model, x), q
    # One number serves all rows, and no entry is missing.
    for family in (fmx.Gaussian(sd=0.4), fmx.Bernoulli(), fmx.Binomial(5), fmx.Poisson()):
        model = fmx.DEF(fmx.Layer(family, LAYOUTS[layout](W), 0.3))
        yield model.layers[0], W.astype(np.float64), observations(model, model.sample(rng).x), q


def expected(layer, W, data, q, objective):
    """Return the site statistics from their formulas, row by row in float64."""
    mean, sd = q.mean[0].astype(np.float64), q.sd[0].astype(np.float64)
    eta, s, v = W @ mean + layer.bias, np.abs(W) @ sd, W**2 @ sd**2
    rows = layer.family.expectations(data.x[0].astype(np.float64), eta, s if objective == "fm" else np.sqrt(v))
    seen = np.ones(len(eta), bool) if data.observed is None else data.observed[0]
    value, error, kappa = (np.where(seen, part, 0.0) for part in rows)
    return value.sum(), W.T @ error, np.abs(W).T @ (s * kappa) / sd, (W**2).T @ kappa, eta, error, kappa
