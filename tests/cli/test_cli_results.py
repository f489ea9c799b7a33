"""The commands on results: what they show, save, and refuse; the same numbers as the library."""

import json

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

import forestmix as fmx
from forestmix.cli import app
from forestmix.data import load_table


def forestmix(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


FORMULA = "mark ~ before + (1 | school)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, its last rows as new ones, and two fits of the first ones."""
    folder = tmp_path_factory.mktemp("results")
    table = load_table("schools")
    table[:80].to_csv(folder / "data.csv", index=False)
    table[80:95].to_csv(folder / "new.csv", index=False)
    for name, formula in (("with", FORMULA), ("without", "mark ~ 1 + (1 | school)")):
        ended = forestmix("regress", folder / "data.csv", formula, "--out", folder / f"{name}.nc")
        assert ended.exit_code == 0, ended.output
    return folder


@pytest.fixture(scope="module")
def fit(folder):
    return fmx.regress(FORMULA, pandas.read_csv(folder / "data.csv"))


def test_regress_shows_and_saves_what_the_library_finds(folder, fit):
    ended = forestmix("regress", folder / "data.csv", FORMULA, "--json", "--level", 0.8)
    assert ended.exit_code == 0
    found, table = json.loads(ended.stdout), fit.summary(0.8)
    assert [row["name"] for row in found["summary"]] == table.names
    for column in table.columns:
        np.testing.assert_allclose([row[column] for row in found["summary"]], table[column], rtol=1e-9)
    np.testing.assert_allclose(fmx.load(folder / "with.nc").posterior.mean, fit.posterior.mean)
    text = forestmix("regress", folder / "data.csv", FORMULA).output
    assert "sd(1 | school)" in text
    assert "Unknown scales are integrated over" in text


def test_priors_trials_and_weights_are_passed_on(folder, tmp_path):
    load_table("seeds").to_csv(tmp_path / "seeds.csv", index=False)
    words = (
        "regress",
        tmp_path / "seeds.csv",
        "germinated ~ coat",
        "--family",
        "binomial",
        "--trials",
        "seeds",
        "--json",
    )
    ended = forestmix(*words, "--prior", "coat=0.01")
    expected = fmx.regress(
        "germinated ~ coat", load_table("seeds"), "binomial", trials="seeds", prior={"coat": 0.01}
    ).summary()
    found = [row["mean"] for row in json.loads(ended.stdout)["summary"]]
    np.testing.assert_allclose(found, expected["mean"])
    assert abs(found[1]) < 0.02
    assert forestmix(*words, "--prior", "coat").exit_code == 2
    assert forestmix(*words, "--prior", "flat").exit_code == 0


def test_predictions_are_those_of_the_fit_and_read_back_in_full(folder, fit):
    expected = fit.predict(pandas.read_csv(folder / "new.csv"), 0.5)
    written = forestmix("predict", folder / "with.nc", folder / "new.csv", "--level", 0.5, "--out", folder / "p.csv")
    assert written.exit_code == 0
    assert "15 rows" in written.output
    piped = forestmix("predict", folder / "with.nc", folder / "new.csv", "--level", 0.5).stdout
    assert piped == (folder / "p.csv").read_text()
    found = pandas.read_csv(folder / "p.csv")
    for column in expected.columns:
        np.testing.assert_allclose(found[column], expected[column], rtol=1e-7)
    stated = json.loads(forestmix("predict", folder / "with.nc", folder / "new.csv", "--json").stdout)
    assert len(stated["predictions"]) == 15


def test_compare_puts_the_better_first(folder, fit):
    ended = forestmix("compare", folder / "without.nc", folder / "with.nc", "--json")
    found = json.loads(ended.stdout)["models"]
    assert [row["name"] for row in found] == ["with", "without"]
    assert found[0]["elpd"] == pytest.approx(fit.loo().elpd)
    assert "with" in forestmix("compare", folder / "without.nc", folder / "with.nc").output
    assert forestmix("compare", folder / "with.nc").exit_code == 2


def test_the_report_has_a_name_of_its_own_or_the_one_given(folder):
    ended = forestmix("report", folder / "with.nc")
    assert ended.exit_code == 0
    assert ended.output == f"Report: {folder / 'with.html'}\n"
    assert forestmix("report", folder / "with.nc", "--out", folder / "other.html").exit_code == 0
    text = (folder / "other.html").read_text("utf-8")
    assert text == (folder / "with.html").read_text("utf-8")
    assert FORMULA in text


def test_infer_saves_a_result_and_the_report_reads_it(tmp_path):
    rng = np.random.default_rng(0)
    W, x = rng.standard_normal((50, 3)), (rng.random(50) < 0.5).astype(float)
    np.save(tmp_path / "W.npy", W)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "r.nc"
    ended = forestmix("infer", tmp_path / "W.npy", tmp_path / "x.npy", "--family", "bernoulli", "--out", out)
    assert ended.exit_code == 0, ended.output
    assert "Converged" in ended.output
    assert f"Saved: {out}" in ended.output
    expected = fmx.infer(fmx.DEF(fmx.Layer(fmx.Bernoulli(), W)), x)
    np.testing.assert_allclose(fmx.load(out).mean, expected.mean)
    assert forestmix("report", out).exit_code == 0
    words = ("infer", tmp_path / "W.npy", tmp_path / "x.npy", "--family", "bernoulli")
    assert forestmix(*words, "--max-iter", 1).exit_code == 1
    assert forestmix(*words, "--covariance", "full").exit_code == 0


def test_a_forest_is_learned_shown_and_saved(tmp_path):
    rng = np.random.default_rng(0)
    latents = rng.standard_normal((200, 2))
    data = latents[:, [0, 0, 0, 1, 1, 1]] + 0.3 * rng.standard_normal((200, 6))
    pandas.DataFrame(data, columns=list("abcdef")).to_csv(tmp_path / "data.csv", index=False)
    ended = forestmix("forest", tmp_path / "data.csv", "--trees", 2, "--out", tmp_path / "f.nc", "--json")
    assert ended.exit_code == 0, ended.output
    parents = {row["variable"]: row["tree"] for row in json.loads(ended.stdout)["parents"]}
    assert len({parents[name] for name in "abc"}) == len({parents[name] for name in "def"}) == 1
    assert parents["a"] != parents["d"]
    assert "strength" in forestmix("forest", tmp_path / "data.csv").output
    ended = forestmix("forest", tmp_path / "data.csv", "--max-iter", 1)
    assert ended.exit_code == 1
    assert "not converged" in ended.output
    assert forestmix("report", tmp_path / "f.nc").exit_code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("regress", "{0}/data.csv", "mark ~ nothing"), "data.csv: "),
        (("regress", "{0}/data.csv", "mark ~ ("), "data.csv: "),
        (("regress", "{0}/none.csv", "y ~ 1"), "none.csv is no file"),
        (("regress", "{0}/with.nc", "y ~ 1"), "with.nc"),
        (("regress", "{0}/data.csv", "mark ~ 1", "--out", "{0}/no/fit.nc"), "there is no folder"),
        (("regress", "{0}/data.csv", "mark ~ 1", "--out", "{0}"), "it is a folder"),
        (("predict", "{0}/data.csv", "{0}/new.csv"), "data.csv"),
        (("predict", "{0}/none.nc", "{0}/new.csv"), "none.nc"),
        (("compare", "{0}/with.nc", "{0}/data.csv"), "data.csv"),
        (("report", "{0}/data.csv"), "data.csv"),
        (("report", "{0}/none.nc"), "none.nc"),
        (("forest", "{0}/data.csv"), "data.csv has 'school"),
    ],
)
def test_errors_are_one_line_that_names_the_file(folder, words, says):
    ended = forestmix(*(word.format(folder) for word in words))
    assert ended.exit_code == 2
    assert ended.output.startswith("Error: ")
    assert says in ended.output
    assert len(ended.output.splitlines()) == 1


def test_names_of_columns_are_saved(tmp_path):
    rng = np.random.default_rng(0)
    table = pandas.DataFrame(rng.standard_normal((40, 4)), columns=["a", "b & c", "<d>", "é"])
    table.to_csv(tmp_path / "W.csv", index=False)
    np.save(tmp_path / "x.npy", rng.standard_normal(40))
    assert forestmix("infer", tmp_path / "W.csv", tmp_path / "x.npy", "--out", tmp_path / "r.nc").exit_code == 0
    assert fmx.load(tmp_path / "r.nc").posterior().summary().names == list(table.columns)
    ended = forestmix("forest", tmp_path / "W.csv", "--out", tmp_path / "f.nc")
    assert ended.exit_code in (0, 1), ended.output  # there is nothing to find
    assert list(fmx.load(tmp_path / "f.nc").names()) == list(table.columns)


def test_the_same_file_is_not_compared_with_itself(folder):
    ended = forestmix("compare", folder / "with.nc", folder / "with.nc")
    assert ended.exit_code == 2
    assert "two files or more, each of them once" in ended.output
