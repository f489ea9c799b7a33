"""The conventions of scikit-learn, graphs, pictures, and errors that say what is wrong."""

import pickle
import subprocess
import sys

import numpy as np
import pandas
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import forestmix as fmx
from forestmix.plots.forest import plot_parent_map
from support.forest_models import planted


@parametrize_with_checks([fmx.ForestMixtureModel(n_init=2, n_moves=1, max_iter=20)])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks(estimator, check):
    check(estimator)  # one of scikit-learn's own tests, which holds the assertions


@pytest.fixture(scope="module")
def data():
    return planted(20, 3, 150, 1.0, 0)[0]


@pytest.fixture(scope="module")
def model(data):
    return fmx.ForestMixtureModel(3, random_state=0).fit(data)


def test_works_in_a_pipeline_and_a_grid_search(data):
    pipeline = make_pipeline(StandardScaler(), fmx.ForestMixtureModel(random_state=0, n_init=1))
    search = GridSearchCV(pipeline, {"forestmixturemodel__n_trees": [1, 3]}, cv=3).fit(data)
    assert search.best_params_ == {"forestmixturemodel__n_trees": 3}
    assert search.best_estimator_.transform(data).shape == (150, 3)


def test_parameters_can_be_read_set_and_cloned():
    model = fmx.ForestMixtureModel(4, family="poisson")
    assert isinstance(model, BaseEstimator)
    assert isinstance(model, TransformerMixin)
    assert model.get_params()["n_trees"] == 4
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(n_init=2).n_init == 2
    assert repr(fmx.ForestMixtureModel(4, n_init=5)) == "ForestMixtureModel(n_init=5, n_trees=4)"


def test_transform_and_back_explain_the_data(data, model):
    y = model.transform(data)
    assert y.shape == (150, 3)
    np.testing.assert_allclose(model.fit_transform(data), y)
    assert np.mean((data - model.inverse_transform(y)) ** 2) < 0.75 * data.var()
    np.testing.assert_allclose(y.std(axis=0), 1, atol=0.25)


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_inverse_transform_gives_expectations(family):
    X, *_ = planted(15, 3, 100, 1.0, 1, family)
    model = fmx.ForestMixtureModel(3, family=family, random_state=0, max_iter=10).fit(X)
    back = model.inverse_transform(model.transform(X))
    assert back.shape == X.shape
    assert np.mean((X - back) ** 2) < np.mean((X - X.mean(axis=0)) ** 2)


def test_data_frames_give_names_and_get_frames(data):
    frame = pandas.DataFrame(data, columns=[f"gene {i}" for i in range(20)], index=np.arange(150) + 7)
    model = fmx.ForestMixtureModel(3, random_state=0).set_output(transform="pandas").fit(frame)
    y = model.transform(frame)
    assert list(y.columns) == list(model.get_feature_names_out()) == [f"forestmixturemodel{j}" for j in range(3)]
    assert y.index[0] == 7
    assert model.names()[3] == "gene 3"


def test_float32_in_float32_out(data, model):
    assert model.transform(data.astype(np.float32)).dtype == np.float32


def test_sign_and_order_of_trees_are_fixed(model):
    edges = model.weights_[np.arange(20), model.parents_]
    sums = np.bincount(model.parents_, edges, minlength=3)
    assert (sums > 0).all()
    assert (np.diff(np.bincount(model.parents_, minlength=3)) <= 0).all()


def test_graph_has_an_edge_for_each_variable(model):
    graph = model.to_networkx()
    assert graph.number_of_edges() == 20
    assert graph.number_of_nodes() == 23
    edge = graph.get_edge_data(("tree", int(model.parents_[0])), "x0")
    assert edge["weight"] == model.weights_[0, model.parents_[0]]
    assert edge["probability"] == model.responsibilities_[0].max()


def test_absence_of_networkx_is_explained(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(fmx.ForestmixError, match=r"to_networkx needs networkx.*forestmix\[forest\]"):
        model.to_networkx()


WITHOUT_SCIKIT_LEARN = """
import sys
sys.modules["sklearn"] = None
from forestmix import *
import forestmix, pkgutil, importlib
for action in ("forestmix.ForestMixtureModel", "from forestmix import ForestMixtureModel",
               "select_n_trees([[1.0], [2.0]], [1])"):
    try:
        exec(action)
    except ImportError as error:
        assert isinstance(error, ForestmixError)
        print(error)
for part in pkgutil.iter_modules(importlib.import_module("forestmix.forest").__path__):
    try:
        importlib.import_module(f"forestmix.forest.{part.name}")
    except ImportError:
        print(part.name)
from forestmix.forest.parameters import forest_of_bound
print(forest_of_bound(DEF(Layer(Gaussian(1.0), [[1.0, 1.0]])), ([0.0, 0.0], [1.0, 1.0])).parent_prior)
"""


def test_without_scikit_learn_the_estimator_says_what_it_needs_and_the_rest_works():
    run = subprocess.run([sys.executable, "-c", WITHOUT_SCIKIT_LEARN], capture_output=True, text=True, check=True)
    needs = "ForestMixtureModel needs scikit-learn: pip install 'forestmix[forest]'"
    assert run.stdout.splitlines() == [needs] * 3 + ["estimator", "fitted", "[[0.5 0.5]]"]


def test_a_fitted_model_can_be_pickled(data, model):
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.transform(data), model.transform(data))
    assert again.get_params() == model.get_params()


