"""Tables as people have them: odd names, other libraries, times, and new tables that are not like the fitted one."""

import numpy as np
import pandas
import polars
import pytest

from forestmix.errors import ArgumentError
from forestmix.regression.regress import regress
from forestmix.regression.terms import parse

RNG = np.random.default_rng(21)
ROWS = 60
TABLE = pandas.DataFrame(
    {
        "y": RNG.standard_normal(ROWS), "a b": RNG.standard_normal(ROWS), "größe": RNG.standard_normal(ROWS),
        "class": RNG.integers(0, 2, ROWS), "g": np.tile(list("uvw"), ROWS // 3), "level": np.tile([1.0, 2.0, 3.0], 20),
    }
)  # fmt: skip
DAYS = pandas.date_range("2020-02-28", periods=ROWS)


@pytest.mark.parametrize("quoted", ["`a b`", 'Q("a b")', "Q( 'a b' )"])
def test_names_in_backticks_or_as_patsy_quotes_them(quoted):
    fit = regress(f"y ~ {quoted} + größe + `class` + ({quoted} | g)", TABLE)
    assert fit.names[:4] == ["Intercept", "a b", "größe", "class"]
    assert "sd(a b | g)" in fit.summary().names
    slope = np.linalg.lstsq(np.c_[np.ones(ROWS), TABLE["a b"]], TABLE["y"])[0][1]
    assert regress(f"y ~ {quoted}", TABLE, prior="flat").posterior.mean[1] == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize(
    ("formula", "same"),
    [
        ("y ~ .", "y ~ `a b` + größe + `class` + g + level"),
        ("y ~ . + (1 | g)", "y ~ `a b` + größe + `class` + level + (1 | g)"),
        ("y ~ .:größe + offset(level)", "y ~ (`a b` + größe + `class` + g):größe + offset(level)"),
        ("np.exp(y) ~ 0 + . + np.exp(größe)", "np.exp(y) ~ 0 + `a b` + größe + `class` + g + level + np.exp(größe)"),
    ],
)
def test_a_dot_is_all_other_columns(formula, same):
    ours, expected = regress(formula, TABLE), regress(same, TABLE)
    assert ours.names == expected.names
    assert np.array_equal(ours.posterior.mean, expected.posterior.mean)
    assert parse(ours.formula) == ours.design.terms
    assert ours.predict(TABLE.drop(columns="y").head(2)).mean == pytest.approx(ours.predict().mean[:2])


def test_a_dot_is_spelled_out_in_the_formula():
    assert regress("y ~ . + (1 | g)", TABLE).formula == "y ~ `a b` + größe + `class` + level + (1 | g)"
    assert regress("y ~ .:g", TABLE[["y", "größe", "class", "g"]]).formula == "y ~ (größe + `class` + g):g"
    many = {f"a column of number {k}": TABLE["größe"] + k * TABLE["a b"] for k in range(30)}
    title = str(regress("y ~ .", {"y": TABLE["y"], **many}).summary()).splitlines()[0]
    assert len(title) < 200
    assert title.endswith(" ..., gaussian, 60 rows")


def test_a_dot_leaves_out_weights_trials_and_what_is_quoted():
    table = TABLE[["größe", "g"]].assign(y=1, n=3, w=2.0)
    fit = regress("y ~ . + C(g, Treatment('.'))", table.assign(g=np.tile(list(".vw"), 20)), "binomial", trials="n",
                  weights="w")  # fmt: skip
    assert fit.names[:2] == ["Intercept", "größe"]
    assert not {"n", "w", "y"} & set(fit.names)
    with pytest.raises(ArgumentError, match="must stand for a column"):
        regress("y ~ .", table[["y"]])


def test_tables_of_pyarrow_and_names_that_are_numbers():
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra [parquet]")
    plain = regress("y ~ größe + (1 | g)", TABLE)
    assert np.array_equal(regress("y ~ größe + (1 | g)", pyarrow.Table.from_pandas(TABLE)).posterior.mean,
                          plain.posterior.mean)  # fmt: skip
    numbered = TABLE.rename(columns={"g": 0, "größe": 1})
    assert regress("y ~ (1 | `0`)", numbered).groups().names == ["u", "v", "w"]
    with pytest.raises(ArgumentError, match="`1` would be read as a number"):
        regress("y ~ `1`", numbered)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pandas.concat([TABLE, TABLE[["g"]]], axis=1), "data must have columns of different names; two are called 'g'"),
        (polars.DataFrame(TABLE.to_dict("list")).lazy(), r"got LazyFrame. Its collect\(\) makes"),
        (TABLE.assign(größe=DAYS), "column 'größe' must be numbers or levels; it has times"),
        (TABLE.assign(größe=DAYS - DAYS[0]), "it has times"),
        (TABLE.assign(größe=DAYS.date), "it has times"),
    ],
)
def test_tables_that_are_refused(data, message):
    for formula in ("y ~ größe", "y ~ (größe | g)"):
        with pytest.raises(ArgumentError, match=message):
            regress(formula, data)


