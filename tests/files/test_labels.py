"""Labels of latents, from the columns of a data frame, in tables, files and other libraries, of every type."""

import datetime

import numpy as np
import pandas
import polars
import pytest

import forestmix as fmx
from forestmix.tables import plain_label
from support.saved_objects import DEPTHS, W, data, flat

DAY = datetime.datetime(2020, 2, 29, 12, 30)
LABELS = {
    "texts": ["a", "é\n\"'", "", "<b>c</b>", "a"],
    "whole numbers": [3, -1, 10**20, 0, 7],
    "numbers": [0.5, 1e300, -0.0, np.inf, 2.0],
    "flags": [True, False, True, False, True],
    "times": pandas.date_range(DAY, periods=5, freq="37min"),
    "times of a zone": pandas.date_range(DAY, periods=5, tz="Europe/Berlin"),
    "durations": pandas.timedelta_range("1D", periods=5, freq="3h"),
    "categories": pandas.CategoricalIndex(["low", "high", "mid", "none", "all"], ordered=True),
    "tuples": pandas.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1), ("b", 2), ("é", 3)], names=["g", "k"]),
    "tuples with times": pandas.MultiIndex.from_product([["a"], pandas.date_range(DAY, periods=5)]),
    "of several types": pandas.Index(["a", 1, 2.5, ("b", 3), DAY.date()], dtype=object, tupleize_cols=False),
    "intervals": pandas.interval_range(0, 5),
    "nanoseconds": pandas.date_range("2020", periods=5, freq="3ns") + pandas.Timedelta(1, "ns"),
}


def labelled(columns):
    return flat(weights=pandas.DataFrame(W, columns=columns))


@pytest.mark.parametrize("name", LABELS)
def test_labels_of_every_type_come_back(name, tmp_path):
    model = labelled(LABELS[name])
    labels = model.layers[0].labels
    # Texts, numbers, times of whole microseconds and tuples are equal to what pandas has; others are its texts.
    expected = map(str, LABELS[name]) if name in ("intervals", "nanoseconds") else LABELS[name]
    assert list(labels) == list(expected)
    result = fmx.infer(model, data(model))
    posterior = result.posterior()
    for obj in (result, posterior):
        obj.save(tmp_path / "a.nc")
        loaded = fmx.load(tmp_path / "a.nc")
        found = loaded.model.layers[0].labels
        assert found == labels
        assert list(map(type, found)) == list(map(type, labels))
        pandas.testing.assert_frame_equal(loaded.to_pandas(), obj.to_pandas())
        assert loaded.to_xarray().identical(obj.to_xarray())
    assert fmx.load(tmp_path / "a.nc").summary().names == posterior.summary().names


def test_tables_have_the_labels():
    model = labelled(list("abcde"))
    posterior = fmx.infer(model, data(model)).posterior()
    assert posterior.summary().names == list("abcde")
    assert posterior.summary(names=list("vwxyz")).names == list("vwxyz")
    assert posterior.to_xarray()["latent"].values.tolist() == list("abcde")
    assert posterior.to_arviz(5)["posterior"]["latent"].values.tolist() == list("abcde")
    frame = pandas.DataFrame(W, columns=list("abcde"))
    np.testing.assert_allclose(frame @ posterior.to_pandas()["mean"], W @ posterior.mean)
    assert fmx.infer(labelled(LABELS["tuples"]), data(model)).posterior().summary().names[0] == "a, 1"


def test_columns_that_are_only_numbered_are_no_labels():
    assert flat(weights=pandas.DataFrame(W)).layers[0].labels is None
    assert flat(weights=W).layers[0].labels is None
    assert labelled([4, 3, 2, 1, 0]).layers[0].labels == (4, 3, 2, 1, 0)


def test_a_frame_of_polars(tmp_path):
    model = flat(weights=polars.DataFrame(W, schema=["a", "b", "é", "d", "e"]))
    fmx.infer(model, data(model)).save(tmp_path / "r.nc")
    assert fmx.load(tmp_path / "r.nc").posterior().summary().names == ["a", "b", "é", "d", "e"]


