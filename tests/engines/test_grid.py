"""Weights in a grid of chunks over rows and columns, in memory: the answers of one matrix."""

import itertools

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.engines.choice import choose_engine
from forestmix.engines.compiled.engine import CompiledEngine
from forestmix.engines.grid import GridEngine
from forestmix.engines.protocol import Spread, Statistics, Want
from forestmix.engines.reference import ReferenceEngine
from forestmix.errors import ArgumentError
from forestmix.weights import as_weights
from support.engine_cases import DATA, FAMILIES, STORAGE, case, families

INNER = {"reference": ReferenceEngine(), "compiled": CompiledEngine()}
ROWS, COLUMNS = (0, 2, 3, 9), (0, 1, 4, 5)


def grid(W, storage="dense", rows=ROWS, columns=COLUMNS):
    return [
        [STORAGE[storage](W[a:b, c:d]) for c, d in itertools.pairwise(columns)] for a, b in itertools.pairwise(rows)
    ]


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("inner", INNER)
def test_statistics_are_those_of_one_matrix(inner, storage, family, data):
    layer, seen, q, W = case(family, storage, data)
    parted = fmx.Layer(layer.family, grid(W, storage), layer.bias)
    engine, plain = GridEngine(INNER[inner]), ReferenceEngine()
    rows, whole = engine.observe(parted, seen), plain.observe(layer, seen)
    given = 0.1 + np.random.default_rng(0).random((1, layer.size))
    for spread in (*Spread, given):
        sums, terms = engine.statistics(parted, rows, q, Want.ALL, spread)
        right, expected = plain.statistics(layer, whole, q, Want.ALL, spread)
        for field in Statistics._fields:
            np.testing.assert_allclose(getattr(sums, field), getattr(right, field), rtol=1e-10, atol=1e-12)
        for got, term in zip(terms, expected, strict=True):
            assert (len(got), got.shape[1], got.dtype) == (got.shape[0], layer.size, term.dtype)
            np.testing.assert_allclose(got, np.broadcast_to(term, got.shape), rtol=1e-10, atol=1e-12)
        for kappa in (terms.kappa, terms.kappa[...]):
            found = *engine.normal_product(parted, kappa, q.mean), *engine.curvatures(parted, kappa, q.sd, Want.ALL)
            products = plain.normal_product(layer, expected.kappa, q.mean)
            wanted = *products, *plain.curvatures(layer, expected.kappa, q.sd, Want.ALL)
            for got, product in zip(found, wanted, strict=True):
                np.testing.assert_allclose(got, product, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("want", [Want.VALUE, Want.GRADIENT, Want.VALUE | Want.INFORMATION])
def test_only_what_is_wanted_is_made(want):
    layer, seen, q, W = case("poisson")
    parted, engine, plain = (
        fmx.Layer(layer.family, grid(W), layer.bias),
        GridEngine(ReferenceEngine()),
        ReferenceEngine(),
    )
    found = engine.statistics(parted, engine.observe(parted, seen), q, want, Spread.SQUARED)[0]
    right = plain.statistics(layer, plain.observe(layer, seen), q, want, Spread.SQUARED)[0]
    for field in Statistics._fields:
        one, other = getattr(found, field), getattr(right, field)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-12)
    kappa = np.ones((1, layer.size))
    assert engine.curvatures(parted, kappa, q.sd, Want.VALUE) == (None, None)
    np.testing.assert_allclose(engine.curvatures(parted, kappa, q.sd, Want.INFORMATION)[1], [(W**2).sum(axis=0)])


def problem(family, seed=1, n=24, m=5):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.7) / 2
    model = fmx.DEF(fmx.Layer(families(n)[family], W, 0.2))
    return model, W, model.sample(rng).x


def same(found, right, tolerance=1e-10):
    assert np.all(found.converged)
    assert np.all(right.converged)
    np.testing.assert_allclose(found.mean, right.mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.sd, right.sd, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.objective, right.objective, rtol=1e-12)


@pytest.mark.parametrize("objective", ["elbo", "fm"])
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_those_of_one_matrix(family, objective):
    model, W, x = problem(family)
    parts = grid(W, "sparse", (0, 7, 8, 24), (0, 2, 5))
    parted = fmx.DEF(fmx.Layer(model.layers[0].family, parts, 0.2))
    options = {"objective": objective, "tol": 1e-12}
    same(fmx.infer(parted, x, **options), fmx.infer(model, x, **options))


@pytest.mark.parametrize("accelerate", ["cg", "direct", False])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_every_kind_of_steps(family, accelerate):
    model, W, x = problem(family)
    parted = fmx.DEF(fmx.Layer(model.layers[0].family, grid(W, "dense", (0, 5, 24), (0, 1, 5)), 0.2))
    options = {"accelerate": accelerate, "tol": 1e-12}
    same(fmx.infer(parted, x, **options), fmx.infer(model, x, **options))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("family", [fmx.Gaussian(0.7), fmx.Poisson()], ids=str)
