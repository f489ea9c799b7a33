"""Predictions of new rows by a data frame: columns are found by name, and names are checked."""

import numpy as np
import pandas
import polars
import pytest

import forestmix as fmx
from forestmix.errors import ArgumentError

RNG = np.random.default_rng(0)
FRAME = pandas.DataFrame(RNG.standard_normal((30, 3)), columns=["age", "dose", "time"])
X = RNG.poisson(1.0, 30)


def posterior(frame=FRAME, family=None, **options):
    return fmx.infer(fmx.DEF(fmx.Layer(family or fmx.Poisson(), frame, **options)), X).posterior()


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_columns_are_found_by_name(kind):
    fitted = posterior(b=0.5)
    right = fitted.predict(fmx.Layer(fmx.Poisson(), FRAME.to_numpy()[:4], b=0.5))
    new = FRAME[["time", "age", "dose"]].head(4).assign(words=list("abcd"), further=1.0).drop(columns="words")
    found = fitted.predict(new if kind == "pandas" else polars.DataFrame(new.to_dict("list")))
    np.testing.assert_allclose(found.mean, right.mean, rtol=1e-12)
    np.testing.assert_allclose(found.upper, right.upper)


def test_a_level_that_no_new_row_has_is_a_column_of_zeros():
    frame = FRAME.assign(ward=pandas.Categorical(["a", "b", "c"] * 10))
    fitted = posterior(frame)
    new = frame.head(6)
    right = fitted.predict(np.arange(6))
    found = fitted.predict(new[new.ward != "c"].astype({"ward": str}).astype({"ward": "category"}))
    np.testing.assert_allclose(found.mean, right.mean[[0, 1, 3, 4]], rtol=1e-12)
    with pytest.raises(ArgumentError, match=r"A level of rows must be one of 'ward\[a\]', .*got 'ward\[d\]'"):
        fitted.predict(new.assign(ward=pandas.Categorical(["d"] * 6)))


def test_what_is_wrong_is_said():
    fitted = posterior()
    for rows, message in (
        (FRAME[["age", "dose"]], "A column of rows must be one of 'age', 'dose'; got 'time'"),
        (FRAME.rename(columns={"dose": "doze"}), "A column of rows must be one of .*got 'dose'. Did you mean 'doze'"),
        (FRAME.assign(age=np.nan), "rows must be finite"),
        (fmx.Layer(fmx.Poisson(), FRAME[["dose", "age", "time"]]), "column 0 is 'age' in W, and 'dose' in rows"),
    ):
        with pytest.raises(ArgumentError, match=message):
            fitted.predict(rows)
    with pytest.raises(ArgumentError, match="the columns of its W have no names"):
        posterior(FRAME.to_numpy()).predict(FRAME)
    with pytest.raises(ArgumentError, match="have a bias each"):
        posterior(b=np.arange(30) / 30).predict(FRAME)
    with pytest.raises(ArgumentError, match="differ in their family"):
        posterior(family=fmx.Gaussian(sd=np.arange(1.0, 31.0))).predict(FRAME)
