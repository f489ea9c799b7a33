"""The experiments through the command line, at reduced size: output, report, exit codes."""

import csv
import json
import re

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
