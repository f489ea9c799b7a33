"""Labelled data of xarray and pandas, and the tree that ArviZ reads."""

import numpy as np
import pandas
import pytest
import scipy

import forestmix as fmx
from forestmix.errors import ForestmixError
from support.saved_objects import DEPTHS, ROWS, UNKNOWN, W, data, flat

arviz_base = pytest.importorskip("arviz_base")
NAMES = [f"é {k}" for k in range(5)]
TABLE = pandas.DataFrame(
    {"y": np.random.default_rng(1).normal(size=40), "x": np.linspace(-1, 1, 40), "g": list("abcd") * 10},
    index=[f"r{k}" for k in range(40)],
)


@pytest.mark.parametrize("size", [None, 3], ids=["one", "batch"])
def test_posteriors_as_datasets_and_frames(size):
    model = ROWS["poisson"]()
    result = fmx.infer(model, data(model, size))
    posterior = result.posterior()
    found, frame = posterior.to_xarray(0.8, NAMES), posterior.to_pandas(0.8, NAMES)
    assert found["mean"].dims == (("latent",) if size is None else ("observation", "latent"))
    assert found["latent"].values.tolist() == NAMES
    assert all(variable.attrs["long_name"] for variable in found.data_vars.values())
    low, high = posterior.interval(0.8)
    for name, values in {"mean": posterior.mean, "sd": posterior.sd, "lower": low, "upper": high}.items():
        assert np.array_equal(found[name].values, values)
    assert np.array_equal(frame["10 %"].to_numpy(), np.ravel(low))
    assert frame.index.nlevels == (1 if size is None else 2)
    assert np.array_equal(result.to_xarray()["sd"].values, result.sd)
    assert np.array_equal(result.to_xarray()["trace_objective"].values, result.trace.objective)
    assert np.array_equal(result.to_pandas()["sd"].to_numpy(), np.ravel(result.sd))


def test_deep_models_have_a_variable_for_each_layer():
    model = DEPTHS["two layers"]()
    posterior = fmx.infer(model, data(model)).posterior()
    found = posterior.to_xarray()
    assert found.sizes == {"latent_0": 5, "latent_1": 3}
    assert np.array_equal(found["mean_1"].values, posterior.layers[1].mean)
    assert posterior.to_pandas().loc[1].shape == (3, 4)
    assert posterior.to_arviz(10)["posterior"]["y_1"].shape == (1, 10, 3)


def test_scales_and_effects_are_there_by_name():
    fit = fmx.regress("y ~ x + (1 | g)", TABLE)
    found = fit.to_xarray()
    assert found["effect"].values.tolist() == fit.names
    assert found["scale"].values.tolist() == ["1 | g", "noise"]
    assert found["scale_mean"].sel(scale="noise") == fit.scales[fit.priors.noise].mean
    assert fit.to_pandas().loc["sd(noise)", "mean"] == fit.scales[fit.priors.noise].mean
    forest = fmx.ForestMixtureModel.from_parameters(np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 0.1]]))
    assert forest.to_xarray()["weight"].dims == ("variable", "tree")
    assert len(forest.to_pandas()) == 3


@pytest.mark.parametrize("make", [*ROWS.values(), *UNKNOWN.values()])
def test_trees_have_the_groups_that_arviz_knows(make):
    model = make()
    posterior = fmx.infer(model, data(model)).posterior()
    tree = posterior.to_arviz(200)
    groups = {"posterior", "posterior_predictive", "log_likelihood", "observed_data", "sample_stats"}
    assert set(tree.children) == groups
    assert tree["posterior"]["y"].dims == ("chain", "draw", "latent")
    # The entry that is missing is in none of them.
    assert 2 not in tree["observed_data"]["row"].values
    assert tree["log_likelihood"]["x"].shape == (1, 200, tree["observed_data"]["x"].size)
    assert np.isfinite(tree["log_likelihood"]["x"].values).all()
    assert set(posterior.scales) <= set(tree["posterior"].data_vars)
    assert tree.attrs["inference_library"] == "forestmix"
    sample = posterior.to_arviz(7, sample_dims=["sample"])
    assert sample["posterior"]["y"].dims == ("sample", "latent")