def test_each_layer_of_a_deep_model_has_its_own(tmp_path):
    plain = DEPTHS["two layers"]()
    upper = pandas.DataFrame(plain.layers[1].weights.toarray(), columns=["x", "y", "z"])
    model = fmx.DEF(plain.layers[0], fmx.Layer(fmx.Gaussian(0.9), upper))
    fmx.infer(model, data(model)).save(tmp_path / "r.nc")
    loaded = fmx.load(tmp_path / "r.nc")
    assert loaded.posterior().summary(layer=0).names == [f"y[{j}]" for j in range(5)]
    assert loaded.posterior().summary(layer=1).names == ["x", "y", "z"]
    assert loaded.to_xarray()["latent_1"].values.tolist() == ["x", "y", "z"]
    assert loaded.to_pandas().loc[1].index.tolist() == ["x", "y", "z"]


def test_labels_stay_through_scales_and_other_weights():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(), pandas.DataFrame(W, columns=list("abcde"))))
    result = fmx.infer(model, data(model))
    assert result.posterior().summary().names == list("abcde")
    assert model.on_host().layers[0].labels == tuple("abcde")


def test_labels_that_are_missing_are_texts():
    assert plain_label(float("nan")) == "nan"
    assert plain_label(pandas.NaT) == "NaT"
    assert plain_label(np.int64(3)) == 3


def batch():
    rows, latents = [f"gene {i}" for i in range(6)], ["left", "right"]
    weights = pandas.DataFrame(W[:6, :2], index=rows, columns=latents)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=0.5), weights))
    return model, pandas.DataFrame(model.sample(0, 3).x, index=["ann", "bob", "cid"], columns=rows)


def test_observations_keep_the_names_of_their_rows(tmp_path):
    model, x = batch()
    result = fmx.infer(model, x)
    result.save(tmp_path / "r.nc")
    for found in (result, result.posterior(), fmx.load(tmp_path / "r.nc")):
        assert found.to_pandas().index.tolist()[1:3] == [("ann", "right"), ("bob", "left")]
        assert found.to_xarray()["observation"].values.tolist() == ["ann", "bob", "cid"]
    chosen = result.posterior().take([2, 0]).to_pandas()
    np.testing.assert_allclose(chosen.loc["cid", "mean"], result.mean[2])
    assert result.posterior().take(1).to_pandas().index.tolist() == ["left", "right"]
    assert fmx.infer(model, x.to_numpy()).to_xarray()["observation"].values.tolist() == [0, 1, 2]
    assert fmx.infer(model, x[[*x.columns]].reset_index(drop=True)).data.labels is None


def test_data_with_labels_are_put_in_the_order_of_the_rows(tmp_path):
    model, x = batch()
    expected = fmx.infer(model, x.to_numpy()).mean
    model.save(tmp_path / "m.nc")
    for known in (model, fmx.load(tmp_path / "m.nc")):
        assert np.array_equal(fmx.infer(known, x[x.columns[::-1]]).mean, expected)
        assert np.array_equal(fmx.infer(known, x.loc["bob"].sort_index(ascending=False)).mean, expected[1])
    swapped = polars.DataFrame({name: x[name].to_numpy() for name in reversed(list(x))})
    assert np.array_equal(fmx.infer(model, swapped).mean, expected)
    assert fmx.elbo(model, x[x.columns[::-1]], fmx.infer(model, x)) == pytest.approx(fmx.infer(model, x).elbo)


def test_data_with_other_labels_than_the_rows_are_refused():
    model, x = batch()
    with pytest.raises(fmx.ArgumentError, match="x must have the labels of W's rows; 'gene 2' is not there"):
        fmx.infer(model, x.rename(columns={"gene 2": "gene two"}))
    twice = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), pandas.DataFrame(W[:3, :2], index=["a", "a", "b"])))
    with pytest.raises(fmx.ArgumentError, match="each there once"):
        fmx.infer(twice, pandas.Series([1.0, 2.0, 3.0], index=["b", "a", "a"]))
