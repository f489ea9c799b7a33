"""Arrays as people give them: masked, in data frames, beyond the range of float32."""

from contextlib import nullcontext

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forestmix as fmx
from forestmix.arrays import numbers

W = np.array([[1.0, 0.5], [0.0, 2.0], [1.0, -1.0]])
X = np.zeros(3)


def model(rows=None, dtype=np.float64):
    return fmx.DEF(fmx.Layer(fmx.Gaussian(0.5) if rows is None else rows, W.astype(dtype)))


MODEL, SINGLE = model(), model(dtype=np.float32)

TABLE = {
    # Masked arrays, data frames, float32.
    "W masked": (
        lambda: fmx.Layer(fmx.Gaussian(1.0), np.ma.masked_equal(W, 0)),
        "W must have no masked .* weights .* can",
    ),
    "b masked": (
        lambda: fmx.Layer(fmx.Gaussian(1.0), W, np.ma.masked_equal([0, 1, 1], 0)),
        "b must have no masked entries",
    ),
    "b all masked": (lambda: fmx.Layer(fmx.Gaussian(1.0), W, np.ma.masked), "b must have no masked entries"),
    "sd masked": (lambda: fmx.Gaussian(np.ma.masked_equal([1, 2], 1)), "sd must have no masked entries"),
    "bias masked": (lambda: fmx.Prior(bias=[1.0, np.ma.masked]), "bias must have no masked entries"),
    "kernels masked": (
        lambda: fmx.Convolution(np.ma.masked_equal(np.ones((3, 3)), 1), (4, 4)),
        "kernels must have no masked entries: only observations can be missing",
    ),
    "x words in a frame": (
        lambda: fmx.infer(MODEL, pandas.DataFrame({"a": [1.0], "b": ["u"], "c": [2]})),
        "x must hold real numbers; column 'b' holds 'u'",
    ),
    "x dates in a frame": (
        lambda: fmx.infer(MODEL, pandas.DataFrame({"a": [1.0], "b": pandas.to_datetime(["2020"]), "c": [2]})),
        "x must hold real numbers; column 'b' holds",
    ),
    "W empty in a frame": (
        lambda: fmx.Layer(fmx.Gaussian(1.0), pandas.DataFrame({"a": [True, None], "b": [1, 2]})),
        r"W must be finite; .* nan at index \(1, 0\)",
    ),
    "x float32": (
        lambda: fmx.infer(SINGLE, [0, 1e39, 0]),
        r"x does not fit float32.* got 1e\+39 at index 1. Give float64",
    ),
    "b float32": (lambda: fmx.Layer(fmx.Gaussian(1.0), np.float32(W), -1e39), "b does not fit float32"),
    "sd float32": (
        lambda: fmx.Layer(fmx.Gaussian(1e-50), np.float32(W)),
        "sd does not fit float32.* got 1e-50. Give float64",
    ),
    "bias float32": (
        lambda: fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.float32(W)), prior=fmx.Prior(bias=1e39)),
        "bias does not fit float32",
    ),
    "init float32": (
        lambda: fmx.infer(SINGLE, X, init=([0, 1e39], [1, 1])),
        "mean of init does not fit float32.* at index 1",
    ),
    "W long double": (
        lambda: fmx.Layer(fmx.Gaussian(1.0), W * np.longdouble(10) ** 400),
        "W does not fit float64|W must be finite",
    ),
    # Indices of one observation.
    "x infinite at": (lambda: fmx.infer(MODEL, [np.inf, 0.0, 0.0]), "the first inf at index 0"),
    "x infinite in a batch": (lambda: fmx.infer(MODEL, [[0.0, np.inf, 0.0]]), r"the first inf at index \(0, 1\)"),
    "x support at": (lambda: fmx.infer(model(fmx.Poisson()), [-1, 0, 0]), "the first -1.0 at index 0"),
    "x trials at": (lambda: fmx.infer(model(fmx.Binomial(2)), [0, 3, 0]), "the first 3.0 at index 1"),
    "x flags in a batch": (
        lambda: fmx.infer(model(fmx.Bernoulli()), [[0, 0, 0], [0, 2, 0]]),
        r"the first 2.0 at index \(1, 1\)",
    ),
    "init at": (lambda: fmx.infer(MODEL, X, init=([np.nan, 0.0], np.ones(2))), "the first nan at index 0"),
}


