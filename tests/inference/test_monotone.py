"""The objective never falls beyond rounding, and updates that may diverge are reported when they do.

Rounding is 64 units in the last place of the terms that the objective sums, which the loop itself uses as its alarm;
here it is bounded by 1e-12 of the objective's size plus the number of variables, from the trace alone.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forestmix as fmx
from support import known_models
from support.strategies import gaussian_cases

NAMES = list(known_models.monotone_algorithms(3))


def assert_monotone(result, size):
    objective = result.trace.objective
    assert np.isfinite(objective).all()
    slack = 1e-12 * (np.abs(objective[:-1]) + size)
    assert (np.diff(objective) >= -slack).all(), np.diff(objective).min()
    assert result.status is not fmx.Status.DECREASED


@settings(max_examples=200, deadline=None)
@given(gaussian_cases(log_scale=1.5), st.sampled_from(NAMES), st.booleans())
def test_objective_never_falls(case, name, warm):
    algorithm = known_models.monotone_algorithms(case.W.shape[1])[name]
    result = fmx.infer(case.model, case.x, algorithm, init=case.q if warm else None, tol=1e-10, max_iter=60)
    assert_monotone(result, size=sum(case.W.shape))
    for array in (result.mean, result.sd, result.trace.gradient_norm):
        assert np.isfinite(array).all()


@pytest.mark.parametrize("name", NAMES)
def test_objective_never_falls_on_overlapping_windows(name):
    W = fmx.windows((9, 9), 4)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=0.3), W))
    result = fmx.infer(model, model.sample(4).x, known_models.monotone_algorithms(W.shape[1])[name], max_iter=150)
    assert_monotone(result, size=sum(W.shape))


@settings(max_examples=60, deadline=None)
@given(gaussian_cases(log_scale=6.0), st.sampled_from(NAMES))
def test_extreme_scales_give_a_result_and_never_an_exception(case, name):
    result = fmx.infer(case.model, case.x, known_models.monotone_algorithms(case.W.shape[1])[name], max_iter=30)
    assert np.isfinite(result.mean).all()
    assert (result.sd > 0).all()
    assert result.objective >= result.trace.objective[0] - 1e-9 * abs(result.trace.objective[0])


@pytest.mark.parametrize(
    "algorithm",
    [fmx.Damped(step=1.0), fmx.Hogwild(81, synchronous=True), fmx.BlockCoordinate(np.array_split(np.arange(81), 27))],
    ids=["undamped", "jacobi", "dependent blocks"],
)
def test_undamped_parallel_updates_on_overlapping_windows_diverge_and_say_so(algorithm):
    W = fmx.windows((5, 5), 5)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=0.1), W))
    result = fmx.infer(model, model.sample(0).x, algorithm)
    assert result.status is fmx.Status.DIVERGED
    assert not result.converged
    assert "fm" in result.message
    assert np.isfinite(result.mean).all()
    assert result.objective >= result.trace.objective[0], "the best point seen is returned"


def test_undamped_jacobi_is_the_same_as_hogwild_with_blocks_of_one():
    W = fmx.windows((5, 5), 3)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W))
    x = model.sample(0).x
    damped = fmx.infer(model, x, fmx.Damped(step=1.0), max_iter=1)
    hogwild = fmx.infer(model, x, fmx.Hogwild(W.shape[1], synchronous=True), max_iter=1)
    assert damped.trace.objective == pytest.approx(hogwild.trace.objective, rel=1e-12)


def test_a_small_enough_step_converges():
    W = fmx.windows((5, 5), 3)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W))
    x = model.sample(0).x
    slow, exact = (fmx.infer(model, x, a, tol=1e-9) for a in (fmx.Damped(step=0.1), "fm"))
    assert slow.converged
    assert slow.mean == pytest.approx(exact.mean, abs=1e-6)


@pytest.mark.parametrize("blocks", [2, 3, [range(9), range(9, 49)]])
def test_unsynchronised_threads_reach_the_optimum(blocks):
    W = fmx.windows((5, 5), 3)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W))
    x = model.sample(0).x
    hogwild, exact = (fmx.infer(model, x, a, tol=1e-9) for a in (fmx.Hogwild(blocks), "fm"))
    assert hogwild.converged, hogwild.message
    assert hogwild.mean == pytest.approx(exact.mean, abs=1e-6)
