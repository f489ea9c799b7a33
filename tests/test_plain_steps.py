"""Plain steps that come with the statistics before them, for every way W can lie: their formulas and what they keep."""

import numpy as np
import pytest

import forestmix as fmx
from forestmix import memory
from forestmix.inference.plain_sites import ColumnSite, PlainSite, RowSite
from forestmix.model import observations
from forestmix.posterior import GaussianFactors
from forestmix.weights import sparse_columns
from site_cases import LAYOUTS, SHAPES, TALL, TOLERANCE, cases, expected

BY_COLUMNS = ("column-major", "sparse by columns")
PLAIN = {name: LAYOUTS[name] for name in ("row-major", "sparse", *BY_COLUMNS)}
PRIOR = fmx.Prior(fmx.Gaussian(0.7), bias=0.2)


@pytest.fixture(params=PLAIN)
def layout(request):
    return request.param


def plain_problem(layer, x, objective):
    model = fmx.DEF(layer, prior=PRIOR)
    problem = fmx.ForestMixture(objective=objective, accelerate=False).problem(model, observations(model, x))
    assert isinstance(problem.site, PlainSite)
    return problem


def close(found, wanted, dtype):
    wanted = np.asarray(wanted)
    assert np.abs(np.squeeze(found) - wanted).max() < TOLERANCE[dtype] * (1 + np.abs(wanted).max())


@pytest.mark.parametrize("shape", [shape for shape in [*SHAPES, TALL] if min(shape) > 1], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_a_step_follows_its_formulas(objective, dtype, shape, layout, threads):
    for layer, W, data, q in cases(layout, dtype, shape):
        x = data.x[0] if data.observed is None else np.where(data.observed[0], data.x[0], np.nan)
        found = plain_problem(layer, x, objective).site.statistics(q)
        value, gradient, D, H, eta, error, kappa = expected(layer, W, data, q, objective)
        assert abs(found.value[0] - value) < TOLERANCE[dtype] * (1 + abs(value))
        for got, want in [(found.gradient, gradient), (found.eta, eta), (found.error, error), (found.kappa, kappa)]:
            close(np.broadcast_to(got, (1, len(want))), want, dtype)
        close(found.curvature, D, dtype)
        assert (found.exact is None) == (objective == "fm")
        precision = 0.7**-2
        slope = gradient - (q.mean[0].astype(float) - 0.2) * precision
        mean = q.mean[0] + slope / (precision + D)
        sd = 1 / np.sqrt(precision + (D if objective == "fm" else H))
        close(found.ahead.q.mean, mean, dtype)
        close(found.ahead.q.sd, sd, dtype)
        close(found.ahead.slope, slope, dtype)
        form = precision * np.sum((q.mean[0].astype(float) - 0.2) ** 2)
        assert abs(found.ahead.prior_form[0] - form) < TOLERANCE[dtype] * (1 + form)
        if layout not in BY_COLUMNS:
            if layout == "sparse":
                close(found.ahead.prepared, np.stack([mean, sd], axis=1), dtype)
            continue
        sums = found.ahead.prepared.added_up(layer.weights)
        close(sums.linear, W @ mean, dtype)
        close(sums.absolute, np.abs(W) @ sd, dtype)
        if objective == "elbo" and not layer.family.curvature_is_constant:
            close(sums.squared, W**2 @ sd**2, dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_spreads_that_have_settled_are_the_very_same(dtype, layout, threads):
    """Gaussian rows on the ELBO: the first step finds the spreads, and later ones take all that hangs on them over."""
    rng = np.random.default_rng(8)
    W = PLAIN[layout](rng.standard_normal((30, 11)).astype(dtype))
    problem = plain_problem(fmx.Layer(fmx.Gaussian(0.5), W), rng.standard_normal(30), "elbo")
    q = GaussianFactors(np.zeros((1, 11), dtype), np.ones((1, 11), dtype))
    first = problem.site.statistics(q)
    assert first.ahead.q.sd is not q.sd
    second = problem.site.statistics(first.ahead.q, (q, first))
    assert second.ahead.q.sd is first.ahead.q.sd
    third = problem.site.statistics(second.ahead.q, (first.ahead.q, second))
    assert third.curvature is second.curvature or np.shares_memory(third.curvature, second.curvature)
    worse = GaussianFactors(q.mean, np.where(np.arange(11) == 3, dtype(np.nan), first.ahead.q.sd))
    assert problem.site.statistics(worse).ahead.q.sd is not worse.sd, "NaN counts as a change"


@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_a_spread_of_zero_gives_what_numpy_gives(objective, layout):
    rng = np.random.default_rng(7)
    W = rng.standard_normal((30, 6))
    q = GaussianFactors(np.zeros((1, 6)), np.zeros((1, 6)))
    with np.errstate(all="ignore"):
        for given in (W, PLAIN[layout](W)):
            model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), given))
            algorithm = fmx.ForestMixture(objective=objective, accelerate=False)
            found = algorithm.problem(model, observations(model, np.ones(30))).site.statistics(q)
            assert np.isnan(found.curvature).all()
            np.testing.assert_allclose(found.gradient[0], W.T @ np.full(30, 0.5))