def test_log_likelihoods_are_those_of_scipy():
    model = flat(fmx.Poisson())
    x = data(model)
    tree = fmx.infer(model, x).to_arviz(50)
    drawn, rows = tree["posterior"]["y"].values[0], tree["observed_data"]["row"].values
    expected = scipy.stats.poisson(np.exp(drawn @ W.T + 0.1)).logpmf(x)[:, rows]
    np.testing.assert_allclose(tree["log_likelihood"]["x"].values[0], expected, rtol=1e-10)


def test_log_densities_are_those_of_scipy():
    model = flat(fmx.Poisson())
    x = data(model)
    posterior = fmx.infer(model, x).posterior()
    tree = posterior.to_arviz(50)
    y, stats = tree["posterior"]["y"].values[0], tree["sample_stats"]
    log_q = scipy.stats.multivariate_normal(posterior.mean, posterior.covariance()).logpdf(y)
    np.testing.assert_allclose(stats["log_q"].values[0], log_q, rtol=1e-9)
    rows = tree["log_likelihood"]["x"].values[0].sum(axis=1)
    log_p = rows + scipy.stats.norm(0, 0.5).logpdf(y).sum(axis=1) - posterior.elbo
    np.testing.assert_allclose(stats["log_p"].values[0], log_p, rtol=1e-9)


def test_the_ratio_of_log_densities_is_one_number_where_the_posterior_is_exact():
    """Gaussian rows, one known scale or a mixture over unknown ones: q is the posterior of the nodes."""
    for make in (ROWS["gaussian"], UNKNOWN["noise"], UNKNOWN["noise and one sd of several"]):
        model = make()
        stats = fmx.infer(model, data(model)).to_arviz(200)["sample_stats"]
        ratio = stats["log_p"].values - stats["log_q"].values
        np.testing.assert_allclose(ratio, 0.0, atol=1e-8)


def test_draws_keep_scales_and_latents_together():
    """Under a common unknown scale, latents spread more where the drawn scale is larger, and so do new data."""
    tau = fmx.scales.HalfNormal(1.0)
    posterior = fmx.infer(flat(fmx.Gaussian(tau), weights=np.eye(12)[:, :5]), np.linspace(-2, 2, 12)).posterior()
    tree = posterior.to_arviz(6000)
    scale = tree["posterior"]["noise"].values[0]
    wide, narrow = scale > np.quantile(scale, 0.8), scale < np.quantile(scale, 0.2)
    left = tree["posterior_predictive"]["x"].values[0][:, 7:]
    assert np.std(left[wide]) / np.std(left[narrow]) > 1.3
    np.testing.assert_allclose(scale.mean(), posterior.scales["noise"].mean, rtol=0.05)
    np.testing.assert_allclose(tree["posterior"]["y"].values[0].mean(axis=0), posterior.mean, atol=0.05)
    expected = scipy.stats.norm(0.1, scale[:, None]).logpdf(np.linspace(-2, 2, 12)[7:])
    np.testing.assert_allclose(tree["log_likelihood"]["x"].values[0][:, 7:], expected, rtol=1e-10)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")  # ArviZ on rows that say much of their own group
def test_regressions_as_trees():
    fit = fmx.regress("y ~ x + (x | g)", TABLE, prior={"noise": 1.0, "1 | g": 0.5, "x | g": 0.5})
    tree = fit.to_arviz(1000, rng=3)
    assert list(tree["posterior"].data_vars) == ["Intercept", "x", "1 | g", "x | g"]
    assert tree["posterior"]["x | g"].dims == ("chain", "draw", "g__level")
    assert tree["observed_data"]["row"].values.tolist() == list(TABLE.index)
    assert np.array_equal(tree["observed_data"]["y"].values, TABLE["y"])
    arviz_stats = pytest.importorskip("arviz_stats")
    assert arviz_stats.loo(tree).elpd == pytest.approx(fit.loo().elpd, abs=1.0)


def test_trees_need_one_observation_and_known_axes():
    model = flat()
    posterior = fmx.infer(model, data(model, 3)).posterior()
    with pytest.raises(ForestmixError, match=r"to_arviz is for one observation; use posterior.take\(k\)"):
        posterior.to_arviz()
    with pytest.raises(ForestmixError, match="sample_dims must be"):
        posterior.take(0).to_arviz(sample_dims=["draw"])
    with pytest.raises(ForestmixError, match="names must have one entry"):
        posterior.to_xarray(names=["a"])
