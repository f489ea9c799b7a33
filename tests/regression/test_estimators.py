"""Estimators keep scikit-learn's contract, and agree with its own Bayesian regressions and with maximum likelihood."""

import pickle

import numpy as np
import pandas
import pytest
import scipy
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import ARDRegression, BayesianRidge, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import forestmix as fmx
from forestmix.errors import ArgumentError


def small_model(columns):
    rng = np.random.default_rng(0)
    return fmx.DEF(fmx.Layer(fmx.Gaussian(sd=1.0), rng.standard_normal((columns, 3))))


#: What applies is run; this needs an environment variable to be set before SciPy is imported.
NOT_APPLICABLE = {"check_array_api_input"}
#: Checks that give a regressor responses that are no whole numbers, which are no counts.
NO_COUNTS = dict.fromkeys(
    ["check_n_features_in_after_fitting", "check_regressors_train", "check_regressor_data_not_an_array",
     "check_regressors_no_decision_function", "check_fit_idempotent", "check_fit_check_is_fitted",
     "check_n_features_in"],
    "the check gives responses that are no whole numbers",
)  # fmt: skip


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        pytest.param(fmx.BayesianRegressor(prior_sd=1.0, noise=1.0), {}, id="regressor"),
        pytest.param(fmx.BayesianRegressor(), {}, id="regressor, scales learned"),
        pytest.param(fmx.BayesianClassifier(prior_sd=1.0), {}, id="classifier"),
        pytest.param(fmx.LatentEncoder(small_model), {}, id="encoder"),
        pytest.param(fmx.LatentEncoder(small_model, return_sd=True), {}, id="sds"),
        pytest.param(fmx.BayesianRegressor("poisson", prior_sd=1.0), NO_COUNTS, id="counts"),
        pytest.param(fmx.BayesianRegressor("poisson"), NO_COUNTS, id="counts, scales learned", marks=pytest.mark.slow),
        pytest.param(fmx.BayesianClassifier(), {}, id="classifier, scales learned", marks=pytest.mark.slow),
        pytest.param(fmx.BayesianRegressor(prior_sd="ard"), {}, id="regressor, ard", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_contract_of_scikit_learn(estimator, expected):
    """All checks that apply; of counts those that give counts, and the others must say that they do not."""
    found = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=expected)
    assert not [f"{one['check_name']}: {one['exception']}" for one in found if one["status"] == "failed"]
    refused = [one for one in found if one["status"] == "xfail"]
    assert {one["check_name"] for one in refused} == set(expected)
    assert all("must be counts" in str(one["exception"]) for one in refused)
    assert {one["check_name"] for one in found if one["status"] == "skipped"} <= NOT_APPLICABLE


@pytest.mark.parametrize("columns", [3, 20])
@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_learned_scales_know_weights(make, columns):
    """As ``check_sample_weight_equivalence`` has it, with fewer rows than columns too, where classes are separable."""
    rng = np.random.default_rng(42)
    X, y, weights = rng.random((10, columns)), rng.integers(0, 2, 10), rng.integers(0, 4, 10)
    weighted = fmx.BayesianClassifier().fit(make(X), y, sample_weight=weights)
    repeated = fmx.BayesianClassifier().fit(make(np.repeat(X, weights, axis=0)), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-9)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("scale", [None, 1.0])
def test_sample_weights_of_a_classifier_are_repeated_rows(scale):
    rng = np.random.default_rng(0)
    X, y, weights = rng.standard_normal((30, 2)), rng.integers(0, 2, 30), rng.integers(0, 5, 30)
    weighted = fmx.BayesianClassifier(prior_sd=scale).fit(X, y, sample_weight=weights)
    repeated = fmx.BayesianClassifier(prior_sd=scale).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-7)
    np.testing.assert_allclose(weighted.coef_sd_, repeated.coef_sd_, rtol=1e-7)


def test_predictive_sd_of_a_row_is_that_of_the_mixture():
    X, y = diabetes()
    ours = fmx.BayesianRegressor().fit(X, y)
    draws = ours.posterior_.sample(20_000, rng=0)
    eta = draws[:, :1] + draws[:, 1:] @ X[:5].T
    mean, sd = ours.predict(X[:5], return_std=True)
    assert mean == pytest.approx(eta.mean(axis=0), abs=0.3)
    assert sd == pytest.approx(np.sqrt(eta.var(axis=0) + ours.noise_sd_**2), rel=0.01)


def diabetes():
    data = load_diabetes()
    return StandardScaler().fit_transform(data.data), data.target


