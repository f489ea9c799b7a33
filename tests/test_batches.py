"""Batches in parts: the same result as in one piece, whatever the budget."""

import numpy as np
import pytest

import forestmix as fmx
from forestmix.inference.batches import parts_of_batch
from forestmix.model import observations


@pytest.fixture(params=[fmx.Gaussian(0.5), fmx.Bernoulli()], ids=lambda family: family.name)
def model(request):
    W = np.random.default_rng(0).standard_normal((12, 5))
    return fmx.DEF(fmx.Layer(request.param, W))


def test_parts_give_the_result_of_the_whole(model):
    x = model.sample(1, size=7).x
    whole = fmx.infer(model, x, tol=1e-8)
    parts = fmx.infer(model, x, tol=1e-8, memory_budget=2 * 8 * (12 * 12 + 60 * 5))
    for name in ("mean", "sd", "objective", "elbo", "fm_bound"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-6, atol=1e-7)
    assert parts.converged.all()
    assert list(parts.status) == list(whole.status)
    assert parts.trace.objective.shape == (len(parts.trace), 7)
    assert parts.trace.objective[-1] == pytest.approx(parts.objective)
    assert (np.diff(parts.trace.seconds) >= 0).all()
    assert np.array_equal(parts.n_iter.max(), parts.trace.iteration[-1])
    assert parts.posterior().predict().mean.shape == (7, 12)


def test_a_start_goes_with_its_observations(model):
    x = model.sample(1, size=4).x
    best = fmx.infer(model, x, tol=1e-10)
    again = fmx.infer(model, x, init=best, memory_budget=1)
    assert (again.n_iter <= 2).all()


def test_a_callback_sees_the_whole_batch(model):
    seen = []
    fmx.infer(model, model.sample(1, size=4).x, memory_budget=1, callback=lambda it: seen.append(it.mean.shape))
    assert set(seen) == {(4, 5)}


def test_parts_are_even_and_complete(model):
    parts = parts_of_batch(model, observations(model, np.ones((10, 12))), 4 * 8 * (12 * 12 + 60 * 5))
    assert [len(part) for part in parts] == [4, 3, 3]
    assert np.array_equal(np.concatenate(parts), np.arange(10))


@pytest.mark.parametrize("budget", [0, -1, "1 GB", np.nan])
def test_the_budget_must_be_positive(model, budget):
    with pytest.raises(fmx.ForestmixError, match="memory_budget must be a positive number of bytes"):
        fmx.infer(model, np.ones((2, 12)), memory_budget=budget)