@pytest.mark.parametrize("case", TABLE)
def test_what_cannot_be_used_is_refused_by_name(case):
    action, words = TABLE[case]
    with pytest.raises(fmx.ArgumentError, match=words) as caught:
        action()
    assert str(caught.value).endswith(".")


#: What takes observations of a model.
TAKES_X = {
    "infer": lambda x: fmx.infer(MODEL, x).mean,
    "elbo": lambda x: fmx.elbo(MODEL, x, ([0.1, 0.2], [0.3, 0.4])),
    "fm_bound": lambda x: fmx.fm_bound(MODEL, x, ([0.1, 0.2], [0.3, 0.4])),
    "gap": lambda x: fmx.gap(MODEL, x, ([0.1, 0.2], [0.3, 0.4])),
    "log_evidence": lambda x: fmx.log_evidence(MODEL, x),
}


@pytest.mark.parametrize("name", TAKES_X)
@pytest.mark.parametrize("dtype", [float, np.float32, int, bool])
def test_masked_observations_are_missing(name, dtype):
    """Against NaN in their place; what lies under the mask must not show."""
    take, rng = TAKES_X[name], np.random.default_rng(0)
    for shape in ((3,), (4, 3)):
        x, mask = rng.integers(0, 2, shape).astype(dtype), rng.random(shape) < 0.4
        mask.flat[0] = True
        expected = take(np.where(mask, np.nan, x.astype(float)))
        assert np.array_equal(take(np.ma.masked_array(x, mask)), expected)
        assert np.array_equal(take(np.ma.masked_array(np.where(mask, 1 - x, x).astype(dtype), mask)), expected)
    # A list of rows is no masked array itself.
    assert np.array_equal(take(list(np.ma.masked_array(x, mask))), expected)


def test_a_mask_that_hides_nothing_changes_nothing():
    assert np.array_equal(fmx.infer(MODEL, np.ma.masked_array([1, 2, 3])).mean, fmx.infer(MODEL, [1, 2, 3]).mean)
    assert fmx.Layer(fmx.Gaussian(1.0), np.ma.masked_array(W), np.ma.masked_array(X)).size == 3


COLUMNS = {
    "bool": ([True, False], "bool"),
    "int": ([3, -4], "int64"),
    "float": ([1.5, None], "float64"),
    "single": ([1.5, 2.5], "float32"),
    "nullable int": ([3, None], "Int64"),
    "nullable bool": ([None, True], "boolean"),
    "nullable float": ([1.5, None], "Float32"),
    "objects": ([None, 2], "object"),
    "categories": ([7, 8], "category"),
}


@given(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5))
def test_data_frames_of_any_numbers_are_read(kinds):
    parts = [pandas.Series(values, dtype=dtype) for values, dtype in (COLUMNS[kind] for kind in kinds)]
    # Two columns may have the same name.
    frame = pandas.concat(parts, axis=1, keys=["same"] * len(parts))
    expected = np.array([[np.nan if v is None else float(v) for v in COLUMNS[kind][0]] for kind in kinds]).T
    found = numbers("x", frame)
    assert np.array_equal(found, expected, equal_nan=True)
    assert found.dtype == np.float32 if set(kinds) == {"single"} else True
    assert np.array_equal(numbers("x", parts[0]), expected[:, 0], equal_nan=True)


class Series:
    """As polars has a column: its numbers know no missing entry, and to_numpy takes no arguments that would."""

    def __init__(self, name, values):
        self.name, self.values, self.dtype = name, np.array(values), "a dtype of its own"

    def to_numpy(self):
        return self.values


class Frame:
    """As polars has a frame: dates among numbers become numbers."""

    def __init__(self, **columns):
        self.series = [Series(*item) for item in columns.items()]
        self.columns = list(columns)

    def get_columns(self):
        return self.series

    def to_numpy(self):
        return np.column_stack([series.values.astype(object) for series in self.series])

    def __array__(self, dtype=None, copy=None):
        plain = all(series.values.dtype.kind != "O" for series in self.series)
        return np.column_stack([series.values.astype(float) for series in self.series]) if plain else self.to_numpy()


def test_frames_that_are_not_of_pandas_are_read():
    frame = Frame(a=[True, False], b=[None, True], c=[1.5, np.nan])
    assert np.array_equal(numbers("x", frame), [[1, np.nan, 1.5], [0, 1, np.nan]], equal_nan=True)
    with pytest.raises(fmx.ArgumentError, match="column 'day' holds"):
        numbers("x", Frame(a=[1.0, 2.0], day=np.array(["2020-01-01", "2020-01-02"], "M8[D]")))


