"""Designs equal those of patsy on the formulas that both read, and one-hot columns made the plain way."""

import time

import numpy as np
import pandas
import patsy
import polars
import pytest
import scipy

from forestmix.errors import ArgumentError
from forestmix.regression.formula import learn_design
from forestmix.regression.frames import plain_frame
from forestmix.regression.terms import parse


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    n = 60
    return pandas.DataFrame(
        {
            "y": rng.standard_normal(n),
            "x": rng.standard_normal(n),
            "z": rng.exponential(size=n),
            "ward": rng.choice(["north", "south", "west"], n),
            "kind": pandas.Categorical(rng.choice(["low", "high"], n), categories=["low", "high"]),
            "flag": rng.random(n) < 0.5,
            "g": rng.integers(0, 5, n),
            "h": rng.choice(["u", "v"], n),
        }
    )


def design_of(formula, table, **context):
    terms = parse(formula)
    return learn_design(terms, plain_frame(table, list(table.columns)), context)


def dense(rows):
    return rows.matrix.toarray() if scipy.sparse.issparse(rows.matrix) else rows.matrix


FORMULAS = [
    "x",
    "x + z",
    "0 + x",
    "x - 1",
    "ward",
    "x + C(ward)",
    "0 + ward",
    "x * ward",
    "x : kind",
    "kind * ward + x",
    "flag + kind",
    "C(g) + np.log(z)",
    "I(x ** 2) + x",
    "ward:kind",
    "np.sqrt(z) * kind",
    "C(ward) + C(g) + x:z",
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_fixed_effects_equal_those_of_patsy(formula, table):
    _, rows = design_of(f"y ~ {formula}", table)
    expected = np.asarray(patsy.dmatrix(formula, table))
    ours = dense(rows)
    assert ours.shape == expected.shape
    # The libraries differ in the order of interactions' columns, not in the columns.
    order = np.lexsort(ours), np.lexsort(expected)
    assert np.allclose(ours[:, order[0]], expected[:, order[1]], atol=1e-12)


@pytest.mark.parametrize("formula", ["x + C(ward)", "x * ward", "flag + kind", "C(g) + np.log(z)"])
def test_names_and_order_are_those_of_patsy(formula, table):
    design, rows = design_of(f"y ~ {formula}", table)
    expected = patsy.dmatrix(formula, table)
    names = [name.replace("flag[T.True]", "flag") for name in expected.design_info.column_names]
    assert sorted(names) == sorted(design.names)
    order = [design.names.index(name) for name in names]
    assert np.allclose(dense(rows)[:, order], expected)


def test_groups_are_one_hot_columns_times_the_expression(table):
    design, rows = design_of("y ~ z + (x | g) + (0 + z | h)", table)
    assert scipy.sparse.issparse(rows.matrix)
    expected = [np.ones(len(table)), table.z]
    expected += [table.g == level for level in range(5)]
    expected += [table.x * (table.g == level) for level in range(5)]
    expected += [table.z * (table.h == level) for level in "uv"]
    assert np.allclose(dense(rows), np.column_stack(expected))
    assert [block.name for block in design.blocks] == ["Intercept", "z", "1 | g", "x | g", "z | h"]
    assert design.names[2:4] == ["1 | g[0]", "1 | g[1]"]
    assert design.names[-1] == "z | h[v]"
    assert design.n_columns == rows.matrix.shape[1] == len(design.names)


def test_nested_and_joined_factors_have_the_pairs_that_occur(table):
    design, rows = design_of("y ~ 1 + (1 | g/h)", table)
    pairs = sorted(set(zip(table.g, table.h, strict=True)))
    expected = [np.ones(len(table)), *(table.g == level for level in range(5))]
    expected += [(table.g == g) & (table.h == h) for g, h in pairs]
    assert np.array_equal(dense(rows), np.column_stack(expected))
    assert design.names[-len(pairs) :] == [f"1 | g:h[{g}:{h}]" for g, h in pairs]
    _, joined = design_of("y ~ 0 + (1 | g:h)", table)
    assert np.array_equal(dense(joined), np.column_stack(expected[6:]))


def test_new_rows_have_the_same_columns(table):
    design, rows = design_of("y ~ poly(x, 2) + ward + (x | g) + offset(z)", table)
    again = design.rows(plain_frame(table.iloc[::-1], list(table.columns)))
    assert np.allclose(dense(again), dense(rows)[::-1])
    assert np.array_equal(again.offset, table.z.to_numpy()[::-1])
    assert not again.unseen


def test_levels_that_were_not_seen_have_no_column(table):
    design, _ = design_of("y ~ (x | g)", table)
    new = plain_frame(table.iloc[:4].assign(g=[0, 99, 1, None]), list(table.columns))
    rows = design.rows(new)
    assert np.array_equal(dense(rows)[:, 1:6].sum(axis=1), [1, 0, 1, 0])
    intercept, slope = rows.unseen
    assert (intercept.block.name, slope.block.name) == ("1 | g", "x | g")
    assert np.array_equal(intercept.rows, [1, 3])
    assert np.array_equal(intercept.values, [1, 1])
    assert np.array_equal(slope.values, table.x.to_numpy()[[1, 3]])


def test_polars_makes_the_same_design(table):
    frame = polars.DataFrame(
        {name: table[name].to_numpy() if table[name].dtype.kind in "bif" else list(table[name]) for name in table}
    ).with_columns(polars.col("kind").cast(polars.Enum(["low", "high"])))
    formula = "y ~ x * ward + kind + flag + (1 | g)"
    design, rows = design_of(formula, table)
    other, same = design_of(formula, frame)
    assert design.names == other.names
    assert np.array_equal(dense(rows), dense(same))


def test_nullable_and_object_columns_are_read():
    table = pandas.DataFrame(
        {
            "i": pandas.array([1, 2, None], dtype="Int64"),
            "b": pandas.array([True, None, False], dtype="boolean"),
            "o": [True, False, None],
            "s": pandas.array(["a", None, "b"], dtype="string"),
            "whole": pandas.array([1, 2, 3], dtype="Int32"),
        }
    )
    frame = plain_frame(table, list(table.columns))
    assert np.allclose(frame.i, [1, 2, np.nan], equal_nan=True)
    assert np.allclose(frame.b, [1, np.nan, 0], equal_nan=True)
    assert np.allclose(frame.o, [1, 0, np.nan], equal_nan=True)
    assert frame.s.isna().tolist() == [False, True, False]
    assert frame.whole.dtype == np.int64


def test_functions_of_the_caller_come_by_context(table):
    _, rows = design_of("y ~ twice(x)", table, twice=lambda x: 2 * x)
    assert np.allclose(rows.matrix[:, 1], 2 * table.x)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ wards", "Did you mean 'ward'"),
        ("y ~ np.log(x)", "must be finite"),
        ("y ~ x +* z", "formula"),
        ("y ~ (x | g) + (1 | g)", "twice"),
        ("y ~ x + offset(log(x))", "must be finite"),
        ("y ~ x + offset(ward)", "numbers"),
        ("y ~ 0", "at least one term"),
    ],
)
def test_what_is_wrong_is_named(formula, message, table):
    with pytest.raises(ArgumentError, match=message):
        design_of(formula, table)


def test_new_levels_of_fixed_effects_are_refused(table):
    design, _ = design_of("y ~ ward", table)
    with pytest.raises(ArgumentError, match=r"never saw.*east"):
        design.rows(plain_frame(table.assign(ward="east"), ["ward"]))


def test_what_is_no_table_is_refused():
    with pytest.raises(ArgumentError, match="must be a table"):
        plain_frame(np.ones((3, 2)), ["x"])
    with pytest.raises(ArgumentError, match="got Series"):
        plain_frame(pandas.Series([1.0]), ["x"])
    with pytest.raises(ArgumentError, match="one length"):
        plain_frame({"x": [1, 2], "y": [1]}, ["x"])


def test_many_levels_are_never_dense():
    rng = np.random.default_rng(1)
    n, levels = 300_000, 100_000
    table = pandas.DataFrame({"y": 0.0, "x": rng.standard_normal(n), "g": rng.integers(0, levels, n).astype(str)})
    start = time.perf_counter()
    design, rows = design_of("y ~ x + (x | g)", table)
    assert time.perf_counter() - start < 10
    assert rows.matrix.nnz == 4 * n
    assert design.n_columns > 2 * 0.9 * levels
