"""Pictures of posteriors and fits show the numbers that they are of, on axes of one's own or new ones."""

import matplotlib
import matplotlib.pyplot
import numpy as np
import pytest

import forestmix as fmx
from forestmix.data import load_table
from forestmix.plots.intervals import plot_groups, plot_scales
from forestmix.plots.rows import plot_gap, plot_loo, plot_parents
from forestmix.plots.trace import plot_objective, plot_trace
from forestmix.posterior.table import Table


@pytest.fixture(autouse=True)
def close_figures():
    matplotlib.use("Agg")
    yield
    matplotlib.pyplot.close("all")


@pytest.fixture(scope="module")
def fit():
    return fmx.regress("germinated ~ coat + (1 | bench)", load_table("seeds"), family="binomial", trials="seeds")


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(0)
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), rng.standard_normal((80, 6)) * (rng.random((80, 6)) < 0.4)))
    return fmx.infer(model, model.sample(0).x)


def points(axes, line=-1):
    return np.array(axes.lines[line].get_xdata()), np.array(axes.lines[line].get_ydata())


def test_intervals_are_those_of_the_summary(fit):
    table = fit.summary(0.8)
    axes = fit.plot(0.8, intercept=True, units="column")
    np.testing.assert_array_equal(points(axes)[0], table["mean"])
    wide = np.array([segment[:, 0] for segment in axes.collections[0].get_segments()])
    np.testing.assert_array_equal(wide, np.stack([table["10 %"], table["90 %"]], axis=1))
    assert [label.get_text() for label in axes.get_yticklabels()] == table.names


def test_effects_are_those_of_one_sd_of_their_columns():
    """Of columns that are not 0 and 1, which say so; the numbers that are drawn stand at the right."""
    schools = load_table("schools")
    fit = fmx.regress("mark ~ hours + size", schools, prior={"noise": 5.0})
    columns, sds = fit.plot(units="column"), fit.plot()
    factors = points(sds)[0] / points(columns)[0]
    np.testing.assert_allclose(factors, [np.std(fit.cases.frame["hours"]), 1.0], rtol=1e-12)
    names = [label.get_text() for label in sds.get_yticklabels()]
    assert names == [f"hours × {factors[0]:.3g}", "size[T.small]"]
    assert len(sds.texts) == 2
    assert " to " in sds.texts[0].get_text()
    with pytest.raises(fmx.ForestmixError, match="units must be one of"):
        fit.plot(units="z")


def test_a_posterior_of_many_latents_is_a_band_with_its_mean():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), fmx.windows((9, 9), 2)))
    posterior = fmx.infer(model, model.sample(0).x).posterior()
    axes = posterior.plot()
    np.testing.assert_array_equal(points(axes)[1], posterior.mean)
    assert "100 latents" in axes.get_xlabel()


def test_groups_are_sorted(fit):
    heights = points(fit.plot_groups())[1]
    np.testing.assert_array_equal(heights, np.sort(fit.groups()["mean"]))


def test_densities_of_scales_have_mass_one(fit):
    axes = plot_scales({"sd": next(iter(fit.scales.values()))})
    x, density = points(axes)
    assert np.trapezoid(density, x) == pytest.approx(0.995, abs=0.01)
    with pytest.raises(fmx.ArgumentError, match="no unknown scale"):
        plot_scales({})


def test_scales_of_different_size_have_a_logarithmic_axis(fit):
    """The narrow one would be a spike beside the wide one; densities are those of logarithms, of mass one too."""
    from scipy import stats

    from forestmix.posterior.scale_posterior import ScalePosterior

    theta = np.linspace(-8, 8, 2001)
    scales = {
        f"sd {centre}": ScalePosterior(fmx.scales.HalfNormal(1.0), theta, stats.norm(centre, 0.3).logpdf(theta))
        for centre in (-3, 2)
    }
    axes = plot_scales(scales)
    assert axes.get_xscale() == "log"
    for line, centre in enumerate((-3, 2)):
        x, density = points(axes, line)
        np.testing.assert_allclose(density, stats.norm(centre, 0.3).pdf(np.log(x)), atol=1e-3)