def test_a_step_repeats_to_the_last_bit(layout, threads):
    rng = np.random.default_rng(6)
    W = PLAIN[layout](rng.standard_normal((130, 70)) / 8)
    problem = plain_problem(fmx.Layer(fmx.Bernoulli(), W), rng.integers(0, 2, 130), "elbo")
    q = GaussianFactors(rng.standard_normal((1, 70)), 0.1 + rng.random((1, 70)))
    first, second = (problem.site.statistics(q) for _ in range(2))
    assert np.array_equal(first.ahead.q.mean, second.ahead.q.mean)
    assert np.array_equal(first.ahead.slope, second.ahead.slope)
    if layout in BY_COLUMNS:
        sums = (one.ahead.prepared.added_up(problem.site.layer.weights) for one in (first, second))
        assert all(np.array_equal(a, b) for a, b in zip(*sums, strict=True))


def test_which_site_goes_with_which_weights():
    rng = np.random.default_rng(9)
    W = rng.standard_normal((8, 4))
    sites = {}
    for name, convert in LAYOUTS.items():
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(), convert(W)))
        problem = fmx.ForestMixture(accelerate=False).problem(model, observations(model, np.zeros(8)))
        sites[name] = type(problem.site)
    rows = {"row-major", "sparse", "sparse with 64-bit indices"}
    assert {name for name, kind in sites.items() if kind is RowSite} == rows
    assert {name for name, kind in sites.items() if kind is ColumnSite} == set(BY_COLUMNS)


@pytest.mark.parametrize("objective", ["elbo", "fm"])
@pytest.mark.parametrize("family", [fmx.Gaussian(0.5), fmx.Bernoulli()], ids=str)
def test_threads_that_reach_a_part_of_the_rows_leave_the_rest_alone(family, objective, layout, threads, monkeypatch):
    """Windows of an image: each thread has sums for some rows or latents only, and writes nothing for the others."""

    def unwritten(shape, dtype):
        return np.full(shape, np.nan, dtype)

    for module in (memory, sparse_columns):
        monkeypatch.setattr(module, "empty", unwritten)
    rng = np.random.default_rng(10)
    W = fmx.windows((60, 70), 5, "centred")
    x = rng.integers(0, 2, W.shape[0])
    given = W.toarray() if "sparse" not in layout else W
    problem = plain_problem(fmx.Layer(family, PLAIN[layout](given)), x, objective)
    q = GaussianFactors(rng.standard_normal((1, W.shape[1])), 0.1 + rng.random((1, W.shape[1])))
    first = problem.site.statistics(q)
    second = problem.site.statistics(first.ahead.q, (q, first))
    for found, at in ((first, q), (second, first.ahead.q)):
        value, gradient, D, _, eta, error, kappa = expected(
            problem.site.layer, W, problem.site.data, at, objective
        )  # fmt: skip
        assert abs(found.value[0] - value) < 1e-10 * (1 + abs(value))
        for got, want in [(found.gradient, gradient), (found.curvature, D), (found.eta, eta), (found.error, error)]:
            close(got, want, np.float64)
        close(np.broadcast_to(found.kappa, (1, len(x))), np.broadcast_to(kappa, len(x)), np.float64)
