"""The experiments through the command line, at reduced size: output, report, exit codes."""

import base64
import csv
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

import forestmix as fmx
from forestmix.cli import app
from forestmix.paper import claims as claims_module
from forestmix.paper import run as run_module

SMALL = ["--images", "1", "--repeats", "2", "--iterations", "12", "--seed", "5"]
TABLES = ("fig2a.csv", "fig2b.csv", "fig2c.csv", "beyond.csv", "summary.csv")


def forestmix(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce")
    result = forestmix("reproduce", *SMALL, "--out", folder)
    assert result.exit_code == 0, result.output
    return folder, result.output


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Tables(HTMLParser):
    """Collects the cells of every table by its id, and every address that the page refers to."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.addresses, self.text, self.rows, self.cell = {}, [], "", [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag == "table":
            self.rows = self.tables[attributes["id"]] = []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.cell = ""

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.rows[-1].append(self.cell)
            self.cell = None

    def handle_data(self, data):
        self.text += data
        if self.cell is not None:
            self.cell += data


@pytest.fixture(scope="module")
def page(output):
    return Tables((output[0] / "report.html").read_text("utf-8"))


def test_the_folder_has_every_file_and_nothing_half_written(output):
    pictures = {f"{name}.{kind}" for name in ("figure2", "beyond") for kind in ("png", "svg")}
    others = {"timings.csv", "settings.json", "claims.json", "report.html"}
    assert {path.name for path in output[0].iterdir()} == pictures | others | set(TABLES)


def test_curves_are_tidy_and_complete(output):
    rows = read(output[0] / "fig2a.csv")
    assert list(rows[0]) == ["curve", "seed", "image", "iteration", "loss", "gap"]
    assert len(rows) == 4 * 2 * 1 * 13  # curves, seeds, images, the start and 12 steps
    assert {row["seed"] for row in rows} == {"5", "6"}
    assert len(read(output[0] / "fig2c.csv")) == 5 * 2 * 1 * 13
    assert all("seconds" not in read(output[0] / name)[0] for name in TABLES)
    assert {row["problem"] for row in read(output[0] / "timings.csv")} == {"regions", "windows7"}


def test_the_summary_is_that_of_the_curves(output):
    folder, _ = output
    for row in read(folder / "summary.csv"):
        last = [
            entry for entry in read(folder / f"{row['panel']}.csv")
            if entry["curve"] == row["curve"] and entry["iteration"] == row["iteration"]
        ]  # fmt: skip
        assert len(last) == int(row["runs"]) == 2
        for column in ("loss", "gap"):
            values = [float(entry[column]) for entry in last]
            for name, function in (("median", np.median), ("min", np.min), ("max", np.max)):
                assert float(row[f"{column}_{name}"]) == function(values)


def test_the_report_shows_the_numbers_of_the_tables(output, page):
    folder, _ = output
    shown = page.tables["summary"][1:]
    stored = read(folder / "summary.csv")
    assert len(shown) == len(stored) == 12
    for cells, row in zip(shown, stored, strict=True):
        assert cells[:3] == [row["panel"], row["curve"], row["runs"]]
        expected = [float(row[f"{c}_{p}"]) for c in ("loss", "gap") for p in ("median", "min", "max")]
        assert [float(cell) for cell in cells[3:]] == pytest.approx(expected, rel=1e-3)


def test_the_report_has_a_line_for_each_claim_with_its_numbers(output, page):
    folder, _ = output
    stored = json.loads((folder / "claims.json").read_text())
    assert len(stored) == 5
    for claim in stored:
        assert claim["held"]
        assert claim["sentence"] in page.text
        assert f"true of {claim['images_held']} of 2 images" in page.text
        for label, value in claim["numbers"].items():
            assert f"{label}: {value:.3g}" in page.text
    assert page.text.count("Held.") == 5
    last = {}
    for row in read(folder / "fig2c.csv"):
        if row["iteration"] == "12":
            last.setdefault(row["curve"], []).append(float(row["gap"]))
    cyclic = next(claim for claim in stored if claim["name"] == "fig2c, cyclic order")
    assert cyclic["numbers"] == {label: np.median(last[label]) for label in ("FM", "blocks, cyclic", "CAVI, cyclic")}


def test_the_costs_in_the_report_are_those_of_the_timings(output, page):
    shown = {row[0]: row[1:] for row in page.tables["costs-regions"][1:]}
    rows = [row for row in read(output[0] / "beyond.csv") if row["problem"] == "regions"]
    gaps = {}
    for row in rows:
        if row["curve"] == "FM + conjugate gradients":
            gaps.setdefault(int(float(row["step"])), []).append(float(row["gap"]))
    first = min(step for step, values in gaps.items() if np.median(values) <= 0.1)
    assert shown["FM + conjugate gradients"][0] == str(first)
    assert shown["FM (paper)"][0] == "> 60"  # 5 sweeps for each of 12 iterations


def test_the_report_stands_alone(output, page):
    assert len(page.addresses) == 2
    for address, name in zip(page.addresses, ("figure2.svg", "beyond.svg"), strict=True):
        prefix = "data:image/svg+xml;base64,"
        assert address.startswith(prefix)
        assert base64.b64decode(address.removeprefix(prefix)) == (output[0] / name).read_bytes()


def test_the_report_says_how_to_run_the_same_again(page):
    settings = dict(page.tables["settings"][1:])
    assert settings["seeds"] == "5, 6"
    assert settings["forestmix"] == fmx.__version__
    assert {"python", "numpy", "scipy", "numba", "platform"} <= set(settings)
    command = "forestmix reproduce fig2a fig2b fig2c --seed 5 --repeats 2 --images 1 --iterations 12"
    assert command in page.text


def test_settings_are_stored(output):
    settings = json.loads((output[0] / "settings.json").read_text())
    assert settings["seeds"] == [5, 6]
    assert settings["iterations"] == 12
    assert {"python", "numpy", "scipy", "numba", "forestmix", "platform"} <= set(settings["versions"])


def test_the_terminal_shows_the_claims_and_where_the_report_is(output):
    folder, text = output
    assert "5 of 5 claims of the paper held." in text
    assert str(folder / "report.html") in text
    assert "fig2b" in text


def test_the_same_seed_gives_the_same_tables_bit_for_bit(output, tmp_path):
    assert forestmix("reproduce", *SMALL, "--out", tmp_path).exit_code == 0
    for name in (*TABLES, "claims.json", "settings.json", "figure2.svg", "figure2.png"):
        assert (tmp_path / name).read_bytes() == (output[0] / name).read_bytes(), name


def test_one_figure_alone(tmp_path):
    (tmp_path / "figure2.png").write_text("of an earlier run")
    result = forestmix("reproduce", "fig2a", *SMALL, "--no-beyond", "--out", tmp_path)
    assert result.exit_code == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert "fig2a.csv" in names
    assert names.isdisjoint({"fig2b.csv", "fig2c.csv", "beyond.csv", "timings.csv"})
    assert (tmp_path / "figure2.png").read_bytes().startswith(b"\x89PNG")
    assert "2 of 2 claims" in result.output


def test_a_claim_that_fails_is_printed_and_is_the_exit_code(tmp_path, monkeypatch):
    def failing(panels):
        return [claims_module.Claim("made up", "A claim that fails.", {"a": 1.0}, False, 0, 4)]

    monkeypatch.setattr(run_module, "check_claims", failing)
    result = forestmix("reproduce", "fig2a", *SMALL, "--no-beyond", "--out", tmp_path)
    assert result.exit_code == 1
    assert "FAILED" in result.output
    assert "0 of 1 claims of the paper held." in result.output
    report = (tmp_path / "report.html").read_text("utf-8")
    assert re.search(r"FAILED\..*A claim that fails\.", report)


def test_the_demo_is_the_three_figures_at_its_own_size(tmp_path, monkeypatch):
    seen = []

    def stop(settings, meter):
        seen.append(settings)
        raise fmx.ForestmixError("stopped by the test")

    monkeypatch.setattr("forestmix.paper.run_experiments", stop)
    result = forestmix("demo", "--out", tmp_path, "--seed", 4)
    assert result.exit_code == 2
    assert seen[0].figures == ("fig2a", "fig2b", "fig2c")
    assert (seen[0].seed, seen[0].full, seen[0].beyond) == (4, False, True)
    assert seen[0].images > 1
    assert seen[0].repeats > 1


def test_an_interrupted_run_does_not_look_like_a_failed_claim(tmp_path, monkeypatch):
    def interrupt(settings, meter):
        raise KeyboardInterrupt

    monkeypatch.setattr("forestmix.paper.run_experiments", interrupt)
    result = forestmix("demo", "--out", tmp_path)
    assert result.exit_code == 130
    assert "Interrupted." in result.output
    assert list(tmp_path.iterdir()) == []