def test_times_may_be_levels_and_arguments():
    table = TABLE.assign(day=np.tile(DAYS[:3], 20))
    assert len(regress("y ~ C(day)", table).names) == 3
    assert len(regress("y ~ (1 | day)", table).groups()) == 3
    assert regress("y ~ number(day)", table, context={"number": lambda day: day.dt.day}).names[1] == "number(day)"


def test_a_column_that_hides_a_function_is_said():
    with pytest.raises(ArgumentError, match="A column hides the function of its name"):
        regress("y ~ C + C(g)", TABLE.rename(columns={"größe": "C"}))


@pytest.mark.parametrize("name", ["noise", "fixed"])
def test_priors_of_columns_that_are_named_like_other_priors(name):
    table = TABLE.rename(columns={"größe": name})
    assert regress(f"y ~ {name}", table).names == ["Intercept", name]
    with pytest.raises(ArgumentError, match="two meanings"):
        regress(f"y ~ {name}", table, prior={name: 1.0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior": 3}, "prior must be a dictionary .* got 3"),
        ({"prior": {"noise": (1, 2)}}, r"must be an sd above 0, or a scale .* got \(1, 2\)"),
        ({"weights": -1.0}, "weights must be .* got -1"),
        ({"weights": 0.0}, "weights must be .* got 0"),
        ({"family": "binomial", "formula": "level ~ g", "trials": 3.5}, "trials must be .* got 3.5"),
    ],
)
def test_errors_say_what_was_given(change, message):
    with pytest.raises(ArgumentError, match=message):
        regress(**({"formula": "y ~ g", "data": TABLE} | change))


def test_new_levels_of_another_kind_are_refused():
    fit = regress("y ~ (1 | level)", TABLE)
    for wrong in (["1", "2"], pandas.Categorical(["1", "2"])):
        with pytest.raises(
            ArgumentError, match=r"'level' must have levels that are numbers, .* it has texts, such as 1"
        ):
            fit.predict({"level": wrong})
    assert np.ptp(fit.predict({"level": [9.0, np.nan]}).eta_sd) == 0
    with pytest.raises(ArgumentError, match="levels that are texts"):
        regress("y ~ (1 | g)", TABLE).predict({"g": [1, 2]})


def test_new_tables_of_a_fit_with_an_offset_need_one():
    fit = regress("class ~ größe", TABLE, "poisson", offset="level")
    with pytest.raises(ArgumentError, match="offset must be given with new_data"):
        fit.predict(TABLE)
    given = TABLE.rename(columns={"level": "the offset"})
    assert fit.predict(given, offset="`the offset`").mean == pytest.approx(fit.predict().mean)
    assert fit.predict(TABLE, offset=0).eta_mean == pytest.approx(fit.predict().eta_mean - TABLE["level"])


def test_what_is_missing_in_a_new_table_is_named():
    fit = regress("y ~ größe + C(level)", TABLE)
    with pytest.raises(ArgumentError, match="new_data must have at least one row"):
        fit.predict(TABLE.iloc[:0])
    with pytest.raises(ArgumentError, match=r"A column of new_data must be one of .* got 'größe'"):
        fit.predict(TABLE[["level"]])
    with pytest.raises(ArgumentError, match=r"never saw: \{9.0\}"):
        fit.predict(TABLE.assign(level=9.0))
