"""The reference engine gives the same answers in every array library, in arrays of that library."""

import subprocess
import sys

import array_api_compat
import numpy as np
import pytest

import forestmix as fmx
from forestmix.engines.protocol import Spread, Want
from forestmix.engines.reference import ReferenceEngine
from forestmix.errors import ArgumentError
from forestmix.weights.arrays import ArrayWeights
from support.array_libraries import LIBRARIES, namespace, numpy_of
from support.engine_cases import DATA, FAMILIES, GaussianFactors, case

ENGINE = ReferenceEngine()
SUMS = ("value", "magnitude", "gradient", "curvature_sd", "information")


def in_library(xp, layer, q, W):
    own = fmx.Layer(layer.family, ArrayWeights(xp.asarray(W)), layer.bias)
    return own, GaussianFactors(xp.asarray(q.mean), xp.asarray(q.sd))


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_statistics_are_the_same(library, family, data):
    xp = namespace(library)
    layer, seen, q, W = case(family, data=data)
    own, factors = in_library(xp, layer, q, W)
    mine = ENGINE.observe(own, seen)
    for spread in Spread:
        right, _ = ENGINE.statistics(layer, ENGINE.observe(layer, seen), q, Want.ALL, spread)
        got, terms = ENGINE.statistics(own, mine, factors, Want.ALL, spread)
        for name in SUMS:
            one = getattr(got, name)
            assert array_api_compat.array_namespace(one) is array_api_compat.array_namespace(own.weights.array)
            assert array_api_compat.device(one) == array_api_compat.device(own.weights.array)
            np.testing.assert_allclose(numpy_of(one), getattr(right, name), rtol=1e-10, atol=1e-12)
        assert type(terms.kappa) is type(own.weights.array)


@pytest.mark.parametrize("library", LIBRARIES)
def test_single_precision_stays(library):
    xp = namespace(library)
    layer, seen, q, W = case("mixed", data="missing", dtype=np.float32)
    own, factors = in_library(xp, layer, q, W)
    got, terms = ENGINE.statistics(own, ENGINE.observe(own, seen), factors, Want.ALL, Spread.SQUARED)
    right, _ = ENGINE.statistics(layer, ENGINE.observe(layer, seen), q, Want.ALL, Spread.SQUARED)
    assert got.gradient.dtype == got.information.dtype == terms.kappa.dtype == xp.float32
    assert got.value.dtype == xp.float64
    for name in SUMS:
        np.testing.assert_allclose(numpy_of(getattr(got, name)), getattr(right, name), rtol=1e-4)


@pytest.mark.parametrize("library", LIBRARIES)
def test_products_and_chosen_observations(library):
    xp = namespace(library)
    layer, seen, q, W = case("bernoulli", data="missing")
    own, factors = in_library(xp, layer, q, W)
    kappa = np.random.default_rng(0).random((3, 9))
    image, form = ENGINE.normal_product(own, xp.asarray(kappa), factors.mean)
    right = ENGINE.normal_product(layer, kappa, q.mean)
    np.testing.assert_allclose(numpy_of(image), right[0], rtol=1e-12)
    np.testing.assert_allclose(numpy_of(form), right[1], rtol=1e-12)
    keep = xp.asarray(np.array([2, 0]))
    chosen = GaussianFactors(xp.take(factors.mean, keep, axis=0), xp.take(factors.sd, keep, axis=0))
    got, _ = ENGINE.statistics(own, ENGINE.observe(own, seen).take(keep), chosen, Want.GRADIENT, Spread.ABSOLUTE)
    whole, _ = ENGINE.statistics(layer, ENGINE.observe(layer, seen), q, Want.GRADIENT, Spread.ABSOLUTE)
    np.testing.assert_allclose(numpy_of(got.gradient), whole.gradient[[2, 0]], rtol=1e-12)


@pytest.mark.parametrize("kept", [0, 2**26])
@pytest.mark.parametrize("library", LIBRARIES)
def test_weights_are_weights(library, kept, monkeypatch):
    monkeypatch.setattr("forestmix.weights.arrays.KEPT", kept)
    xp = namespace(library)
    W = np.array([[1.0, 0.0, -2.0], [0.0, 3.0, 0.5]])
    weights = ArrayWeights(xp.asarray(W))
    assert (weights.shape, weights.dtype, weights.nnz) == ((2, 3), np.float64, 4)
    for one, right in ((weights, W), (abs(weights), abs(W)), (weights.square(), W**2), (weights.support(), W != 0)):
        y, r = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]), np.array([2.0, -1.0])
        np.testing.assert_array_equal(numpy_of(one.forward(xp.asarray(y))), y @ right.T)
        np.testing.assert_array_equal(numpy_of(one.adjoint(xp.asarray(r))), r @ right)
        np.testing.assert_array_equal(one.toarray(), right)
        np.testing.assert_array_equal(one.columns([2, 0]).toarray(), right[:, [2, 0]])
        np.testing.assert_array_equal(one.rows().toarray(), right)
    assert (abs(weights) is abs(weights)) == (kept > 0)
    with pytest.raises(ArgumentError, match=r"y must have last dimension 3.*got an array of shape \(2,\)"):
        weights.forward(xp.asarray(np.zeros(2)))
    with pytest.raises(ArgumentError, match=r"W must hold float32 or float64 numbers; got dtype .*int"):
        ArrayWeights(xp.asarray(np.ones((2, 2), int)))
    with pytest.raises(ArgumentError, match="W must be finite"):
        ArrayWeights(xp.asarray(np.full((2, 2), np.nan)))


def test_a_whole_evaluation_can_be_traced():
    jax = pytest.importorskip("jax")
    xp = namespace("jax")
    layer, seen, q, W = case("mixed", data="missing")
    own, factors = in_library(xp, layer, q, W)
    data = ENGINE.observe(own, seen)

    def value(mean):
        return ENGINE.statistics(own, data, GaussianFactors(mean, factors.sd), Want.VALUE, Spread.ABSOLUTE)[
            0
        ].value.sum()

    right, _ = ENGINE.statistics(layer, ENGINE.observe(layer, seen), q, Want.GRADIENT, Spread.ABSOLUTE)
    np.testing.assert_allclose(jax.jit(jax.grad(value))(factors.mean), right.gradient, rtol=1e-8, atol=1e-10)


def test_jax_without_double_precision():
    """Then row terms are in single precision as well, and nothing asks for more."""
    pytest.importorskip("jax")
    code = """
import warnings
import numpy as np, jax.numpy as jnp
import forestmix as fmx
from forestmix.engines.protocol import Spread, Want
from forestmix.engines.reference import ReferenceEngine
from forestmix.model import observations
from types import SimpleNamespace
from forestmix.weights.arrays import ArrayWeights
warnings.simplefilter("error")
W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
family = fmx.Mixed([fmx.Poisson(), fmx.Bernoulli()], [0, 1, 0, 1])
engine, values = ReferenceEngine(), []
for weights, xp in ((W, np), (ArrayWeights(jnp.asarray(W)), jnp)):
    model = fmx.DEF(fmx.Layer(family, weights))
    data = engine.observe(model.layers[0], observations(model, np.ones(4)))
    q = SimpleNamespace(mean=xp.ones((1, 3), xp.float32), sd=xp.full((1, 3), 0.7, xp.float32))
    values.append(float(engine.statistics(model.layers[0], data, q, Want.VALUE, Spread.ABSOLUTE)[0].value[0]))
print(abs(values[0] - values[1]) < 1e-5 * abs(values[0]))
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout.strip() == "True", output.stderr
