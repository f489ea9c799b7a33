"""Estimators on tables in chunks, with y and the weights by name: the fit of the frame in memory."""

import sys

import dask
import numpy as np
import pandas as pd
import pytest

import forestmix as fmx
from forestmix.errors import ArgumentError
from forestmix.regression import table_chunks

N = 150
RNG = np.random.default_rng(1)
X = pd.DataFrame(RNG.standard_normal((N, 4)) + 3, columns=list("abcd"))
ETA = X.to_numpy() @ [1.0, 0.0, -1.0, 0.5] + RNG.standard_normal(N)
TABLE = X.assign(
    y=ETA, k=RNG.poisson(np.exp(0.1 * ETA)), w=RNG.integers(1, 3, N),
    two=np.where(ETA.mean() < ETA, "yes", "no"), three=np.digitize(ETA, np.quantile(ETA, [0.3, 0.7])),
)  # fmt: skip
CUTS = ((0, 70), (70, 70), (70, N))


@pytest.fixture(params=["polars", "pyarrow"])
def folder(request, tmp_path, monkeypatch):
    """Return a function that writes columns of a frame as a folder of Parquet files."""
    polars = pytest.importorskip("polars")
    if request.param == "polars":
        monkeypatch.setattr(table_chunks, "ROWS_AT_A_TIME", 25)
        monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    else:
        pytest.importorskip("pyarrow.dataset", reason="needs the extra [parquet]")

    def write(frame, columns, name="table"):
        (tmp_path / name).mkdir()
        whole = polars.DataFrame(
            {one: [None if value != value else value for value in frame[one].tolist()] for one in columns}
        )
        for k, (a, b) in enumerate(CUTS):
            whole[a:b].write_parquet(tmp_path / name / f"{k}.parquet")
        return tmp_path / name

    return write


@pytest.mark.parametrize("weight", [None, "w"], ids=["plain", "weighted"])
@pytest.mark.parametrize(("family", "y"), [("gaussian", "y"), ("poisson", "k")])
def test_regressors(folder, family, y, weight):
    path = folder(TABLE, [*"ab", y, *"cd", *([weight] if weight else [])])
    weights = None if weight is None else TABLE[weight]
    right = fmx.BayesianRegressor(family).fit(X, TABLE[y], weights)
    found = fmx.BayesianRegressor(family).fit(str(path), y, weight)
    assert (found.n_features_in_, list(found.feature_names_in_)) == (4, list("abcd"))
    for name in ("coef_", "coef_sd_", "intercept_", "prior_sd_"):
        np.testing.assert_allclose(getattr(found, name), getattr(right, name), atol=1e-7)
    for one, two in zip(found.predict(path, return_std=True), right.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(one.compute(), two, atol=1e-7)
    for one, two in zip(found.predict_interval(path), right.predict_interval(X), strict=True):
        np.testing.assert_allclose(one.compute(), two, atol=1e-6)
    np.testing.assert_allclose(found.predict(X), right.predict(path).compute(), atol=1e-7)
    assert found.score(path, y, weight) == pytest.approx(right.score(X, TABLE[y], weights), abs=1e-7)


@pytest.mark.parametrize("y", ["two", "three"])
def test_classifiers(folder, y):
    path = folder(TABLE, [*"abcd", y])
    right, found = fmx.BayesianClassifier().fit(X, TABLE[y]), fmx.BayesianClassifier().fit(path, y)
    assert list(found.classes_) == list(right.classes_)
    np.testing.assert_allclose(found.coef_, right.coef_, atol=1e-7)
    np.testing.assert_allclose(found.predict_proba(path).compute(), right.predict_proba(X), atol=1e-7)
    np.testing.assert_allclose(found.decision_function(path).compute(), right.decision_function(X), atol=1e-6)
    assert list(found.predict(path).compute()) == list(right.predict(X))
    assert found.score(path, y) == right.score(X, TABLE[y])


def test_delayed_frames_with_an_empty_one_and_other_columns():
    parts = [dask.delayed(TABLE[[*"dcba", "y"]].iloc[a:b]) for a, b in CUTS]
    found = fmx.BayesianRegressor().fit(parts, "y")
    right = fmx.BayesianRegressor().fit(X[list("dcba")], ETA)
    np.testing.assert_allclose(found.coef_, right.coef_, atol=1e-7)
    whole = [dask.delayed(TABLE.iloc[a:b]) for a, b in CUTS]  # more columns, in another order
    np.testing.assert_allclose(found.predict(whole).compute(), right.predict(X[list("dcba")]), atol=1e-7)


def test_what_is_wrong_is_said(folder, tmp_path):
    path, model = folder(TABLE, [*"abcd", "y", "two"]), fmx.BayesianRegressor()
    holes = TABLE.assign(a=TABLE.a.where(TABLE.a > 3, None), two=TABLE.two.where(TABLE.a > 3, None))
    missing = folder(holes, [*"ab", "two", "y"], "missing")
    only = folder(TABLE, ["y"], "only")
    for arguments, message in (
        ((path, "z"), "y must be one of"),
        ((path, None), "y must be the name of a column of X"),
        ((path, ETA), "y must be the name of a column of X"),
        ((path, "y", np.ones(N)), "sample_weight must be the name of a column of X"),
        ((path, "y", "weight"), "sample_weight must be one of"),
        ((path, "y"), "X: column 'two' must have numbers"),
        ((only, "y"), "X must have columns beside those of y"),
        ((tmp_path / "nowhere", "y"), "X must be a Parquet file, or a folder with some"),
    ):
        with pytest.raises(ArgumentError, match=message):
            model.fit(*arguments)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArgumentError, match="X must be a Parquet file, or a folder with some"):
        model.fit(tmp_path / "empty", "y")
    with pytest.raises(ArgumentError, match="X must have at least one row"):
        model.fit(folder(TABLE[:0], list("ay"), "no_rows"), "y")
    with pytest.raises(ArgumentError, match="y: column 'two' of X must have no missing entries"):
        fmx.BayesianClassifier().fit(missing, "two")
    numbers = folder(holes, [*"ab", "y"], "numbers")
    with pytest.raises(ArgumentError, match="X: column 'a' must be finite"):
        model.fit(numbers, "y")
    with pytest.raises(ArgumentError, match="y: column 'a' must be finite"):
        model.fit(numbers, "a")
    fitted = fmx.BayesianRegressor().fit(X, ETA)
    with pytest.raises(ArgumentError, match="A column of X must be one of"):
        fitted.predict(numbers)
    with pytest.raises(ArgumentError, match="X must have the 4 columns of the fit, which had no names"):
        fmx.BayesianRegressor().fit(X.to_numpy(), ETA).predict(numbers)


def test_frames_of_dask_with_y_by_name():
    pytest.importorskip("pyarrow", reason="needs the extra [parquet]")
    frames = pytest.importorskip("dask.dataframe")
    whole = frames.from_pandas(TABLE[[*"abcd", "y"]], npartitions=3)
    found, right = fmx.BayesianRegressor().fit(whole, "y"), fmx.BayesianRegressor().fit(X, ETA)
    np.testing.assert_allclose(found.coef_, right.coef_, atol=1e-7)
    assert found.score(whole, "y") == pytest.approx(right.score(X, ETA), abs=1e-7)
