"""Terms of groups are read as lme4 and brms have them; what cannot be read is pointed at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestmix.errors import ArgumentError
from forestmix.regression.terms import GroupTerm, column_name, pair_of_columns, parse


@pytest.mark.parametrize(
    ("formula", "fixed", "groups"),
    [
        ("y ~ x", "x", ()),
        ("y ~ 1", "1", ()),
        ("y~0+x*z", "0 + x*z", ()),
        ("y ~ x - 1", "x - 1", ()),
        ("y ~ (1 | g)", "1", (GroupTerm("1", ("g",)),)),
        ("y ~ x + (1|g) + z", "x + z", (GroupTerm("1", ("g",)),)),
        ("y ~ x + (1 | a) + (x | b)", "x", (GroupTerm("1", ("a",)), GroupTerm("x", ("b",)))),
        ("y ~ (0 + x | g)", "1", (GroupTerm("0 + x", ("g",)),)),
        ("y ~ (x || g)", "1", (GroupTerm("x", ("g",)),)),
        ("y ~ (1 | a:b)", "1", (GroupTerm("1", ("a", "b")),)),
        ("y ~ (1 | a/b)", "1", (GroupTerm("1", ("a",)), GroupTerm("1", ("a", "b")))),
        (
            "y ~ (x | a/b/c)",
            "1",
            (GroupTerm("x", ("a",)), GroupTerm("x", ("a", "b")), GroupTerm("x", ("a", "b", "c"))),
        ),
        ("y ~ (poly(x, 2) + (z) | `my group`)", "1", (GroupTerm("poly(x, 2) + (z)", ("my group",)),)),
        ("y ~ C(w, Treatment('a|b')) + (a + b):c", "C(w, Treatment('a|b')) + (a + b):c", ()),
        ("y ~ bs(x, df=4) +\n   (1 | g)", "bs(x, df=4)", (GroupTerm("1", ("g",)),)),
    ],
)
def test_terms(formula, fixed, groups):
    terms = parse(formula)
    assert (terms.response, terms.fixed, terms.groups) == ("y", fixed, groups)


def test_offsets_and_responses():
    terms = parse("cbind(won, lost) ~ x + offset(log(t)) + offset(u)")
    assert terms.offsets == ("log(t)", "u")
    assert terms.fixed == "x"
    assert pair_of_columns(terms.response) == ("won", "lost")
    assert pair_of_columns("y") is None
    assert column_name("`my column`") == "my column"


@pytest.mark.parametrize(
    ("formula", "marked", "message"),
    [
        ("y", "y", "one ~"),
        ("~ x", "~ x", "one ~"),
        ("y ~ x ~ z", "y ~ x ~ z", "one ~"),
        ("y ~ x + (1 | )", "(1 | )", "around one bar"),
        ("y ~ x + ( | g)", "( | g)", "around one bar"),
        ("y ~ (1 | a | b)", "(1 | a | b)", "around one bar"),
        ("y ~ x*(1 | g)", "x*(1 | g)", "stands by itself"),
        ("y ~ a | b", "a | b", "stands by itself"),
        ("y ~ (1 | a + b)", "a + b", "crossed"),
        ("y ~ (1 | a*b)", "a*b", "crossed"),
        ("y ~ x - (1 | g)", "(1 | g)", "minus"),
        ("y ~ x + (1 | g", "(", "never closed"),
        ("y ~ x + (1 | g]", "(", "never closed"),
        ("y ~ x) + z", ")", "closes nothing"),
        ("y ~ x + + z", "", "missing beside"),
        ("y ~ x +", "", "missing beside"),
        ("y ~ (1 | g) + (1 | g)", "y ~ (1 | g) + (1 | g)", "twice"),
    ],
)
def test_errors_point_at_the_term(formula, marked, message):
    with pytest.raises(ArgumentError, match=message) as error:
        parse(formula)
    _, shown, marks = str(error.value).split("\n")
    start = marks.index("^")
    assert shown[start : start + marks.count("^")].strip() == marked or not marked


def test_formulas_are_strings():
    with pytest.raises(ArgumentError, match="must be a string"):
        parse(3)
    with pytest.raises(ArgumentError, match="two columns"):
        pair_of_columns("cbind(a)")


@given(st.text(alphabet="yxg01 ~+-|()[]/:`'\"*,", max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        terms = parse(text)
    except ArgumentError:
        return
    assert terms.response
    assert terms.fixed