def test_a_batch_with_missing_entries_and_case_weights(family, dtype):
    rng = np.random.default_rng(4)
    W, weight = rng.standard_normal((6, 9)).astype(dtype), np.array([1.0, 2, 0, 3, 1, 1])
    model, parted = (
        fmx.DEF(fmx.Layer(family, given, case_weights=weight)) for given in (W, grid(W, "dense", (0, 4, 6), (0, 3, 9)))
    )
    x = model.sample(rng, size=4).x
    x[1, 2], x[3, :3] = np.nan, np.nan
    exact = dtype == np.float64
    found, right = (fmx.infer(one, x, tol=1e-12 if exact else 1e-4) for one in (parted, model))
    same(found, right) if exact else np.testing.assert_allclose(found.mean, right.mean, atol=2e-3)
    assert found.mean.dtype == dtype


def test_a_deep_model_and_other_latents_over_a_grid():
    rng = np.random.default_rng(5)
    W, above = rng.standard_normal((12, 4)), rng.standard_normal((4, 2))
    parts = grid(W, "sparse", (0, 5, 12), (0, 3, 4))
    deep = [fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), given), fmx.Layer(fmx.Gaussian(1.0), above)) for given in (W, parts)]
    x = deep[0].sample(rng).x
    right, found = (fmx.infer(model, x, tol=1e-12) for model in deep)
    for one, other in zip(found.layers, right.layers, strict=True):
        np.testing.assert_allclose(one.mean, other.mean, atol=1e-10)
    binary = [fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), given), prior=fmx.Prior(fmx.Bernoulli())) for given in (W, parts)]
    right, found = (fmx.infer(model, x) for model in binary)
    np.testing.assert_allclose(found.mean, right.mean, atol=1e-10)


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_and_entries_are_those_of_the_matrix(storage, dtype):
    rng = np.random.default_rng(6)
    W = (rng.standard_normal((9, 5)) * (rng.random((9, 5)) < 0.6)).astype(dtype)
    weights, kappa = as_weights(grid(W, storage)), rng.random(9)
    close = {"rtol": 1e-6 if dtype == np.float32 else 1e-13, "atol": 1e-6 if dtype == np.float32 else 1e-13}
    for one, other in ((weights, W), (abs(weights), abs(W)), (weights.square(), W**2), (weights.support(), W != 0)):
        y, r = rng.standard_normal((2, 5)).astype(dtype), rng.standard_normal((2, 9)).astype(dtype)
        np.testing.assert_allclose(one.forward(y), y @ other.T, **close)
        np.testing.assert_allclose(one.adjoint(r), r @ other, **close)
        np.testing.assert_allclose(one.toarray(), other, **close)
    gram = weights.gram(kappa)
    np.testing.assert_allclose(np.tril(gram), np.tril(W.T.astype(float) @ (kappa[:, None] * W)), **close)
    np.testing.assert_allclose(np.tril(weights.row_gram(np.ones(5))), np.tril(W.astype(float) @ W.T), **close)
    chosen, picked = np.array([8, 0, 2, 2]), np.array([4, 0, 3])
    np.testing.assert_array_equal(weights.rows(chosen).toarray(), W[chosen])
    np.testing.assert_array_equal(weights.columns(picked).toarray(), W[:, picked])
    np.testing.assert_array_equal(weights.columns().toarray(), W)
    np.testing.assert_array_equal(weights.in_double().toarray(), W)
    stacked = np.concatenate(list(weights.weighted_rows(kappa)))
    np.testing.assert_allclose(stacked, np.sqrt(kappa)[:, None] * W, **close)
    assert (weights.nnz, weights.shape, weights.dtype) == (np.count_nonzero(W), (9, 5), np.dtype(dtype))
    assert repr(weights) == f"ChunkedWeights(9 x 5, {np.dtype(dtype).name}, 3 x 3 chunks)"


def test_which_engine_runs_a_grid():
    small, large = (fmx.Layer(fmx.Gaussian(1.0), [[np.ones((size, size))] * 2]) for size in (2, 600))
    assert choose_engine("auto", fmx.DEF(small), 1).inner.name == "reference"
    assert choose_engine("auto", fmx.DEF(large), 1).inner.name == "compiled"
    assert choose_engine("auto", fmx.DEF(small), 1).name == "grid"


def test_wrong_grids():
    one, other = np.ones((2, 2)), sparse.csr_array(np.ones((2, 3)))
    with pytest.raises(ArgumentError, match=r"every row of chunks of W must have the same number.*got \[1, 2\]"):
        as_weights([[one, other], [one]])
    with pytest.raises(ArgumentError, match=r"same columns and precision; chunk 0 has 2 .* chunk 2 has 3"):
        as_weights([[one, other], [other, one]])
    with pytest.raises(ArgumentError, match=r"side by side must have the same rows; chunk 0 has 2, chunk 1 has 3"):
        as_weights([[one, np.ones((3, 3))]])
    with pytest.raises(ArgumentError, match=r"precision; chunk 1 has 2 of float64, chunk 1 has 2 of float32"):
        as_weights([[one, np.ones((2, 2), np.float32)]])