def test_one_scale_is_that_of_bayesian_ridge():
    """Its type II maximum is the mode of what is integrated here; they meet where scales are well known."""
    X, y, _ = make_regression(600, 80, n_informative=80, noise=40.0, coef=True, random_state=1)
    reference = BayesianRidge(alpha_1=0, alpha_2=0, lambda_1=0, lambda_2=0, tol=1e-10, max_iter=5000).fit(X, y)
    ours = fmx.BayesianRegressor().fit(X, y)
    assert ours.noise_sd_ == pytest.approx(reference.alpha_**-0.5, rel=0.02)
    assert ours.prior_sd_[0] == pytest.approx(reference.lambda_**-0.5, rel=0.02)
    sd = np.sqrt(np.diag(reference.sigma_))
    assert np.max(np.abs(ours.coef_ - reference.coef_) / sd) < 0.05
    assert np.max(np.abs(ours.coef_sd_ / sd - 1)) < 0.02
    mean, spread = ours.predict(X[:20], return_std=True)
    theirs = reference.predict(X[:20], return_std=True)
    assert np.allclose(mean, theirs[0], rtol=0.01, atol=1.0)
    assert np.allclose(spread, theirs[1], rtol=0.03)


def test_known_scales_are_ridge_regression():
    X, y = diabetes()
    ours = fmx.BayesianRegressor(prior_sd=20.0, noise=55.0).fit(X, y)
    centred = X - X.mean(axis=0)
    precision = centred.T @ centred / 55.0**2 + np.eye(10) / 20.0**2
    expected = np.linalg.solve(precision, centred.T @ (y - y.mean()) / 55.0**2)
    assert np.allclose(ours.coef_, expected, rtol=1e-5, atol=1e-4)
    assert np.allclose(ours.coef_sd_, np.sqrt(np.diag(np.linalg.inv(precision))), rtol=1e-6)
    assert ours.intercept_ == pytest.approx(y.mean(), rel=1e-4)


def test_a_scale_for_each_column_finds_the_columns_that_matter():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((300, 12))
    y = X[:, 0] * 3 - X[:, 1] * 2 + rng.standard_normal(300)
    ours = fmx.BayesianRegressor(prior_sd="ard").fit(X, y)
    reference = ARDRegression().fit(X, y)
    assert np.max(np.abs(ours.coef_ - reference.coef_)) < 0.12
    assert ours.prior_sd_[:2].min() > 5 * ours.prior_sd_[2:].max()
    shared = fmx.BayesianRegressor().fit(X, y)
    assert np.abs(ours.coef_[2:]).sum() < 0.6 * np.abs(shared.coef_[2:]).sum()


def test_intervals_cover_new_rows():
    X, y = diabetes()
    covered = []
    for fold in range(5):
        test = np.arange(len(y)) % 5 == fold
        low, high = fmx.BayesianRegressor().fit(X[~test], y[~test]).predict_interval(X[test], level=0.9)
        covered.extend((low <= y[test]) & (y[test] <= high))
    assert 0.87 <= np.mean(covered) <= 0.93


def test_classifier_is_near_logistic_regression_with_the_same_prior():
    data = load_breast_cancer()
    X = StandardScaler().fit_transform(data.data)[:, :5]
    ours = fmx.BayesianClassifier(prior_sd=1.0).fit(X, data.target)
    mode = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(X, data.target)
    assert np.max(np.abs(ours.coef_ - mode.coef_) / ours.coef_sd_) < 0.3
    chance = ours.predict_proba(X)
    assert np.allclose(chance.sum(axis=1), 1)
    low, high = ours.predict_interval(X)
    assert ((low <= chance[:, 1]) & (chance[:, 1] <= high)).mean() > 0.99
    assert ours.score(X, data.target) > 0.9


def test_three_classes_are_one_against_the_rest():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = fmx.BayesianClassifier(prior_sd=2.0).fit(X, names)
    assert model.coef_.shape == model.coef_sd_.shape == (3, 4)
    assert model.predict_proba(X).shape == (150, 3)
    assert model.score(X, names) > 0.93
    alone = fmx.BayesianClassifier(prior_sd=2.0).fit(X, names == "virginica")
    assert np.allclose(alone.coef_[0], model.coef_[2])


def test_counts_have_a_log_link():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 3))
    y = rng.poisson(np.exp(0.5 + X @ [0.5, -0.3, 0.0]))
    model = fmx.BayesianRegressor("poisson").fit(X, y)
    assert np.all(np.abs(model.coef_ - [0.5, -0.3, 0.0]) < 4 * model.coef_sd_)
    assert 0.2 < model.score(X, y) < 1
    assert model.noise_sd_ is None
    assert (model.predict(X) > 0).all()
    with pytest.raises(ArgumentError, match="counts"):
        fmx.BayesianRegressor("poisson").fit(X, y - 3)


