"""Every engine against the reference engine on the dense matrix in float64, whatever W is stored as."""

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.engines.compiled.engine import CompiledEngine
from forestmix.engines.protocol import Spread, Statistics, Want
from forestmix.engines.reference import ReferenceEngine
from forestmix.errors import ArgumentError
from forestmix.model import Observations, observations
from forestmix.weights import Convolution, LayeredWeights, as_weights
from support.engine_cases import GaussianFactors, families

ENGINES = {"reference": ReferenceEngine(), "compiled": CompiledEngine()}
REFERENCE = ReferenceEngine()


def matrix(n, m, dtype):
    """Return entries with many zeros, a row and a column of them, so that rows and tiles are of all lengths."""
    rng = np.random.default_rng(n + m)
    W = rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.6) / 3
    W[2], W[:, m // 2] = 0, 0
    return W.astype(dtype)


def layered(dtype):
    return LayeredWeights([as_weights(matrix(90, 20, dtype)), as_weights(sparse.csr_array(matrix(20, 7, dtype)))])


WEIGHTS = {
    "dense by rows": lambda dtype: as_weights(matrix(150, 37, dtype)),
    "dense by columns": lambda dtype: as_weights(np.asfortranarray(matrix(150, 37, dtype))),
    "a part of an array": lambda dtype: as_weights(matrix(150, 40, dtype)[:, 2:39]),
    "csr": lambda dtype: as_weights(sparse.csr_array(matrix(150, 37, dtype))),
    "csc": lambda dtype: as_weights(sparse.csc_array(matrix(150, 37, dtype))),
    "convolution": lambda dtype: Convolution(matrix(6, 3, dtype).reshape(2, 1, 3, 3), (12, 12)),
    "layered": layered,
}
DATA = ("single", "batch", "missing", "single missing")
SPREADS = {"none": Spread.NONE, "absolute": Spread.ABSOLUTE, "squared": Spread.SQUARED, "given": None}
ROWS = ("gaussian", "bernoulli", "binomial", "poisson", "mixed")


def case(kind, family, data, dtype):
    """Return a layer, the same with W dense in float64, data, and factors."""
    rng = np.random.default_rng(8)
    weights = WEIGHTS[kind](dtype)
    n, m = weights.shape
    bias = (0.3 * rng.standard_normal(n)).astype(dtype)
    layer = fmx.Layer(families(n)[family], weights, bias)
    plain = fmx.Layer(families(n)[family], weights.toarray().astype(np.float64), bias)
    plain.family = layer.family  # parameters in the same precision
    count = 1 if data.startswith("single") else 3
    x = fmx.DEF(layer).sample(rng, size=count).x
    if data.endswith("missing"):
        x[rng.random(x.shape) < 0.3] = np.nan
    mean, sd = 0.5 * rng.standard_normal((count, m)), 0.1 + rng.random((count, m))
    return layer, plain, observations(fmx.DEF(layer), x), GaussianFactors(mean.astype(dtype), sd.astype(dtype))


def close(got, right, dtype, scale=1.0):
    if right is None:
        assert got is None
        return
    got, right = np.broadcast_arrays(got, right)
    tolerance = scale * (1e-10 if dtype == np.float64 else 3e-5)
    np.testing.assert_allclose(got, right, rtol=tolerance, atol=tolerance * max(np.abs(right).max(), 1e-3))


def agree(found, right, dtype):
    (got, terms), (sums, rows) = found, right
    scale = max(1.0, float(np.max(sums.magnitude)) / np.abs(sums.value).min()) if sums.value is not None else 1.0
    for field in Statistics._fields:
        one, other = getattr(got, field), getattr(sums, field)
        close(one, other, dtype, scale if field == "value" else 10.0)
        if one is not None:
            assert one.shape == other.shape
            assert one.dtype == (np.float64 if field in ("value", "magnitude") else dtype)
    for one, other in zip(terms, rows, strict=True):
        assert one.shape == other.shape
        assert one.dtype == dtype
        close(one, other, dtype, 10.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("family", ROWS)
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("name", ENGINES)
def test_statistics(name, kind, family, data, dtype):
    engine = ENGINES[name]
    layer, plain, seen, q = case(kind, family, data, dtype)
    rows, right = engine.observe(layer, seen), REFERENCE.observe(plain, seen)
    for spread in SPREADS.values():
        if spread is None:
            spread = 0.1 + np.random.default_rng(0).random((1, layer.size)).astype(dtype)
        for want in (Want.ALL, Want.VALUE, Want.GRADIENT, Want.GRADIENT | Want.INFORMATION, Want.CURVATURE):
            found = engine.statistics(layer, rows, q, want, spread)
            agree(found, REFERENCE.statistics(plain, right, q, want, spread), dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("name", ENGINES)
def test_products_at_given_rows(name, kind, dtype):
    engine, rng = ENGINES[name], np.random.default_rng(1)
    for data in ("single", "batch"):
        layer, plain, _, q = case(kind, "gaussian", data, dtype)
        for count in {1, len(q.mean)}:
            kappa = rng.random((count, layer.size)).astype(dtype)
            wide = kappa.astype(np.float64)
            for want in (Want.CURVATURE, Want.INFORMATION, Want.ALL, Want.VALUE):
                got, right = engine.curvatures(layer, kappa, q.sd, want), REFERENCE.curvatures(plain, wide, q.sd, want)
                for one, other in zip(got, right, strict=True):
                    close(one, other, dtype)
            got, right = engine.normal_product(layer, kappa, q.mean), REFERENCE.normal_product(plain, wide, q.mean)
            assert got[0].dtype == dtype
            assert got[0].shape == right[0].shape
            close(got[0], right[0], dtype, 10.0)
            close(got[1], right[1], np.float64 if dtype == np.float64 else dtype, 10.0)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("family", ROWS)
@pytest.mark.parametrize("name", ENGINES)
def test_a_shared_spread_and_chosen_observations(name, family, data):
    engine = ENGINES[name]
    layer, plain, seen, q = case("dense by rows", family, data, np.float64)
    shared = GaussianFactors(q.mean, q.sd[:1])
    found = engine.statistics(layer, engine.observe(layer, seen), shared, Want.ALL, Spread.SQUARED)
    agree(
        found, REFERENCE.statistics(plain, REFERENCE.observe(plain, seen), shared, Want.ALL, Spread.SQUARED), np.float64
    )
    keep = np.array([0] if len(q.mean) == 1 else [2, 0])
    some = GaussianFactors(q.mean[keep], q.sd[keep])
    got = engine.statistics(layer, engine.observe(layer, seen).take(keep), some, Want.ALL, Spread.ABSOLUTE)
    chosen = REFERENCE.observe(plain, seen.take(keep))
    agree(got, REFERENCE.statistics(plain, chosen, some, Want.ALL, Spread.ABSOLUTE), np.float64)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("name", ENGINES)
def test_all_observations_miss_the_same_entries(name, kind):
    layer, plain, seen, q = case(kind, "mixed", "batch", np.float64)
    some = Observations(seen.x, np.random.default_rng(0).random((1, layer.size)) < 0.7, False)
    engine = ENGINES[name]
    found = engine.statistics(layer, engine.observe(layer, some), q, Want.ALL, Spread.SQUARED)
    agree(found, REFERENCE.statistics(plain, REFERENCE.observe(plain, some), q, Want.ALL, Spread.SQUARED), np.float64)


@pytest.mark.parametrize("name", ENGINES)
def test_rows_that_no_engine_knows(name):
    class Unknown(fmx.Poisson):
        def primitive(self, x):
            return None

    class Strange(fmx.Poisson):
        def primitive(self, x):
            return super().primitive(x)._replace(kind=np.array(7))

    layer, _, seen, _ = case("csr", "poisson", "single", np.float64)
    for family, message in ((Unknown(), r"family must have rows that engines know.*Unknown"), (Strange(), "got 7")):
        layer.family = family
        with pytest.raises(ArgumentError, match=message):
            ENGINES[name].observe(layer, seen)


@pytest.mark.parametrize("name", ENGINES)
def test_a_missing_entry_counts_nothing_however_its_row_overflows(name):
    engine, model = ENGINES[name], fmx.DEF(fmx.Layer(fmx.Poisson(), np.array([[1.0], [2000.0]])))
    layer, q = model.layers[0], GaussianFactors(np.ones((1, 1)), np.ones((1, 1)))
    for x, finite in ((np.array([2.0, np.nan]), True), (np.array([2.0, 3.0]), False)):
        got, _ = engine.statistics(layer, engine.observe(layer, observations(model, x)), q, Want.ALL, Spread.SQUARED)
        assert np.isfinite([got.value, got.gradient[0], got.curvature_sd[0], got.information[0]]).all() == finite
        assert finite or got.value == -np.inf
