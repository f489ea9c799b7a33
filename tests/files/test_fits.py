"""Regressions in files: formulas, tables and levels of every type, and what they predict after loading."""

import json

import numpy as np
import pandas
import pytest

import forestmix as fmx
from forestmix.errors import ForestmixError
from forestmix.files import container
from forestmix.files.formulas import check_formula
from forestmix.regression.terms import parse
from support.saved_objects import same

RNG = np.random.default_rng(4)
N = 60
TABLE = pandas.DataFrame(
    {
        "y": RNG.normal(size=N), "count": RNG.poisson(2, N), "yes": RNG.choice(["no", "yes"], N),
        "x": RNG.normal(size=N), "t": RNG.uniform(1, 2, N), "flag": RNG.random(N) < 0.5, "odd name": RNG.normal(size=N),
        "text": RNG.choice(["a", "é\n\"'", "c\x00"], N), "whole": RNG.integers(-2, 2, N),
        "real": RNG.choice([0.5, 1.0, 1e300], N),
        "day": pandas.to_datetime(RNG.choice(["2020-01-01", "2021-05-06"], N)),
        "kind": pandas.Categorical(RNG.choice(["low", "high"], N), ["low", "high", "never"], ordered=True),
    },
    index=[f"row {k}" for k in range(N)],
)  # fmt: skip
NEW = TABLE.iloc[:9].assign(x=np.linspace(-3, 3, 9))
FORMULAS = {
    "plain": ("y ~ x + flag", "gaussian"),
    "no intercept": ("y ~ 0 + x", "gaussian"),
    "transformed": ("y ~ center(x) + scale(t) + np.log(t) + I(x**2) + x:t", "gaussian"),
    "polynomial and spline": ("y ~ poly(x, 2) + bs(t, df=4)", "gaussian"),
    "natural spline": ("y ~ cr(x, df=4)", "gaussian"),
    "categories": ("count ~ C(text) + kind + C(whole, contr.sum)", "poisson"),
    "treatment": ("y ~ C(kind, contr.treatment('high'))", "gaussian"),
    "odd names": ("y ~ `odd name` + I(`odd name` ** 2)", "gaussian"),
    "text groups": ("y ~ x + (1 | text)", "gaussian"),
    "groups of numbers": ("y ~ (x | whole)", "gaussian"),
    "groups of reals": ("y ~ (1 | real)", "gaussian"),
    "groups of flags": ("count ~ (1 | flag)", "poisson"),
    "groups of categories": ("count ~ (0 + x | kind)", "poisson"),
    "groups of days": ("y ~ (1 | day)", "gaussian"),
    "nested groups": ("y ~ x + (1 | text/whole)", "gaussian"),
    "classes": ("yes ~ x", "bernoulli"),
    "pair": ("cbind(count, whole + 3) ~ x", "binomial"),
    "offset": ("count ~ x + offset(log(t))", "poisson"),
}
#: Known scales, where many unknown ones would only take time.
PRIORS = {
    "groups of numbers": {"1 | whole": 0.5, "x | whole": 0.5, "noise": 0.7},
    "groups of reals": {"1 | real": 0.5, "noise": 0.7},
    "groups of days": {"1 | day": 0.5, "noise": 0.7},
    "groups of categories": {"x | kind": 0.5},
    "nested groups": {"1 | text": 0.5, "1 | text:whole": 0.5, "noise": 0.7},
}


def saved(fit, path):
    fit.save(path)
    return fmx.load(path)


def same_tables(first, second):
    assert first.names == second.names
    assert list(first.columns) == list(second.columns)
    assert all(same(first[name], second[name]) for name in first.columns)


@pytest.mark.parametrize("name", FORMULAS)
def test_fits(name, tmp_path):
    formula, family = FORMULAS[name]
    fit = fmx.regress(formula, TABLE, family, prior=PRIORS.get(name))
    loaded = saved(fit, tmp_path / "fit.nc")
    assert (loaded.formula, loaded.family, loaded.names) == (fit.formula, fit.family, fit.names)
    assert (str(loaded.summary()), str(loaded.priors), repr(loaded)) == (str(fit.summary()), str(fit.priors), repr(fit))
    same_tables(fit.summary(0.8), loaded.summary(0.8))
    same_tables(fit.predict(), loaded.predict())
    same_tables(fit.predict(NEW), loaded.predict(NEW))
    assert same(fit.simulate(5, 0), loaded.simulate(5, 0))
    assert same(fit.loo().pointwise, loaded.loo().pointwise)
    assert str(fit.check()) == str(loaded.check())
    pandas.testing.assert_frame_equal(fit.cases.frame, loaded.cases.frame)
    assert loaded.cases.labels == fit.cases.labels
    assert loaded.status is fit.status
    assert same(loaded.trace.objective, fit.trace.objective)
    if fit.design.grouped:
        for block in fit.design.grouped[0].blocks:
            same_tables(fit.groups(block.name), loaded.groups(block.name))
    # A fit that was loaded is saved and loaded like any other.
    same_tables(fit.predict(NEW), saved(loaded, tmp_path / "again.nc").predict(NEW))