def test_frames_serve_as_x_and_as_W():
    frame = pandas.DataFrame({"a": [True, False], "b": [1, 2], "c": pandas.array([0.5, None], dtype="Float64")})
    plain = np.array([[1, 1, 0.5], [0, 2, np.nan]])
    assert np.array_equal(fmx.infer(MODEL, frame).mean, fmx.infer(MODEL, plain).mean)
    weights = pandas.DataFrame({"flag": [True, False, True], "number": pandas.array([1, 2, 3], dtype="Int64")})
    found = fmx.Layer(fmx.Gaussian(1.0), weights).weights.toarray()
    assert np.array_equal(found, [[1, 1], [0, 2], [1, 3]])


#: Where a number of a user's meets the precision of a float32 model.
PLACES = {
    "x": lambda v: fmx.infer(SINGLE, [v, 0, 0]),
    "b": lambda v: fmx.Layer(fmx.Gaussian(1.0), W.astype(np.float32), [v, 0, 0]),
    "bias": lambda v: fmx.DEF(SINGLE.layers[0], prior=fmx.Prior(bias=v)),
    "sd": lambda v: fmx.Layer(fmx.Gaussian(abs(v)), W.astype(np.float32)),
    "prior": lambda v: fmx.DEF(SINGLE.layers[0], prior=fmx.Prior(fmx.Laplace(abs(v)))),
    "mean of init": lambda v: fmx.infer(SINGLE, X, init=([v, 0], [1, 1])),
    "q": lambda v: fmx.elbo(SINGLE, X, ([v, 0], [1, 1])),
    "forward": lambda v: SINGLE.layers[0].weights.forward([v, 0]),
    "functionals": lambda v: fmx.infer(SINGLE, X).posterior().variance([v, 0]),
    "density": lambda v: fmx.infer(SINGLE, X).layers[0].density(v),
    "rows": lambda v: fmx.infer(SINGLE, X).posterior().predict(fmx.Layer(fmx.Gaussian(1.0), [[v, 1.0]])),
    "sample": lambda v: fmx.DEF(SINGLE.layers[0], prior=fmx.Prior(bias=min(abs(v), 3e38))).sample(0),
}
#: These are computed in float64, and may be infinite at the end.
DOUBLE = {"functionals", "density", "rows", "sample", "prior"}


@pytest.mark.parametrize("place", PLACES)
def test_no_number_gives_a_warning_in_float32(place):
    """Warnings are errors here. What does not fit is refused, all else is accepted."""
    rng = np.random.default_rng(0)
    limit = float(np.finfo(np.float32).max)
    for value in [*(10.0 ** rng.uniform(-45, 60, 12) * rng.choice([-1, 1], 12)), 1.01 * limit, 1e-44, 1e30]:
        fits = abs(value) <= limit or place in DOUBLE
        positive = place == "sd" and np.float32(abs(value) if abs(value) <= limit else 1) == 0
        refused = pytest.raises(fmx.ArgumentError, match="does not fit float32")
        with nullcontext() if fits and not positive else refused:
            PLACES[place](value)


@pytest.mark.parametrize("kind", ["pandas", "polars", "polars, listed"])
def test_categories_in_W_have_a_latent_for_each_level(kind):
    words, z = ["v", "u", "v", "w"], [0.5, -1.0, 2.0, 0.0]
    if kind == "pandas":
        frame = pandas.DataFrame({"z": z, "g": pandas.Categorical(words), "k": pandas.Categorical([3, 1, 2, 3])})
    else:
        polars = pytest.importorskip("polars")
        listed = polars.Categorical if kind == "polars" else polars.Enum(["u", "v", "w"])
        frame = polars.DataFrame({"z": z, "g": polars.Series(words, dtype=listed), "k": [3, 1, 2, 3]})
    layer = fmx.Layer(fmx.Gaussian(1.0), frame)
    assert layer.labels == ("z", "g[u]", "g[v]", "g[w]", "k")
    expected = np.column_stack([z, *([one == level for one in words] for level in "uvw"), [3, 1, 2, 3]])
    np.testing.assert_array_equal(layer.weights.toarray(), expected)
    with pytest.raises(fmx.ArgumentError, match="W must be finite"):
        fmx.Layer(fmx.Gaussian(1.0), pandas.DataFrame({"g": pandas.Categorical(["u", None])}))
