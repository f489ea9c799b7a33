"""Curves record what the algorithms do, step by step."""

import numpy as np
import pytest

import forestmix as fmx
from forestmix.paper.claims import COSTS, cheapest, cost_to_reach, verdict
from forestmix.paper.curves import Curve, Panel, pooled, run_race, run_steps, thinned
from forestmix.paper.figure2 import ACCELERATED, BLOCKS, CAVI, FM, paper_algorithm
from forestmix.paper.problems import draw_digits, region_problem, window_problem


def ignored(amount):
    """Move no bar."""


@pytest.fixture(scope="module")
def digits():
    return draw_digits(seed=0, count=2)


def test_a_run_that_converges_keeps_its_last_value(digits):
    problem = window_problem(digits, 1)
    moved = []
    curve = run_steps(problem, "s = 1", paper_algorithm(), 25, moved.append)
    assert curve.loss.shape == (26, 2)
    np.testing.assert_array_equal(curve.step, np.arange(26))
    np.testing.assert_allclose(curve.loss[0], problem.loss(np.zeros((2, 784))))
    np.testing.assert_allclose(curve.loss[1:], np.tile(problem.optimum, (25, 1)), rtol=1e-13)
    assert sum(moved) == 25


def test_coordinate_methods_take_one_step_per_iteration(digits):
    problem = region_problem(digits)
    cavi = run_steps(problem, "CAVI", fmx.CAVI("random", 1, 0), 20, ignored)
    blocks = run_steps(problem, "blocks", fmx.BlockCoordinate(problem.blocks, "random", 1, 0), 20, ignored)
    np.testing.assert_array_equal(cavi.step, np.arange(21))
    np.testing.assert_array_equal(blocks.step, np.arange(21))
    np.testing.assert_allclose(cavi.sweeps[-1], 20 / 2704)
    np.testing.assert_allclose(blocks.sweeps[-1], 20 * 16 / 2704)


def test_losses_of_fm_never_rise_and_match_a_run_without_recording(digits):
    problem = window_problem(digits, 7)
    curve = run_steps(problem, "s = 7", paper_algorithm(), 15, ignored)
    assert np.all(np.diff(curve.loss, axis=0) < 0)
    result = fmx.infer(problem.model, digits.x, paper_algorithm(), tol=1e-15, max_iter=15)
    np.testing.assert_allclose(curve.loss[-1], problem.loss(result.mean))


def test_a_race_ends_at_its_target_with_times_that_grow(digits):
    problem = window_problem(digits, 3)
    moved = []
    curve = run_race(problem, ACCELERATED, fmx.ForestMixture(), 500, 1e-3, moved.append)
    assert sum(moved) == pytest.approx(500), "the work that was not needed counts as done"
    assert np.all(curve.gap[-1] <= 1e-3)
    assert np.any(curve.gap[-2] > 1e-3)
    assert np.all(np.diff(curve.seconds) > 0)


def test_pooling_joins_the_images_of_all_seeds():
    first, second = made_up("s", [[3.0, 2.0], [1.0, 1.0]]), made_up("s", [[5.0], [4.0]])
    np.testing.assert_array_equal(pooled([first, made_up("t", [[9.0]]), second], "s"), [[3, 2, 5], [1, 1, 4]])


def test_thinning_keeps_the_first_and_the_last_point():
    curve = made_up("s", np.linspace(1, 0, 5001)[:, None])
    thin = thinned(curve)
    assert len(thin.gap) < 150
    assert thin.step[0] == 0
    assert thin.step[1] == 1
    assert thin.step[-1] == 5000


def winners(curves, gap=0.1):
    costs = [cost_to_reach(curve, gap) for curve in curves]
    return {cost: cheapest(costs, cost) for cost in COSTS}


def test_costs_and_winners_come_from_the_numbers():
    fm = made_up(FM, [[1.0], [0.5], [0.09]], step=[0, 1, 2], sweeps=[0, 1, 2], seconds=[0, 1, 2])
    cavi = made_up(CAVI, [[1.0], [0.05]], step=[0, 50], sweeps=[0, 1], seconds=[0, 0.5])
    cost = cost_to_reach(fm, 0.1)
    assert (cost.reached, cost.step, cost.sweeps, cost.seconds) == (True, 2, 2.0, 2.0)
    assert cost_to_reach(fm, 0.01).short("step") == "> 2"
    assert winners([fm, cavi]) == {"step": [FM], "sweeps": [CAVI], "seconds": [CAVI]}
    assert verdict(Panel("made-up", "made up", (fm, cavi))) == (
        "Least to a gap of 0.1, in parallel steps: FM (paper); in sweeps: cyclic CAVI; in seconds: cyclic CAVI."
    )


def test_no_winner_is_named_that_the_numbers_do_not_name():
    fm = made_up(FM, [[1.0], [0.5]], step=[0, 1], sweeps=[0, 1], seconds=[0, 1])
    cavi = made_up(CAVI, [[1.0], [0.05]], step=[0, 50], sweeps=[0, 1], seconds=[0, 0.95])
    assert winners([fm, cavi]) == {"step": [], "sweeps": [CAVI], "seconds": [CAVI]}
    assert winners([fm]) == {"step": [], "sweeps": [], "seconds": []}
    assert "in parallel steps: no clear winner;" in verdict(Panel("made-up", "made up", (fm, cavi)))


def test_times_within_a_factor_of_two_are_equal():
    fm = made_up(FM, [[1.0], [0.05]], step=[0, 9], sweeps=[0, 9], seconds=[0, 1.0])
    near = made_up(CAVI, [[1.0], [0.05]], step=[0, 9], sweeps=[0, 9], seconds=[0, 1.9])
    far = made_up(BLOCKS, [[1.0], [0.05]], step=[0, 9], sweeps=[0, 9], seconds=[0, 2.1])
    assert winners([fm, near, far])["seconds"] == [FM, CAVI]
    assert winners([fm, near])["seconds"] == []


def test_the_winner_may_change_with_the_gap():
    fm = made_up(FM, [[1.0], [0.5], [0.1], [0.001]], step=[0, 1, 2, 3], sweeps=[0, 1, 2, 3], seconds=[0, 1, 2, 3])
    cavi = made_up(CAVI, [[1.0], [0.05], [0.001]], step=[0, 50, 99], sweeps=[0, 1, 9], seconds=[0, 1, 9])
    assert winners([fm, cavi], 0.1)["sweeps"] == [CAVI]
    assert winners([fm, cavi], 0.01)["sweeps"] == [FM]
    assert winners([fm, cavi], 0.1)["step"] == winners([fm, cavi], 0.01)["step"] == [FM]


def test_methods_that_are_level_win_together():
    fm = made_up(FM, [[1.0], [0.05]], step=[0, 9], sweeps=[0, 9], seconds=[0, 1])
    level = [made_up(label, [[1.0], [0.05]], step=[0, 9], sweeps=[0, 3], seconds=[0, 1]) for label in (BLOCKS, CAVI)]
    assert winners([fm, *level]) == {"step": [], "sweeps": [BLOCKS, CAVI], "seconds": []}


def made_up(label, gap, **columns):
    gap = np.array(gap, float)
    rows = {name: np.array(columns.get(name, range(len(gap))), float) for name in ("step", "sweeps", "seconds")}
    images = tuple(f"made-up/{place}" for place in range(gap.shape[1]))
    return Curve(label, 0, images, *rows.values(), gap + 1, gap, np.ones(gap.shape[1]))
