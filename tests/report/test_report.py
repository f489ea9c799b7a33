"""The report of the experiments: the numbers of the tables, the pictures inside, nothing that a phone cannot show."""

import base64
import csv
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import forestmix as fmx
from forestmix.paper import Claim, Settings, run_experiments, write_outcome
from forestmix.paper.run import Outcome
from forestmix.report import write_report
from forestmix.report.experiments import render_report
from forestmix.report.html import table


class Tables(HTMLParser):
    """Collects the cells of every table by its id, and every address that the page refers to."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.addresses, self.text, self.rows, self.cell = {}, [], "", [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        links = [value for name, value in attrs if name in ("src", "srcset", "href")]
        self.addresses += [address for address in links if not address.startswith("#")]
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
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    outcome = run_experiments(Settings(seed=5, repeats=2, images=1, iterations=12))
    write_outcome(folder, outcome)
    write_report(folder, outcome)
    return folder, outcome


@pytest.fixture(scope="module")
def page(output):
    return Tables((output[0] / "report.html").read_text("utf-8"))


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_report_shows_the_numbers_of_the_tables(output, page):
    folder, _ = output
    shown = page.tables["summary"][1:]
    stored = read(folder / "summary.csv")
    assert len(shown) == len(stored) == 12
    for cells, row in zip(shown, stored, strict=True):
        assert cells[:3] == [row["panel"], row["curve"], row["runs"]]
        expected = [float(row[f"{c}_{p}"]) for c in ("loss", "gap") for p in ("median", "min", "max")]
        numbers = [float(number) for cell in cells[3:] for number in re.findall(r"[\d.e+-]+", cell)]
        assert numbers == pytest.approx(expected, rel=5e-3)


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
    """Each picture is inside the page twice: as in the folder, and with its panels below each other for a phone."""
    folder, outcome = output
    contents = [base64.b64decode(address.removeprefix("data:image/svg+xml;base64,")) for address in page.addresses]
    assert contents == [
        outcome.pictures["figure2-narrow.svg"], (folder / "figure2.svg").read_bytes(),
        outcome.pictures["beyond-narrow.svg"], (folder / "beyond.svg").read_bytes(),
    ]  # fmt: skip


def test_pictures_for_a_phone_have_one_panel_in_a_row(output):
    def size(file):
        found = re.search(rb'viewBox="0 0 ([\d.]+) ([\d.]+)"', output[1].pictures[file])
        return float(found[1]), float(found[2])

    for name, rows in (("figure2", 3), ("beyond", 6)):
        width, height = size(f"{name}-narrow.svg")
        assert size(f"{name}.svg")[0] == pytest.approx(3 * width)
        assert height == pytest.approx(rows * width)


def test_every_table_scrolls_by_itself_and_no_list_repeats_one(output, page):
    text = (output[0] / "report.html").read_text("utf-8")
    assert len(page.tables) == 4
    assert text.count('<div class="wide" role="region"') == len(page.tables)
    assert "<li>" not in text
    assert "Least to a gap of 0.1, in parallel steps: FM + conjugate gradients" in page.text


def test_the_least_cost_is_bold(output):
    text = (output[0] / "report.html").read_text("utf-8")
    row = re.search(r'<th scope="row">FM \+ conjugate gradients</th>(.*?)</tr>', text)[1]
    assert row.startswith('<td class="number"><strong>')


def test_what_comes_in_stays_text():
    claim = Claim("made up", "<script>", {"<b>": 1.0}, True, 1, 1)
    outcome = Outcome(Settings(), (), (), (claim,), dict.fromkeys(("figure2.svg", "figure2-narrow.svg"), b""))
    assert "&lt;script&gt;" in render_report(outcome)
    assert render_report(outcome).count("<script>") == 1  # the page's own
    assert "<i>" not in table(["<i>"], [["<i>"]], "<i>")


def test_the_report_says_how_to_run_the_same_again(page):
    settings = dict(page.tables["settings"][1:])
    assert settings["seeds"] == "5, 6"
    assert settings["forestmix"] == fmx.__version__
    assert {"python", "numpy", "scipy", "numba", "platform"} <= set(settings)
    command = "forestmix reproduce fig2a fig2b fig2c --seed 5 --repeats 2 --images 1 --iterations 12"
    assert command in page.text
