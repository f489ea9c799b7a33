"""Compiled passes against their formulas on a dense copy of W: every family, layout, shape and number of threads."""

import numpy as np
import pytest
import scipy

import forestmix as fmx
from forestmix.engines.compiled.engine import CompiledEngine
from forestmix.engines.protocol import Spread, Want
from forestmix.model import observations
from support.site_cases import LAYOUTS, SHAPES, TALL, TOLERANCE, GaussianFactors, cases, expected

ENGINE = CompiledEngine()
SPREADS = {"elbo": Spread.SQUARED, "fm": Spread.ABSOLUTE}


def evaluated(layer, data, q, spread):
    return ENGINE.statistics(layer, ENGINE.observe(layer, data), q, Want.ALL, spread)


@pytest.mark.parametrize(
    ("layout", "shape"), [*((layout, shape) for layout in LAYOUTS for shape in SHAPES), ("column-major", TALL)], ids=str
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("objective", SPREADS)
def test_statistics_follow_their_formulas(objective, layout, dtype, shape, threads):
    for layer, W, data, q in cases(layout, dtype, shape):
        found, terms = evaluated(layer, data, q, SPREADS[objective])
        value, gradient, curvature, exact, *rows = expected(layer, W, data, q, objective)
        tolerance = TOLERANCE[dtype]
        assert abs(found.value[0] - value) < tolerance * (1 + np.abs(value))
        sums = (found.gradient, found.curvature_sd / q.sd, found.information)
        for got, want in zip((*sums, *terms), (gradient, curvature, exact, *rows), strict=True):
            limit = tolerance * (1 + np.abs(want).max())
            assert np.abs(np.broadcast_to(got, (1, len(want)))[0] - want).max() < limit, layer.family


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("batch", [1, 3])
def test_normal_product(layout, dtype, batch, threads):
    rng = np.random.default_rng(0)
    for n, m in [*SHAPES, (40, 1200), TALL]:
        W = rng.standard_normal((n, m)).astype(dtype)
        p, kappa = rng.standard_normal((batch, m)).astype(dtype), rng.random((1, n)).astype(dtype)
        layer = fmx.Layer(fmx.Gaussian(1.0), LAYOUTS[layout](W))
        image, squares = ENGINE.normal_product(layer, kappa, p)
        A = (W.T.astype(np.float64) * kappa[0]) @ W
        scale = TOLERANCE[dtype] * 100
        np.testing.assert_allclose(image, p @ A, atol=scale)
        np.testing.assert_allclose(squares, np.einsum("kj,jl,kl->k", p, A, p, dtype=float), atol=scale * m)


@pytest.mark.parametrize("layout", ["row-major", "column-major", "sparse"])
def test_a_pass_repeats_to_the_last_bit(layout, threads):
    layer, _, data, q = list(cases(layout, np.float64, (130, 70)))[1]
    (first, _), (second, _) = (evaluated(layer, data, q, Spread.SQUARED) for _ in range(2))
    for name in ("value", "gradient", "curvature_sd", "information", "magnitude"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


def test_rows_that_go_from_the_first_columns_to_the_last(threads):
    """What one thread adds up has few columns in common with another's, and some rows have no entries."""
    W = np.zeros((60, 40))
    for i in range(15, 60):
        start = 35 * i // 60
        W[i, start : start + 5] = np.random.default_rng(i).standard_normal(5) / 3
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), scipy.sparse.csr_array(W)))
    layer, data = model.layers[0], observations(model, np.arange(60.0) % 4)
    q = GaussianFactors(np.full((1, 40), 0.1), np.full((1, 40), 0.3))
    value, gradient, curvature, exact, *_ = expected(layer, W, data, q, "elbo")
    found, _ = evaluated(layer, data, q, Spread.SQUARED)
    for got, want in (
        (found.gradient, gradient), (found.curvature_sd / q.sd, curvature), (found.information, exact),
    ):  # fmt: skip
        np.testing.assert_allclose(got[0], want, rtol=1e-10, atol=1e-10)
    assert found.value[0] == pytest.approx(value)
    image, _ = ENGINE.normal_product(layer, np.ones((1, 60)), q.mean)
    np.testing.assert_allclose(image[0], W.T @ W @ q.mean[0], atol=1e-12)


def test_batches_and_single_observations_agree():
    rng = np.random.default_rng(2)
    for make in LAYOUTS.values():
        W = rng.standard_normal((20, 7)) * (rng.random((20, 7)) < 0.6)
        model = fmx.DEF(fmx.Layer(fmx.Poisson(), make(W / 3)))
        layer, x = model.layers[0], model.sample(rng, 4).x
        mean, sd = rng.standard_normal((4, 7)), 0.1 + rng.random((4, 7))
        batch, rows = evaluated(layer, observations(model, x), GaussianFactors(mean, sd), Spread.SQUARED)
        for k in range(4):
            own = GaussianFactors(mean[k : k + 1], sd[k : k + 1])
            one, terms = evaluated(layer, observations(model, x[k]), own, Spread.SQUARED)
            for name in ("value", "gradient", "curvature_sd", "information", "magnitude"):
                np.testing.assert_allclose(getattr(batch, name)[k], getattr(one, name)[0], rtol=1e-10, atol=1e-10)
            for got, want in zip(rows, terms, strict=True):
                np.testing.assert_allclose(got[k], want[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_overflow_is_an_infinite_value_and_never_nan(layout):
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), LAYOUTS[layout](np.full((5, 3), 400.0))))
    q = GaussianFactors(np.full((1, 3), 5.0), np.ones((1, 3)))
    found, _ = evaluated(model.layers[0], observations(model, np.arange(5.0)), q, Spread.SQUARED)
    assert found.value[0] == -np.inf