def test_the_error_for_a_model_that_is_not_fitted_is_that_of_scikit_learn_too():
    with pytest.raises(NotFittedError, match="not fitted yet") as caught:
        fmx.ForestMixtureModel().transform(X)
    assert isinstance(caught.value, fmx.ArgumentError)


X = np.zeros((4, 3))
TABLE = {
    "n_trees": (lambda: fmx.ForestMixtureModel(0).fit(X), "n_trees must be a positive integer; got 0"),
    "n_trees kind": (lambda: fmx.ForestMixtureModel(2.5).fit(X), "n_trees must be a positive integer; got 2.5"),
    "family": (lambda: fmx.ForestMixtureModel(family="gausian").fit(X), "Did you mean 'gaussian'"),
    "parents": (lambda: fmx.ForestMixtureModel(parents="share").fit(X), "Did you mean 'shared'"),
    "parent_prior": (lambda: fmx.ForestMixtureModel(parent_prior="learn").fit(X), "Did you mean 'learned'"),
    "tol": (lambda: fmx.ForestMixtureModel(tol=-1).fit(X), "tol must be a number of at least 0; got -1"),
    "temperature": (
        lambda: fmx.ForestMixtureModel(temperature=0.5).fit(X),
        "temperature must be a number of at least 1",
    ),
    "min_noise": (lambda: fmx.ForestMixtureModel(min_noise=2).fit(X), "min_noise must be .* below 1; got 2"),
    "batch_size": (
        lambda: fmx.ForestMixtureModel(batch_size=1).fit(X),
        "batch_size must be .* at least 2 or None; got 1",
    ),
    "random_state": (lambda: fmx.ForestMixtureModel(random_state="a").fit(X), "random_state must be .* got 'a'"),
    "support": (lambda: fmx.ForestMixtureModel(family="bernoulli").fit(X + 2), "X must be 0 or 1 for Bernoulli rows"),
    "infinite": (lambda: fmx.ForestMixtureModel().fit(X + np.inf), "X must be finite, or NaN"),
    "not fitted": (lambda: fmx.ForestMixtureModel().sample(), "not fitted yet; call fit"),
    "output": (lambda: fmx.ForestMixtureModel().set_output(transform="panda"), "transform must .* mean 'pandas'"),
    "parameter": (lambda: fmx.ForestMixtureModel().set_params(n_tree=3), "Did you mean 'n_trees'"),
    "weights": (
        lambda: fmx.ForestMixtureModel.from_parameters(np.ones(3)),
        "weights must be an array of n variables by",
    ),
    "prior": (
        lambda: fmx.ForestMixtureModel.from_parameters(np.ones((2, 2)), parent_prior=[[1, 1], [0, 1]]),
        "parent_prior must .* sum to 1; got sums from 1 to 2",
    ),
    "noise": (
        lambda: fmx.ForestMixtureModel.from_parameters(np.ones((2, 2)), noise=0.0),
        "noise must be greater than 0",
    ),
    "bias": (
        lambda: fmx.ForestMixtureModel.from_parameters(np.ones((2, 3)), np.ones(3)),
        r"bias must be .* \(2, 3\); got",
    ),
    "model": (lambda: fmx.ForestMixtureModel.from_bound(X, X), "model must be a forestmix.DEF; got ndarray"),
    "samples": (lambda: known().sample(0), "n_samples must be a positive integer; got 0"),
    "Y": (lambda: known().inverse_transform(np.ones((2, 5))), r"Y must have shape \(N, 2\), .* got \(2, 5\)"),
    "q": (lambda: known().elbo(np.ones((1, 3)), (np.ones(3), np.ones(3))), r"mean of q must have shape \(2,\)"),
    "names": (lambda: known().plot(["a"]), "names must have one entry for each of the 3 variables; got 1"),
    "covariance": (lambda: known("poisson").get_covariance(), "family must be 'gaussian' .* got 'poisson'"),
    "v": (lambda: known().get_covariance().solve(np.ones(4)), r"v must have shape \(3,\) or \(3, k\) .* got \(4,\)"),
    "image_shape": (lambda: plot_parent_map(known(), (2, 2)), "image_shape must be .* an image of 3 pixels"),
    "candidates": (lambda: fmx.select_n_trees(X, []), "candidates must be a list of numbers of trees"),
    "folds": (lambda: fmx.select_n_trees(X, [1], folds=9), "folds must be a whole number from 2 to the 4 observations"),
}


def known(family="gaussian"):
    return fmx.ForestMixtureModel.from_parameters(np.ones((3, 2)), family=family)


@pytest.mark.parametrize("case", TABLE)
def test_bad_input_gets_a_clear_error(case):
    action, words = TABLE[case]
    with pytest.raises(fmx.ArgumentError, match=words) as caught:
        action()
    assert isinstance(caught.value, ValueError)
