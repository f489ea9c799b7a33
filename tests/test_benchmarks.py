"""The logic of the benchmark harness: medians, ratios, the accuracy gate and the page. No contender is imported."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.__main__ import PAGES  # noqa: E402
from benchmarks.harness.ladder import loosest  # noqa: E402
from benchmarks.harness.page import markdown_table, write_page  # noqa: E402
from benchmarks.harness.results import Results, Section, Table, Target, load, save  # noqa: E402
from benchmarks.harness.rounds import Spread, ratios, seconds_text, short, take_turns, times  # noqa: E402
from benchmarks.harness.worker import ContenderError, OutOfTimeError, Worker  # noqa: E402
from benchmarks.problems import store  # noqa: E402
from benchmarks.problems.judge import ElboJudge, RidgeJudge  # noqa: E402

LADDER = [10.0**-k for k in range(1, 9)]


def test_contenders_take_turns_and_ratios_are_within_a_round():
    order = []
    seconds = {"ours": iter([1.0, 2.0, 4.0]), "theirs": iter([3.0, 8.0, 12.0])}
    runs = {name: lambda name=name: order.append(name) or next(seconds[name]) for name in seconds}
    rounds = take_turns(runs, 3)
    assert order == ["ours", "theirs"] * 3
    assert times(rounds, "theirs") == Spread(8.0, 3.0, 12.0)
    assert ratios(rounds, "theirs", "ours") == Spread(3.0, 3.0, 4.0)


def test_a_slow_contender_sits_out_once_its_allowance_is_used():
    rounds = take_turns({"fast": lambda: 1.0, "slow": lambda: 5.0}, 4, allowance=6.0)
    assert rounds == {"fast": [1.0] * 4, "slow": [5.0, 5.0, None, None]}
    assert ratios(rounds, "slow", "fast") == Spread(5.0, 5.0, 5.0)


@pytest.mark.parametrize(("value", "text"), [(1.234, "1.23"), (1234.5, "1,234"), (0.01234, "0.0123"), (0.0, "0")])
def test_numbers_have_three_digits(value, text):
    assert short(value) == text


def test_seconds_have_a_unit_that_suits_them():
    assert [seconds_text(value) for value in (2.0, 0.002, 2e-6, None)] == ["2.00 s", "2.00 ms", "2.00 us", "-"]


def test_the_loosest_setting_that_is_enough_is_found():
    tried = []

    def attempt(setting):
        tried.append(setting)
        return setting / 10, 0.1

    outcome = loosest(LADDER, attempt, target=1e-5, budget=100.0)
    assert outcome.reached
    assert outcome.best.setting == pytest.approx(1e-4)
    assert len(tried) <= 4


@pytest.mark.parametrize("steepness", [0.5, 1.0, 3.0])
def test_a_guess_finds_the_same_setting_whatever_the_gaps_do(steepness):
    tried = []

    def attempt(setting):
        tried.append(setting)
        return setting**steepness, 0.1

    ladder = [10 ** (-k / 4) for k in range(60)]
    outcome = loosest(ladder, attempt, target=2e-6, budget=100.0, start=ladder[9], rungs_per_decade=4.0)
    assert outcome.best.setting == max(setting for setting in ladder if setting**steepness <= 2e-6)
    assert len(tried) <= (4 if steepness == 1 else 11)


def test_a_contender_that_stays_short_is_shown_with_its_gap():
    outcome = loosest(LADDER, lambda setting: (0.25, 2.0), target=1e-5, budget=100.0)
    assert not outcome.reached
    assert outcome.verdict(1e-5) == "not reached: 2e-01 in 2.0 s (target 1e-05)"


def test_time_limits_end_the_search():
    def attempt(setting):
        raise OutOfTimeError("no answer in 3 s")

    outcome = loosest(LADDER, attempt, target=1e-5, budget=10.0)
    assert not outcome.reached
    assert outcome.verdict(1e-5) == "not reached: no answer in 3 s"


def example_section(name, met, size="default"):
    return Section(
        name, name.title(), ["A note."], [Table("T|1", ["a", "b"], [["1|2", "x"]])],
        [Target(f"claim of {name}", "< 1", "0.5", met)], size=size, seconds=3.0, date="2000-01-01",
    )  # fmt: skip


def test_a_section_replaces_its_own_only_and_survives_the_file(tmp_path):
    path = tmp_path / "results.json"
    assert load(path).sections == {}
    save(Results({"cores": "2"}, {"one": example_section("one", True), "two": example_section("two", False)}), path)
    merged = load(path).merged({"two": example_section("two", None)}, {"cores": "4"})
    assert merged.sections["one"] == example_section("one", True)
    assert merged.sections["two"].targets[0].verdict == "not measured"
    assert merged.facts == {"cores": "4"}


def test_the_page_shows_every_target_with_its_verdict(tmp_path):
    sections = {
        "b": example_section("b", False),
        "a": example_section("a", True),
        "s": example_section("s", True, "small"),
    }
    write_page(Results({"cores": "2"}, sections), ("a", "b"), tmp_path / "page.md", {"plot.png": "a plot"})
    page = (tmp_path / "page.md").read_text("utf-8")
    assert "| a | claim of a | < 1 | 0.5 | met |" in page
    assert "| b | claim of b | < 1 | 0.5 | missed |" in page
    assert "| s | claim of s | < 1 | 0.5 | smoke run |" in page
    assert "1 of 3 met" in page
    assert page.index("## A\n") < page.index("## B\n") < page.index("## S\n")
    assert "![a plot](plot.png)" in page


@pytest.mark.parametrize("file", ["posteriors.json", "regression_measured.json"])
def test_pages_are_what_the_stored_numbers_say(file, tmp_path):
    """No line of them is put in by hand."""
    stored, (names, frame) = load(ROOT / "docs" / file), PAGES[file]
    write_page(stored, names, tmp_path / "page.md", {}, frame)
    page = (ROOT / "docs" / file).with_suffix(".md")
    assert (tmp_path / "page.md").read_text("utf-8") == page.read_text("utf-8")


def test_the_coverage_of_the_page_on_trust_is_what_was_measured():
    page = (ROOT / "docs" / "trust.md").read_text("utf-8")
    (table,) = load(ROOT / "docs" / "posteriors.json").sections["coverage"].tables
    for row in table.rows:
        shares = " | ".join(share.replace("%", " %") for share in row[1:5])
        assert f"| {shares} |" in page, row[0]


def test_bars_in_cells_are_escaped():
    assert markdown_table(["a"], [["|W|"]]).splitlines()[-1] == "| \\|W\\| |"


def gaussian_problem(rng, n=12, m=5):
    return store.Problem("tiny", "gaussian", rng.standard_normal((n, m)), rng.standard_normal(n), 0.3, 0.7, 0.5)


def test_the_judge_of_ridge_problems_knows_the_optimum():
    problem = gaussian_problem(np.random.default_rng(0))
    judge, W = RidgeJudge(problem), problem.matrix
    best = np.linalg.solve(W.T @ W / 0.25 + np.eye(5) / 0.49, W.T @ (problem.x - 0.3) / 0.25)
    assert abs(judge.gap(best)) < 1e-9
    assert judge.gap(best + 0.1) > 1e-3
    assert judge.gap(np.full(5, np.nan)) == math.inf


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_the_judge_of_elbos_agrees_with_quadrature(family):
    rng = np.random.default_rng(1)
    W, mean, sd = rng.standard_normal((4, 3)), rng.standard_normal(3), rng.uniform(0.2, 2.0, 3)
    x = np.array([0.0, 1.0, 1.0, 0.0])
    likelihood = {
        "bernoulli": lambda x, eta: x * eta - np.logaddexp(0, eta),
        "poisson": lambda x, eta: stats.poisson.logpmf(x, np.exp(eta)),
    }[family]
    rows = 0.0
    for i in range(4):
        centre, spread = 0.2 + W[i] @ mean, np.sqrt(W[i] ** 2 @ sd**2)
        density = stats.norm(centre, spread)
        reach = (centre - 12 * spread - 20, centre + 12 * spread + 20)
        rows += integrate.quad(lambda e, i=i, q=density: likelihood(x[i], e) * q.pdf(e), *reach, points=[centre])[0]
    divergence = np.sum(np.log(1.5 / sd) + (sd**2 + mean**2) / (2 * 1.5**2) - 0.5)
    problem = store.Problem("tiny", family, W, x, bias=0.2, prior_sd=1.5)
    assert ElboJudge(problem).elbo(mean, sd) == pytest.approx(rows - divergence, rel=1e-7)
    assert ElboJudge(problem).elbo(mean * np.nan, sd) == -math.inf


def test_a_problem_survives_its_folder(tmp_path):
    problem = gaussian_problem(np.random.default_rng(2))
    store.save(problem, tmp_path)
    again = store.load(tmp_path)
    assert (again.bias, again.prior_sd, again.noise_sd) == (0.3, 0.7, 0.5)
    assert np.array_equal(again.matrix, problem.matrix)


class Echo:
    """A contender for the tests of its process."""

    def __init__(self, folder):
        self.folder = folder

    def double(self, number):
        return 2 * number

    def fail(self):
        raise ValueError("no luck")


def test_a_worker_answers_and_reports_failures(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    with Worker("test_benchmarks:Echo", tmp_path) as worker:
        reply = worker.call("double", 30.0, number=4)
        assert reply.value == 8
        assert reply.seconds >= 0
        with pytest.raises(ContenderError, match="no luck"):
            worker.call("fail", 30.0)
        with pytest.raises(ContenderError, match="no luck"):
            worker.call("double", 30.0, number=4)


def test_the_command_line_names_what_there_is():
    command = [sys.executable, "-m", "benchmarks", "nosuch"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "gaussian_mean" in done.stderr
