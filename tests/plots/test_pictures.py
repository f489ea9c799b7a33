"""Pictures show what they say: the forest, the parents of pixels, the course of a run."""

import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest

import forestmix as fmx
from forestmix.plots.forest import plot_parent_map
from support.forest_models import planted


@pytest.fixture(autouse=True)
def close_figures():
    matplotlib.use("Agg")
    yield
    matplotlib.pyplot.close("all")


def test_forests_with_few_variables_have_names_and_with_many_discs():
    model = fmx.ForestMixtureModel(3, random_state=0).fit(planted(20, 3, 150, 1.0, 0)[0])
    axes = model.plot([f"v{i}" for i in range(20)])
    assert {text.get_text() for text in axes.texts} >= {"v0", "v19"}
    wide = fmx.ForestMixtureModel.from_parameters(np.ones((300, 4)), parent_prior=np.eye(4)[np.arange(300) % 4])
    assert [text.get_text() for text in wide.plot().texts] == [f"tree {j}: 75" for j in range(4)]


def test_parents_of_pixels():
    window = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), fmx.windows((6, 6), 3)))
    forest = fmx.ForestMixtureModel.from_bound(window, (np.zeros(64), np.ones(64)))
    left, right = plot_parent_map(forest, (6, 6))
    number = right.images[0].get_array()
    np.testing.assert_allclose(number, 9)  # each pixel is in nine windows, all alike
    assert left.images[0].get_array().shape == (6, 6, 3)


def test_a_trace_shows_its_first_point_and_whole_iterations():
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), np.random.default_rng(0).standard_normal((300, 40))))
    result = fmx.infer(model, model.sample(0).x)
    left, _ = result.plot_trace()
    low, high = left.get_ylim()
    assert low < result.trace.objective[0] < high
    assert all(tick == round(tick) for tick in left.get_xticks())
    assert not left.texts


@pytest.mark.parametrize("size", [None, 3])
def test_a_start_far_below_is_a_mark_with_its_value(size):
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.1), fmx.windows((12, 12), 5)))
    algorithm = fmx.ForestMixture("fm", accelerate=False)
    result = fmx.infer(model, model.sample(0, size=size).x, algorithm, max_iter=40)
    left, _ = result.plot_trace()
    low, high = left.get_ylim()
    start, rest = result.trace.objective[0], result.trace.objective[1:]
    assert np.max(start) < low < np.min(rest) <= np.max(rest) < high
    (words,) = (text.get_text() for text in left.texts)
    assert f"{np.min(start):,.4g}" in words
    assert f"{np.max(start):,.4g}" in words
    assert len(left.lines) == (size or 1)
