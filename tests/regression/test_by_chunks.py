"""Tables in chunks: the fit of the table in memory, for every family, whatever a formula learns from its columns."""

import dask
import dask.array
import numpy as np
import pandas as pd
import pytest

import forestmix as fmx
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.regression import table_chunks
from forestmix.weights.chunked import ChunkedWeights

N = 120
CUTS = ((0, 30), (30, 31), (31, 80), (80, 80), (80, N))


def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "x": rng.normal(5, 2, N), "z": rng.random(N), "g": rng.choice(list("abcdef"), N),
            "w": rng.integers(0, 4, N), "c": rng.choice(["u", "v", "t"], N), "s": rng.binomial(5, 0.4, N),
            "t": np.full(N, 5), "b": np.where(rng.random(N) < 0.5, "no", "yes"),
        }
    )  # fmt: skip
    frame["y"] = 1 + 0.5 * frame.x + rng.normal(0, 0.4, 6)[frame.g.map(ord) - 97] + rng.normal(0, 0.5, N)
    frame["k"] = rng.poisson(np.exp(0.2 * frame.z))
    frame.loc[3, "x"], frame.loc[50, "y"], frame.loc[60, "g"] = np.nan, np.nan, None
    return frame


TABLE = table()
CASES = [
    ("y ~ x + C(w) + c + (1 | g)", "gaussian", {}),
    ("k ~ center(x) + bs(z, df=4) + (0 + x | g)", "poisson", {}),
    ("b ~ scale(x):c", "bernoulli", {}),
    ("s ~ poly(x, 2) + (1 | g:c)", "binomial", {"trials": "t"}),
    ("cbind(s, t) ~ z", "binomial", {}),
    ("y ~ z + offset(x)", "gaussian", {"weights": "w", "missing": "predict"}),
]


def delayed(frame):
    return [dask.delayed(frame.iloc[a:b]) for a, b in CUTS]


@pytest.mark.parametrize(("formula", "family", "options"), CASES, ids=[case[0] for case in CASES])
def test_fits_are_those_of_the_table_in_memory(formula, family, options):
    right, found = (fmx.regress(formula, data, family, **options) for data in (TABLE, delayed(TABLE)))
    assert isinstance(found.model.layers[0].weights, ChunkedWeights)
    assert (found.names, str(found.priors), found.message) == (right.names, str(right.priors), right.message)
    np.testing.assert_allclose(found.posterior.mean, right.posterior.mean, atol=1e-9)
    np.testing.assert_allclose(found.posterior.sd, right.posterior.sd, atol=1e-9)
    assert found.summary().notes == right.summary().notes
    np.testing.assert_allclose(found.summary()["mean"], right.summary()["mean"], atol=1e-8)
    own, expected = found.predict().compute(), right.predict()
    assert own.names == expected.names
    for name in ("mean", "lower", "upper", "eta_sd"):
        np.testing.assert_allclose(getattr(own, name), getattr(expected, name), atol=1e-8)
    np.testing.assert_allclose(found.loo().elpd, right.loo().elpd, rtol=1e-9)


def test_predictions_of_new_tables_in_chunks():
    new = TABLE.dropna().head(40).assign(g="new")
    parts = [dask.delayed(new.iloc[:15]), dask.delayed(new.iloc[15:])]
    fits = [fmx.regress("y ~ x + (1 | g)", data) for data in (TABLE, delayed(TABLE))]
    right = fits[0].predict(new)
    for fit in fits:
        lazy = fit.predict(parts, level=0.9)
        np.testing.assert_allclose(lazy.mean.compute(), right.mean, atol=1e-8)
        np.testing.assert_allclose(lazy.upper.compute(), right.upper, atol=1e-8)
        assert repr(lazy) == "<ChunkedPredictions of 2 chunks>"
    np.testing.assert_allclose(fits[1].predict(new).mean, right.mean, atol=1e-8)


def test_folders_of_parquet_files_by_polars(tmp_path, monkeypatch):
    polars = pytest.importorskip("polars")
    monkeypatch.setattr(table_chunks, "ROWS_AT_A_TIME", 25)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.dataset", None)
    for k, (a, b) in enumerate(((0, 70), (70, N))):
        part = TABLE.iloc[a:b].astype(object)
        part = part.where(part.notna(), None)
        polars.DataFrame({name: part[name].tolist() for name in part}).write_parquet(tmp_path / f"{k}.parquet")
    right, found = (fmx.regress("y ~ x + c + (1 | g)", data) for data in (TABLE, tmp_path))
    assert len(found.model.layers[0].weights.chunks.slices) == 5
    np.testing.assert_allclose(found.posterior.mean, right.posterior.mean, atol=1e-8)


