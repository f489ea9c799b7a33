"""The page that maps the paper to the code: its names exist, their docstrings say so, and Algorithm 1 is what runs."""

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import forestmix as fmx
from forestmix.paper.figure2 import paper_algorithm

PAGE = (Path(__file__).parent.parent / "docs" / "paper_to_code.md").read_text("utf-8")
#: How many displays each section of the paper has, of which none may be left out.
DISPLAYS = {
    "section 3": 1, "section 3.1": 5, "section 4": 8, "section 4.1": 4, "section 5": 1, "section 5.1": 2,
    "section 5.2": 1, "section 6": 3, "section 7": 1, "appendix A": 10, "appendix B": 3, "appendix C": 5,
}  # fmt: skip


def found(name):
    """What a dotted name stands for, the longest importable part of it being the module."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            value = getattr(value, part)
        return value
    raise AssertionError(f"{name} is not there")


def rows():
    """The rows of the first table, as lists of cells."""
    table = PAGE.split("## The paper, display by display")[1].split("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names_in(text):
    return re.findall(r"`(forestmix(?:\.\w+)+)`", text)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_docstring_says_where_in_the_paper_it_comes_from(row):
    _, _, code, words = row
    assert names_in(code) or code.startswith("a derivation")
    for name in names_in(code):
        docstring = " ".join((found(name).__doc__ or "").split())
        assert words.strip("`") in docstring, f"{name} does not say {words}"


def test_every_name_on_the_page_exists():
    for name in names_in(PAGE):
        assert found(name) is not None


#: What a reader of the paper looks for first.
THEOREMS = [
    "forestmix.engines.reference.forest_mixture_spread",
    "forestmix.bounds.auxiliary.optimal_auxiliary",
    "forestmix.problem.updates.forest_mixture_update",
    "forestmix.inference.plain.PlainSteps.propose",
]


@pytest.mark.parametrize("name", THEOREMS)
def test_theorems_and_the_algorithm_are_short_and_on_the_page(name):
    """Of at most 25 lines, besides the docstring."""
    assert f"`{name}`" in PAGE
    function = ast.parse(textwrap.dedent(inspect.getsource(found(name)))).body[0]
    docstring = function.body[0]
    assert ast.get_docstring(function)
    assert lines(function) - lines(docstring) <= 25


def lines(node):
    return node.end_lineno - node.lineno + 1


def test_every_display_and_number_of_the_paper_is_there():
    seen = {section: set() for section in DISPLAYS}
    for place, *_ in rows():
        match = re.match(r"((?:section|appendix) [\w.]+), displays? (\d+)(?: (to|and) (\d+))?", place)
        if match:
            section, first, link, last = match.groups()
            seen[section] |= set(range(int(first), int(last) + 1)) if link == "to" else {int(first), int(last or first)}
    assert seen == {section: set(range(1, count + 1)) for section, count in DISPLAYS.items()}
    text = " ".join(place for place, *_ in rows())
    for number in [*(f"equation {k}" for k in range(1, 6)), "Theorem 1", "Theorem 2", "Algorithm 1"]:
        assert number in text


def algorithm_1(W, b, sd_x, sd_y, x, mean, sd, steps):
    """Algorithm 1 of the paper as loops, with the misprints that the page names put right."""
    n, m = W.shape
    for _ in range(steps):
        epsilon, b_hat = np.empty((n, m)), np.empty((n, m))
        for i in range(n):
            for j in range(m):
                epsilon[i, j] = abs(W[i, j]) * sd[j] / sum(abs(W[i, k]) * sd[k] for k in range(m))
                b_hat[i, j] = b[i] + sum(W[i, k] * mean[k] for k in range(m)) - W[i, j] * mean[j] / epsilon[i, j]
        D = [sum(W[i, j] ** 2 / epsilon[i, j] for i in range(n)) for j in range(m)]
        pull = [sum(W[i, j] * (x[i] - b_hat[i, j]) for i in range(n)) for j in range(m)]
        mean = np.array([pull[j] / (sd_x**2 / sd_y**2 + D[j]) for j in range(m)])
        sd = np.array([(1 / sd_y**2 + D[j] / sd_x**2) ** -0.5 for j in range(m)])
    return mean, sd


@pytest.mark.parametrize("seed", range(3))
def test_algorithm_1_is_what_runs(seed):
    rng = np.random.default_rng(seed)
    n, m, sd_x, sd_y = 7, 4, 0.6, 1.7
    W, b, x = rng.standard_normal((n, m)), rng.standard_normal(n), rng.standard_normal(n)
    start = rng.standard_normal(m), rng.uniform(0.2, 2.0, m)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=sd_x), W, b), prior=fmx.Prior(fmx.Gaussian(sd=sd_y)))
    for steps in (1, 6):
        result = fmx.infer(model, x, paper_algorithm(), init=start, max_iter=steps, tol=1e-15)
        mean, sd = algorithm_1(W, b, sd_x, sd_y, x, *start, steps)
        assert result.mean == pytest.approx(mean, rel=1e-10)
        assert result.sd == pytest.approx(sd, rel=1e-10)
