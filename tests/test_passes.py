"""Fused passes against plain NumPy on a dense copy of W, for every family, layout and number of threads."""

from itertools import pairwise

import numba
import numpy as np
import pytest
import scipy

import forestmix as fmx
from forestmix import memory
from forestmix.engines.compiled import threaded
from forestmix.model import observations
from forestmix.partition import Partition
from forestmix.passes import has_fused_pass, normal_image
from forestmix.problem.given import GaussianFactors
from forestmix.statistics import Site
from forestmix.weights import as_weights
from support.site_cases import LAYOUTS, SHAPES, TALL, TOLERANCE, cases, expected


@pytest.mark.parametrize(
    ("layout", "shape"), [*((layout, shape) for layout in LAYOUTS for shape in SHAPES), ("column-major", TALL)], ids=str
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_statistics_follow_their_formulas(objective, layout, dtype, shape, threads):
    for layer, W, data, q in cases(layout, dtype, shape):
        for both in (False, True):
            found = Site(layer, data, objective, both=both).statistics(q)
            value, gradient, curvature, exact, eta, error, kappa = expected(layer, W, data, q, objective)
            scale = 1 + np.abs(value)
            tolerance = TOLERANCE[dtype]
            assert abs(found.value[0] - value) < tolerance * scale
            pairs = [(found.gradient, gradient), (found.eta, eta), (found.error, error), (found.kappa, kappa)]
            pairs += [(found.curvature, curvature)] if both or objective == "fm" else []
            pairs += [(found.exact, exact)] if both or objective == "elbo" else []
            for got, want in pairs:
                limit = tolerance * (1 + np.abs(want).max())
                assert np.abs(np.broadcast_to(got, (1, len(want)))[0] - want).max() < limit, layer.family
            assert (found.curvature is None) == (not both and objective == "elbo")
            assert (found.exact is None) == (not both and objective == "fm")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("batch", [1, 3])
def test_normal_image(layout, dtype, batch, threads):
    rng = np.random.default_rng(0)
    for n, m in [*SHAPES, (40, 1200), TALL]:
        W = rng.standard_normal((n, m)).astype(dtype)
        p = rng.standard_normal((batch, m)).astype(dtype)
        kappa, precision = rng.random((1, n)).astype(dtype), rng.random(m).astype(dtype)
        image, curvature = normal_image(as_weights(LAYOUTS[layout](W)), p, kappa, precision)
        A = (W.T.astype(np.float64) * kappa[0]) @ W + np.diag(precision)
        scale = TOLERANCE[dtype] * 100
        np.testing.assert_allclose(image, p @ A, atol=scale)
        np.testing.assert_allclose(curvature, np.einsum("kj,jl,kl->k", p, A, p, dtype=float), atol=scale * m)


@pytest.mark.parametrize("layout", ["row-major", "column-major", "sparse"])
def test_a_pass_repeats_to_the_last_bit(layout, threads):
    layer, _, data, q = list(cases(layout, np.float64, (130, 70)))[1]
    first, second = (Site(layer, data, "elbo", both=True).statistics(q) for _ in range(2))
    for name in ("value", "gradient", "curvature", "exact", "magnitude"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


def banded(n, m, width):
    """Return a sparse W whose rows go from the first columns to the last ones; some rows at the begin have none."""
    W = np.zeros((n, m))
    for i in range(n // 4, n):
        start = (m - width) * i // n
        W[i, start : start + width] = np.random.default_rng(i).standard_normal(width)
    return W


def test_threads_have_sums_for_the_columns_of_their_rows_only(threads, monkeypatch):
    # What memory holds where a thread has nothing to add up must not count.
    monkeypatch.setattr(memory, "empty", lambda shape, dtype: np.full(shape, np.nan, dtype))
    W = banded(60, 40, 5)
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), scipy.sparse.csr_array(W / 3)))
    data = observations(model, np.arange(60.0) % 4)
    q = GaussianFactors(np.full((1, 40), 0.1), np.full((1, 40), 0.3))
    value, gradient, curvature, exact, *_ = expected(model.layers[0], W / 3, data, q, "elbo")
    A = (W.T / 3) @ (W / 3) + np.eye(40)
    found = Site(model.layers[0], data, "elbo", both=True).statistics(q)
    for got, want in ((found.gradient, gradient), (found.curvature, curvature), (found.exact, exact)):
        np.testing.assert_allclose(got[0], want, rtol=1e-10, atol=1e-10)
    assert found.value[0] == pytest.approx(value)
    image, _ = normal_image(model.layers[0].weights, q.mean, np.ones((1, 60)), np.ones(40))
    np.testing.assert_allclose(image[0], A @ q.mean[0], atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_reach_of_rows(count):
    W = banded(60, 40, 5)
    weights = as_weights(scipy.sparse.csr_array(W))
    cuts = weights.row_cuts(count)
    for (begin, end), (low, high) in zip(pairwise(cuts), weights.reach(count), strict=True):
        used = np.flatnonzero(W[begin:end].any(axis=0))
        assert (low, high) == ((used[0], used[-1] + 1) if len(used) else (0, 0))
    assert (as_weights(scipy.sparse.csr_array((3, 4))).reach(2) == 0).all()


def test_batches_and_single_observations_agree():
    rng = np.random.default_rng(2)
    for layout in LAYOUTS:
        W = rng.standard_normal((20, 7)) * (rng.random((20, 7)) < 0.6)
        model = fmx.DEF(fmx.Layer(fmx.Poisson(), LAYOUTS[layout](W / 3)))
        x = model.sample(rng, 4).x
        mean, sd = rng.standard_normal((4, 7)), 0.1 + rng.random((4, 7))
        batch = Site(model.layers[0], observations(model, x), "elbo", both=True).statistics(GaussianFactors(mean, sd))
        for k in range(4):
            site = Site(model.layers[0], observations(model, x[k]), "elbo", both=True)
            one = site.statistics(GaussianFactors(mean[k : k + 1], sd[k : k + 1]))
            for name in ("value", "gradient", "curvature", "exact", "eta", "error", "kappa", "magnitude"):
                np.testing.assert_allclose(getattr(batch, name)[k], getattr(one, name)[0], rtol=1e-10, atol=1e-10)


def test_overflow_is_an_infinite_value_and_never_nan():
    for layout in ("row-major", "column-major", "sparse"):
        model = fmx.DEF(fmx.Layer(fmx.Poisson(), LAYOUTS[layout](np.full((5, 3), 400.0))))
        site = Site(model.layers[0], observations(model, np.arange(5.0)), "elbo")
        found = site.statistics(GaussianFactors(np.full((1, 3), 5.0), np.ones((1, 3))))
        assert found.value[0] == -np.inf


def test_what_has_a_fused_pass():
    W = np.ones((6, 4))
    found = {layout: has_fused_pass(as_weights(LAYOUTS[layout](W))) for layout in LAYOUTS}
    assert found == dict.fromkeys(LAYOUTS, True) | {"cut from a larger array": False, "sparse by columns": False}
    assert not has_fused_pass(fmx.Convolution(np.ones((3, 3)), (5, 5)))


def test_groups_do_not_take_the_fused_pass():
    W = np.random.default_rng(0).standard_normal((6, 4))
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), W))
    groups = Partition.from_lists([[0, 1], [2, 3]])
    assert not Site(model.layers[0], observations(model, np.ones(6)), "fm", groups).fused


def test_threads_are_given_to_large_passes_only():
    assert threaded.threads(100) == 1
    assert threaded.threads(10**9) == numba.get_num_threads()
    assert np.array_equal(threaded.even_cuts(10, 3), [0, 3, 6, 10])


def test_an_error_in_any_thread_reaches_the_caller():
    done = []

    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        threaded.run_all([lambda: done.append(1), fails, lambda: done.append(2)])
    assert sorted(done) == [1, 2]