@pytest.mark.filterwarnings("default")
def test_frames_of_dask_and_parquet_by_pyarrow(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra [parquet]")
    frames = pytest.importorskip("dask.dataframe")
    right = fmx.regress("y ~ x + c + (1 | g)", TABLE)
    whole = frames.from_pandas(TABLE, npartitions=3)
    whole.to_parquet(tmp_path / "table")
    for data in (whole, tmp_path / "table", str(tmp_path / "table")):
        found = fmx.regress("y ~ x + c + (1 | g)", data)
        assert found.names == right.names
        np.testing.assert_allclose(found.posterior.mean, right.posterior.mean, atol=1e-8)
    lazy = right.predict(whole[["x", "c", "g"]].dropna())
    assert len(lazy.mean.compute()) == len(TABLE[["x", "c", "g"]].dropna())


def test_categories_keep_their_order_and_ids_may_be_numbers():
    frame = TABLE.dropna().assign(c=lambda one: pd.Categorical(one.c, categories=["v", "u", "t"]))
    frame["id"] = np.arange(len(frame)) % 7
    parts = [dask.delayed(frame.iloc[:50]), dask.delayed(frame.iloc[50:])]
    right, found = (fmx.regress("y ~ c + (1 | id)", data) for data in (frame, parts))
    assert found.names == right.names
    np.testing.assert_allclose(found.posterior.mean, right.posterior.mean, atol=1e-9)


def test_what_cannot_be_done_by_chunks_is_refused(tmp_path):
    for formula, options, message in (
        ("y ~ {x - np.mean(x)}", {}, "formula must treat every row by itself"),
        ("y ~ lag(z)", {}, r"formula"),
        ("scale(y) ~ z", {}, "formula must treat every row by itself"),
        ("y ~ x", {"offset": np.ones(N)}, "offset must be a column's name or one number for a table in chunks"),
        ("y ~ missing", {}, "missing"),
        ("c ~ x", {}, "must be numbers; it has 3 levels"),
        ("y ~ x", {"family": "student"}, "family"),
    ):
        with pytest.raises(ArgumentError, match=message):
            fmx.regress(formula, delayed(TABLE), **options)
    with pytest.raises(ArgumentError, match="data must be a Parquet file, or a folder with some"):
        fmx.regress("y ~ x", tmp_path)
    with pytest.raises(ArgumentError, match="at least one row"):
        fmx.regress("y ~ x", delayed(TABLE.assign(x=np.nan)))
    fit = fmx.regress("y ~ z", delayed(TABLE))
    with pytest.raises(ArgumentError, match="go with new_data"):
        fit.predict(offset=1.0)


SAVED = {
    "gaussian": "y ~ center(x) + bs(z, df=4) + c + (1 | g)",
    "poisson": "n ~ x + (x | g)",
    "bernoulli": "b ~ poly(x, 2) * c",
}


@pytest.mark.parametrize("family", SAVED)
def test_a_saved_fit_says_and_predicts_the_same_without_its_rows(family, tmp_path):
    frame = TABLE.dropna().reset_index(drop=True)
    frame["n"], frame["b"] = np.arange(len(frame)) % 5, np.arange(len(frame)) % 2
    fit = fmx.regress(SAVED[family], delayed(frame), family)
    fit.save(tmp_path / "a.nc")
    found = fmx.load(tmp_path / "a.nc")
    found.save(tmp_path / "b.nc")
    new = frame[::20].copy()
    if "g)" in SAVED[family]:
        new.loc[new.index[1], "g"] = "never seen"
    for one in (found, fmx.load(tmp_path / "b.nc")):
        assert str(one.summary()) == str(fit.summary())
        assert repr(one) == repr(fit)
        pairs = [
            (one.predict(new).columns, fit.predict(new).columns),
            (one.predict(delayed(frame)).compute().columns, fit.predict().compute().columns),
        ]
        for got, right in pairs:
            for name in right:
                np.testing.assert_allclose(got[name], right[name], rtol=1e-12)
        np.testing.assert_allclose(one.posterior.covariance(), fit.posterior.covariance(), rtol=1e-12)
        np.testing.assert_allclose(one.posterior.sample(3, rng=0), fit.posterior.sample(3, rng=0), rtol=1e-12)
    in_memory = fmx.regress(SAVED[family], frame, family)
    np.testing.assert_allclose(found.posterior.mean, in_memory.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(found.predict(new[:1]).mean, in_memory.predict(new[:1]).mean, atol=1e-6)
    for name in ("loo", "check", "simulate", "laplace", "plot"):
        with pytest.raises(ForestmixError, match="rows of this fit are not in its file"):
            getattr(found, name)()
    with pytest.raises(ArgumentError, match="new_data must be given"):
        found.predict()


def test_a_covariance_that_needs_the_rows_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(fmx.posterior.columns, "MOST_COLUMNS", 3)
    fit = fmx.regress("y ~ x + z + c", delayed(TABLE.dropna()))
    with pytest.raises(ForestmixError, match="its covariance needs the rows"):
        fit.save(tmp_path / "a.nc")


def test_draws_for_arviz_of_a_table_in_chunks():
    pytest.importorskip("arviz_base")
    fit = fmx.regress("y ~ x", delayed(TABLE))
    tree = fit.to_arviz(size=20)
    assert list(tree["log_likelihood"].coords["row"].values)[:2] == [str(row) for row in fit.cases.rows[:2]]


def test_data_without_noise_are_found_out():
    exact = TABLE.dropna().assign(y=lambda one: 2 + 3 * one.x)
    right, found = (fmx.regress("y ~ x", data) for data in (exact, [dask.delayed(exact[:9]), dask.delayed(exact[9:])]))
    assert found.priors.noise == pytest.approx(right.priors.noise)
    assert isinstance(found.priors.noise, float)


X = np.random.default_rng(1).standard_normal((150, 4)) + 3
Y = X @ [1.0, 0.0, -1.0, 0.5] + np.random.default_rng(2).standard_normal(150)
WEIGHT = np.random.default_rng(3).integers(0, 3, 150).astype(float)


def in_dask(array):
    return dask.array.from_array(array, chunks=(40, 3) if array.ndim == 2 else 60)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_regressors_take_arrays_of_dask(family, weight):
    y = Y if family == "gaussian" else np.random.default_rng(4).poisson(np.exp(0.1 * Y)).astype(float)
    right = fmx.BayesianRegressor(family).fit(X, y, weight)
    found = fmx.BayesianRegressor(family).fit(in_dask(X), in_dask(y), weight)
    np.testing.assert_allclose(found.coef_, right.coef_, atol=1e-7)
    np.testing.assert_allclose(found.coef_sd_, right.coef_sd_, atol=1e-7)
    assert found.n_features_in_ == 4
    mean, sd = found.predict(in_dask(X), return_std=True)
    expected, spread = right.predict(X, return_std=True)
    np.testing.assert_allclose(mean.compute(), expected, atol=1e-6)
    np.testing.assert_allclose(sd.compute(), spread, atol=1e-6)
    np.testing.assert_allclose(found.predict(X), expected, atol=1e-6)
    low, _ = found.predict_interval(in_dask(X))
    np.testing.assert_allclose(low.compute(), right.predict_interval(X)[0], atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_classifiers_take_arrays_of_dask(classes):
    y = np.array(["a", "b", "c"])[np.digitize(Y, np.quantile(Y, np.arange(1, classes) / classes))]
    right, found = fmx.BayesianClassifier().fit(X, y), fmx.BayesianClassifier().fit(in_dask(X), in_dask(y))
    np.testing.assert_allclose(found.coef_, right.coef_, atol=1e-7)
    for method in ("predict_proba", "decision_function"):
        np.testing.assert_allclose(getattr(found, method)(in_dask(X)).compute(), getattr(right, method)(X), atol=1e-6)
    assert list(found.predict(in_dask(X)).compute()) == list(right.predict(X))
    np.testing.assert_allclose(found.predict_interval(in_dask(X))[1].compute(), right.predict_interval(X)[1], atol=1e-6)


def test_estimators_refuse_vectors_that_do_not_fit():
    model = fmx.BayesianRegressor()
    for arguments, message in (
        ((in_dask(X)[:, 0], Y), "X must have two axes"),
        ((in_dask(X), Y[:5]), "y must have one entry for each of the 150 rows"),
        ((in_dask(X), np.full(150, np.nan)), "y must be finite"),
        ((in_dask(X), Y, -WEIGHT), "sample_weight must be finite, 0 or more"),
    ):
        with pytest.raises(ArgumentError, match=message):
            model.fit(*arguments)


def test_estimators_take_frames_of_dask():
    pytest.importorskip("pyarrow", reason="needs the extra [parquet]")
    frames = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=list("abcd"))
    found = fmx.BayesianRegressor().fit(frames.from_pandas(frame, npartitions=3), Y)
    right = fmx.BayesianRegressor().fit(frame, Y)
    np.testing.assert_allclose(found.coef_, right.coef_, atol=1e-7)
    assert list(found.feature_names_in_) == list("abcd")
    lazy = found.predict(frames.from_pandas(frame, npartitions=2))
    np.testing.assert_allclose(lazy.compute(), right.predict(frame), atol=1e-6)


class KilledError(Exception):
    """Stands for the end of a process."""


@pytest.mark.parametrize("given", [TABLE, delayed(TABLE)], ids=["in memory", "in chunks"])
def test_a_fit_that_was_killed_goes_on(given, tmp_path):
    formula, path, seen = "k ~ center(z) + (1 | g)", tmp_path / "fit.npz", []
    right = fmx.regress(formula, given, "poisson")

    def killed(at):
        seen.append(at)
        if len(seen) == 6:
            raise KilledError

    with pytest.raises(KilledError):
        fmx.regress(formula, given, "poisson", checkpoint=path, checkpoint_seconds=0, callback=killed)
    assert path.exists()
    found = fmx.regress(formula, given, "poisson", checkpoint=path)
    np.testing.assert_allclose(found.posterior.mean, right.posterior.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.posterior.sd, right.posterior.sd, rtol=0, atol=1e-12)
    with pytest.raises(ArgumentError, match="checkpoint must be of the same model, data and algorithm"):
        fmx.regress("k ~ z", given, "poisson", checkpoint=path)
