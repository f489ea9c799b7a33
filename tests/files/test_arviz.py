"""ArviZ's own functions on the exports: 1.x, and 0.23 with its ``preview``; ``make test-arviz`` runs both."""

import warnings

import matplotlib
import numpy as np
import pandas
import pytest

import forestmix as fmx
from support.saved_objects import DEPTHS, UNKNOWN, data, flat

matplotlib.use("Agg")
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 0.23 tells of 1.x
        import arviz

        OLD = arviz.__version__.startswith("0.")
        az = __import__("arviz.preview", fromlist=["preview"]) if OLD else arviz
        az.loo_approximate_posterior  # noqa: B018 - 0.23 has it where arviz-stats is there
except (ImportError, AttributeError) as error:
    pytest.skip(f"needs ArviZ itself, see make test-arviz: {error}", allow_module_level=True)
# What is drawn, and the libraries that draw it, are ArviZ's.
pytestmark = pytest.mark.filterwarnings("ignore")
SIZE = 2000
TABLE = pandas.DataFrame({"x": np.linspace(-1, 1, 40), "g": list("abcd") * 10})
TABLE["y"] = np.random.default_rng(1).poisson(np.exp(0.5 + 0.8 * TABLE["x"]))


@pytest.fixture(scope="module")
def fit():
    return fmx.regress("y ~ x + (1 | g)", TABLE, "poisson")


def test_summary_has_the_posterior(fit):
    found = az.summary(fit.to_arviz(SIZE), round_to="none")
    expected = fit.summary()
    for name, mean, sd in zip(expected.names, expected["mean"], expected["sd"], strict=True):
        assert abs(found.loc[name, "mean"] - mean) < 5 * sd / SIZE**0.5
        assert found.loc[name, "sd"] == pytest.approx(sd, rel=0.15)
    assert {"1 | g[a]", "1 | g[d]"} <= set(found.index)
    # Draws are independent: as many count as there are, about.
    assert (found["ess_bulk"] > SIZE / 2).all()


@pytest.mark.parametrize("make", [flat, *DEPTHS.values(), UNKNOWN["noise"]])
def test_forests_of_intervals_of_every_depth(make):
    model = make()
    tree = fmx.infer(model, data(model)).to_arviz(50)
    assert set(az.plot_forest(tree).viz["point_estimate"].data_vars) == set(tree["posterior"].data_vars)
    matplotlib.pyplot.close("all")


def test_leave_one_out_with_the_approximation_taken_into_account(fit):
    tree = fit.to_arviz(SIZE)
    stats = tree["sample_stats"]
    found = az.loo_approximate_posterior(tree, log_p=stats["log_p"], log_q=stats["log_q"], pointwise=True)
    assert found.approx_posterior
    assert found.elpd == pytest.approx(fit.loo().elpd, abs=0.5)
    np.testing.assert_allclose(found.elpd_i, fit.loo().pointwise, atol=0.25)


def test_one_axis_of_samples_as_from_numpyro_svi_has_it(fit):
    tree = fit.to_arviz(SIZE, sample_dims=["sample"])
    assert tree["posterior"]["x"].dims == tree["sample_stats"]["log_p"].dims == ("sample",)
    found = az.summary(tree, sample_dims="sample", kind="stats", round_to="none")
    assert found.loc["x", "mean"] == pytest.approx(fit.posterior.mean[1], abs=5 * fit.posterior.sd[1] / SIZE**0.5)
    az.plot_forest(tree, sample_dims="sample")
    matplotlib.pyplot.close("all")


@pytest.mark.skipif(not OLD, reason="1.x has trees alone")
def test_the_older_functions_on_the_converted_tree(fit):
    found = arviz.from_datatree(fit.to_arviz(SIZE))
    assert arviz.summary(found).loc["x", "mean"] == pytest.approx(fit.posterior.mean[1], abs=0.02)
    arviz.plot_forest(found)
    matplotlib.pyplot.close("all")
    assert arviz.loo(found).elpd_loo == pytest.approx(fit.loo().elpd, abs=0.5)