def test_new_levels_missing_rows_and_case_weights(tmp_path):
    table = TABLE.assign(y=TABLE["y"].where(np.arange(N) % 7 > 0))
    fit = fmx.regress("y ~ x + (1 | text)", table, missing="predict", weights=np.linspace(0, 2, N))
    loaded = saved(fit, tmp_path / "fit.nc")
    assert loaded.message == fit.message
    same_tables(fit.predict(), loaded.predict())
    unseen = NEW.assign(text="never seen")
    same_tables(fit.predict(unseen), loaded.predict(unseen))


def test_unknown_scales_are_the_priors_own(tmp_path):
    loaded = saved(fmx.regress("y ~ x + (1 | text)", TABLE), tmp_path / "fit.nc")
    assert set(loaded.scales) == set(loaded.priors.unknown.values()) == set(loaded.model.unknown_scales)


def test_constants_of_the_context_are_stored_and_functions_are_not(tmp_path):
    fit = fmx.regress("y ~ I(x * unit)", TABLE, context={"unit": 3.0, "unused": print})
    same_tables(fit.predict(NEW), saved(fit, tmp_path / "fit.nc").predict(NEW))
    fit = fmx.regress("y ~ half(x)", TABLE, context={"half": lambda x: x / 2})
    with pytest.raises(ForestmixError, match=r"cannot hold the formula .* since 'half\(x\)'.*Put what it computes"):
        fit.save(tmp_path / "other.nc")
    fit = fmx.regress("y ~ I(x * much)", TABLE, context={"much": np.ones(N)})
    with pytest.raises(ForestmixError, match="cannot hold 'much' of the context"):
        fit.save(tmp_path / "other.nc")
    assert not (tmp_path / "other.nc").exists()


HARMFUL = [
    "y ~ {__import__('os').system('true')}",
    "y ~ I(open('x').read())",
    "y ~ I(x.__class__)",
    "y ~ I([c for c in x])",
    "y ~ I((lambda: x)())",
    "y ~ I(f'{x}')",
    "y ~ np.load('x')",
    "y ~ np.lib.npyio.load(x)",
    "y ~ np.log.__init__(x)",
    "y ~ I(x[0])",
    "y ~ eval('x')",
    "y ~ x + (I(exec('x')) | g)",
    "y ~ x + offset(open(x))",
    "getattr(y, 'z') ~ x",
    "cbind(open(a), b) ~ x",
    "y ~ C(x, levels=['a\\\\', ')+open(1)#'])",
    "y ~ center(x, '\"')",
    "y ~ I((x := 3))",
]


@pytest.mark.parametrize("formula", HARMFUL)
def test_formulas_that_could_run_code_are_refused(formula):
    with pytest.raises(ForestmixError, match=r"cannot hold|cannot be read"):
        check_formula(parse(formula))


@pytest.mark.parametrize("name", FORMULAS)
def test_usual_formulas_are_not(name):
    check_formula(parse(FORMULAS[name][0]))


def test_a_file_with_a_harmful_formula_is_refused_and_nothing_runs(tmp_path):
    """A file that somebody made on purpose, with the right checksum."""
    fit = fmx.regress("y ~ x", TABLE)
    fit.save(tmp_path / "fit.nc")
    with container.open_file(tmp_path / "fit.nc") as (tree, arrays, attributes):
        names = [name for name in json.dumps(tree).replace('"', " ").split() if name.startswith("fit.")]
        kept = {name: arrays(name) for name in names}
    trace = tmp_path / "ran"
    tree["fields"]["design"]["table"]["formula"] = f"y ~ {{open('{trace}', 'w')}}"
    container.write_file(tmp_path / "bad.nc", tree, kept, attributes)
    with pytest.raises(ForestmixError, match="cannot hold the formula"):
        fmx.load(tmp_path / "bad.nc")
    assert not trace.exists()