def test_sparse_and_dense_are_the_same():
    rng = np.random.default_rng(6)
    X = scipy.sparse.random_array((200, 15), density=0.2, rng=rng, format="csr")
    y = X @ rng.standard_normal(15) + 0.3 * rng.standard_normal(200)
    dense = fmx.BayesianRegressor(prior_sd=1.0, noise=0.3).fit(X.toarray(), y)
    sparse = fmx.BayesianRegressor(prior_sd=1.0, noise=0.3).fit(X, y)
    assert np.allclose(dense.coef_, sparse.coef_, atol=1e-8)
    assert np.allclose(dense.predict(X.toarray()), sparse.predict(X), atol=1e-8)


def test_a_weight_of_two_is_a_row_twice():
    X, y = diabetes()
    weights = np.ones(len(y))
    weights[:50] = 2
    weights[50:60] = 0
    twice = np.concatenate([np.arange(50), np.arange(50), np.arange(60, len(y))])
    weighted = fmx.BayesianRegressor().fit(X, y, sample_weight=weights)
    repeated = fmx.BayesianRegressor().fit(X[twice], y[twice])
    assert np.allclose(weighted.coef_, repeated.coef_, rtol=1e-6)
    assert np.allclose(weighted.coef_sd_, repeated.coef_sd_, rtol=1e-6)


def test_names_pipelines_grids_and_pickles():
    frame = load_diabetes(as_frame=True)
    model = fmx.BayesianRegressor(prior_sd=20.0, noise=55.0).fit(frame.data, frame.target)
    assert model.feature_names_in_.tolist() == frame.feature_names
    assert model.posterior_.summary().names == ["Intercept", *frame.feature_names]
    assert model.log_evidence_ == model.posterior_.log_evidence < 0
    flags = fmx.BayesianClassifier(prior_sd=20.0, fit_intercept=False).fit(frame.data, frame.target > 100)
    assert flags.posteriors_[0].summary().names == frame.feature_names
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.data.rename(columns={"bmi": "mass"}))
    pipeline = make_pipeline(StandardScaler(), clone(model))
    assert cross_val_predict(pipeline, frame.data, frame.target, cv=3).shape == (442,)
    grid = GridSearchCV(model, {"prior_sd": [1.0, 100.0]}, cv=3).fit(frame.data, frame.target)
    assert grid.best_params_ == {"prior_sd": 100.0}
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(frame.data), model.predict(frame.data))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"family": "gamma"}, "family must be one of"),
        ({"prior_sd": "wide"}, "prior_sd must be"),
        ({"prior_sd": [1.0, 2.0]}, "each of the 10 columns"),
        ({"prior_sd": -1.0}, "above 0"),
        ({"noise": 0.0}, "above 0"),
    ],
)
def test_settings_that_are_wrong(settings, message):
    X, y = diabetes()
    with pytest.raises(ArgumentError, match=message):
        fmx.BayesianRegressor(**settings).fit(X, y)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.coo_matrix])
def test_an_encoder_takes_sparse_observations(kind):
    rng = np.random.default_rng(7)
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), 0.5 * rng.standard_normal((8, 2))))
    x = model.sample(rng, 30).x
    expected = np.array([fmx.infer(model, row).mean for row in x])
    np.testing.assert_allclose(fmx.LatentEncoder(model).fit(kind(x)).transform(kind(x)), expected, atol=1e-5)


def test_encoder():
    rng = np.random.default_rng(7)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=0.5), rng.standard_normal((8, 2))))
    x = model.sample(rng, 30).x
    x[3, 2] = np.nan
    encoder = fmx.LatentEncoder(model, return_sd=True)
    with pytest.raises(NotFittedError):
        encoder.get_feature_names_out()
    encoder.fit(x)
    codes = encoder.transform(x)
    result = fmx.infer(model, x)
    assert np.allclose(codes, np.hstack([result.mean, np.broadcast_to(result.sd, result.mean.shape)]))
    assert encoder.get_feature_names_out().tolist() == [f"latentencoder{k}" for k in range(4)]
    frame = encoder.set_output(transform="pandas").transform(x)
    assert isinstance(frame, pandas.DataFrame)
    assert encoder.inverse_transform(codes).shape == x.shape
    with pytest.raises(ArgumentError, match="8 columns"):
        fmx.LatentEncoder(model).fit(x[:, :5])
    with pytest.raises(ArgumentError, match=r"forestmix\.DEF"):
        fmx.LatentEncoder().fit(x)
    with pytest.raises(NotFittedError):
        fmx.LatentEncoder(model).transform(x)


def test_features_have_the_names_of_the_latents():
    weights = pandas.DataFrame(np.eye(4)[:, :2], columns=["left", "right"])
    encoder = fmx.LatentEncoder(fmx.DEF(fmx.Layer(fmx.Gaussian(sd=1.0), weights)), return_sd=True)
    frame = encoder.set_output(transform="pandas").fit_transform(np.eye(4))
    assert frame.columns.tolist() == ["left", "right", "sd(left)", "sd(right)"]