def test_the_predictive_picture_has_the_response_and_the_draws(fit):
    axes = fit.plot_predictive(size=20)
    assert len(axes.lines) == 21
    np.testing.assert_array_equal(points(axes)[0], np.sort(fit.cases.response / fit.cases.trials))


def test_rows_left_out_and_those_not_to_be_trusted(fit):
    loo = fit.loo()
    axes = plot_loo(loo)
    np.testing.assert_array_equal(points(axes, 0)[1], loo.pointwise)
    assert len(axes.lines) == 1 + bool(len(loo.untrusted))


def test_the_gap_of_each_row(result):
    gap = fmx.gap(result.model, result._x, result)
    np.testing.assert_array_equal(points(plot_gap(gap))[1], gap)


def test_the_map_of_parents_has_epsilon_and_of_a_large_one_the_greatest_of_tiles(result):
    epsilon = fmx.optimal_auxiliary(result.model, result).epsilon
    shown = plot_parents(epsilon).images[0].get_array()
    np.testing.assert_allclose(shown, epsilon)
    large = np.zeros((900, 3))
    large[[0, 4, 899], [0, 0, 2]] = 0.2, 0.9, 0.4
    tiles = plot_parents(large).images[0].get_array()
    assert tiles.shape == (300, 3)
    assert (tiles[0, 0], tiles[1, 0], tiles[299, 2]) == (0.2, 0.9, 0.4)


@pytest.mark.parametrize("name", ["intervals", "groups", "scales", "predictive", "loo", "gap", "parents"])
def test_pictures_take_axes_and_refuse_what_is_none(fit, result, name):
    draw = {
        "intervals": lambda axes: fit.plot(axes=axes),
        "groups": lambda axes: fit.plot_groups(axes=axes),
        "scales": lambda axes: plot_scales({"sd": next(iter(fit.scales.values()))}, axes),
        "predictive": lambda axes: fit.plot_predictive(5, axes=axes),
        "loo": lambda axes: plot_loo(fit.loo(), axes),
        "gap": lambda axes: plot_gap(np.ones(3), axes),
        "parents": lambda axes: plot_parents(np.eye(3), axes),
    }[name]
    axes = matplotlib.pyplot.subplots()[1]
    assert draw(axes) is axes
    with pytest.raises(fmx.ArgumentError, match="axes must be matplotlib axes; got str"):
        draw("here")


def test_a_run_without_gradient_norms_has_the_objective(result):
    full = fmx.infer(result.model, result._x, covariance="full")
    np.testing.assert_array_equal(points(plot_objective(full))[1], full.trace.objective)
    assert len(plot_trace(full)) == 2


def test_long_names_are_cut_where_they_stay_apart():
    ends = [f"ward[T.{'a long name of a ward ' * 2}{k}]" for k in range(3)]
    middles = [f"the group of number {k}, and what is told of all of them" for k in range(3)]
    for names, whole in ((ends, False), (middles, True), (["short", "$x$"], True)):
        table = posterior_table(names)
        axes = plot_groups(table)
        shown = [label.get_text() for label in axes.get_xticklabels()]
        assert len(set(shown)) == len(names)
        assert (shown == [name.replace("$", r"\$") for name in names]) == whole
        axes.figure.canvas.draw()
        assert axes.get_window_extent().height > 150
        assert axes.yaxis.label.get_window_extent().y0 > 0


def posterior_table(names):
    mean = np.arange(float(len(names)))
    return Table(names, {"mean": mean, "sd": 0 * mean + 1, "5 %": mean - 1.6, "95 %": mean + 1.6}, "1 | g")


def test_a_case_of_weight_two_counts_twice_in_the_predictive_picture():
    table = {"y": [0, 3, 1, 9], "x": [0.0, 1.0, 2.0, 3.0]}
    axes = fmx.regress("y ~ x", table, "poisson", weights=[2, 1, 1, 0]).plot_predictive(3)
    np.testing.assert_array_equal(points(axes), [[0, 1, 3], [0.5, 0.75, 1.0]])
    assert len(points(axes, 0)[0]) == 3
