"""Every command in a pipe, in a pseudo-terminal, at 40 columns, in the C locale, without a reader, interrupted."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pandas
import pytest

import forestmix as fmx
from forestmix.data import load_table
from support.commands import Commands

MAIN = [sys.executable, "-c", "from forestmix.cli import main; main()"]
COMMANDS = {
    "infer": ["infer", "W.npy", "x.npy", "--family", "bernoulli"],
    "regress": ["regress", "data.csv", "mark ~ before + (1 | school)"],
    "predict": ["predict", "fit.nc", "data.csv"],
    "compare": ["compare", "fit.nc", "other.nc"],
    "report": ["report", "fit.nc"],
    "forest": ["forest", "numbers.csv", "--trees", "2"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("terminals"), np.random.default_rng(0)
    np.save(folder / "W.npy", rng.standard_normal((60, 4)))
    np.save(folder / "x.npy", (rng.random(60) < 0.5).astype(float))
    table = load_table("schools")[:60]
    table.to_csv(folder / "data.csv", index=False)
    numbers = rng.standard_normal((50, 2))[:, [0, 0, 1, 1]] + 0.3 * rng.standard_normal((50, 4))
    pandas.DataFrame(numbers, columns=["a", "b", "<c>", "[d]"]).to_csv(folder / "numbers.csv", index=False)
    fmx.regress("mark ~ before + (1 | school)", table).save(folder / "fit.nc")
    fmx.regress("mark ~ 1 + (1 | school)", table).save(folder / "other.nc")
    return folder


@pytest.fixture(scope="module")
def commands():
    made = Commands()
    yield made
    made.close()


@pytest.fixture
def run(commands, folder):
    """Run a command to its end in the folder: its code, what it wrote, and what of errors."""
    return lambda words, **options: commands.run(words, folder, **options)


@pytest.fixture
def in_terminal(commands, folder):
    return partial(run_in_terminal, commands, folder)


def run_in_terminal(commands, folder, words, interrupt_at=None, **changes):
    """Run a command in a pseudo-terminal; return the code and all that it wrote."""
    ours, theirs = pty.openpty()
    process = commands.start(words, folder, [theirs] * 3, TERM="xterm", **changes)
    os.close(theirs)
    written, deadline = b"", time.monotonic() + 120
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], 0.2)[0]:
            continue
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        written += part
        if interrupt_at is not None and re.search(interrupt_at, written):
            process.send_signal(signal.SIGINT)
            interrupt_at = None
    os.close(ours)
    return process.wait(), written.decode()


@pytest.mark.parametrize("name", COMMANDS)
def test_in_a_pipe_there_is_no_colour_no_bar_and_nothing_on_standard_error(run, name):
    for changes in ({}, {"COLUMNS": "40", "LANG": "C", "PYTHONIOENCODING": "ascii"}):
        code, text, errors = run(COMMANDS[name], **changes)
        assert code == 0, errors
        assert "\x1b" not in text
        assert errors == ""
        if name in ("infer", "regress", "compare", "forest"):
            assert "…" not in text  # no number is cut, however narrow


@pytest.mark.parametrize("name", COMMANDS)
def test_in_a_terminal(in_terminal, name):
    code, text = in_terminal(COMMANDS[name], COLUMNS="40", LANG="C")
    assert code == 0, text
    assert "Traceback" not in text
    if name in ("infer", "regress", "forest"):
        assert re.search(r"[\d,]+: -[\d.,]+ +([\d.,]+ it/s)? ", text)  # iteration, objective and rate, not cut
        assert "…" not in text


@pytest.mark.parametrize("name", ["infer", "regress", "predict", "compare", "forest"])
def test_json_is_all_that_is_written(run, name):
    code, text, errors = run([*COMMANDS[name], "--json"])
    assert (code, errors) == (0, "")
    assert json.loads(text)["command"] == name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_that_has_left_ends_it_quietly(run, name):
    reading, writing = os.pipe()
    os.close(reading)
    code, _, errors = run(COMMANDS[name], stdout=writing)
    os.close(writing)
    assert (code, errors) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_device_is_one_line(run, name):
    with open("/dev/full", "w") as full:
        code, _, errors = run(COMMANDS[name], stdout=full.fileno())
    assert (code, errors) == (2, "Error: [Errno 28] No space left on device\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_an_output_file_that_cannot_be_written_is_an_error(run):
    code, _, errors = run(["predict", "fit.nc", "data.csv", "--out", "/dev/full/p.csv"])
    assert code == 2
    assert errors.startswith("Error: --out must be a file in a folder")


LONG = ["infer", "W.npy", "x.npy", "--family", "bernoulli", "--tol", "0", "--max-iter", "100000000", "--out", "part.nc"]


def test_an_interrupted_run_shows_its_course_and_saves_what_there_is(folder, in_terminal):
    code, text = in_terminal(LONG, interrupt_at=rb"iteration \d+, objective -[\d.]+", COLUMNS="120")
    assert code == 130, text
    assert "it/s" in text
    assert "What there is so far is in part.nc" in text
    saved = fmx.load(folder / "part.nc")
    assert saved.status is fmx.Status.STOPPED
    expected = fmx.infer(fmx.DEF(fmx.Layer(fmx.Bernoulli(), np.load(folder / "W.npy"))), np.load(folder / "x.npy"))
    assert saved.trace.objective[0] <= saved.objective <= expected.objective + 1e-6


def test_an_interrupted_regression_saves_what_there_is(folder, in_terminal):
    words = ["regress", "data.csv", "mark ~ before + (before | school)", "--out", "part_fit.nc"]
    code, text = in_terminal(words, interrupt_at=rb"iteration [1-9]\d*, objective -[\d.]+", COLUMNS="120")
    assert code == 130, text
    assert "it/s" in text
    assert "What there is so far is in part_fit.nc" in text
    saved = fmx.load(folder / "part_fit.nc")
    assert saved.status is fmx.Status.STOPPED
    assert "Stopped by the callback, or by Ctrl-C" in text
    whole = fmx.regress("mark ~ before + (before | school)", load_table("schools")[:60], prior="flat")
    assert abs(saved.posterior.mean[1] - whole.posterior.mean[1]) < 5 * whole.posterior.sd[1]


def test_an_interrupted_forest_saves_what_there_is(folder, in_terminal):
    X = np.random.default_rng(0).standard_normal((1000, 200))  # nothing to find, so that it searches for long
    np.save(folder / "noise.npy", X)
    words = ["forest", "noise.npy", "--trees", "8", "--out", "part_forest.nc"]
    code, text = in_terminal(words, interrupt_at=rb"iteration [1-9]\d*, objective -[\d.,]+", COLUMNS="120")
    assert code == 130, text
    assert "it/s" in text
    assert "left" in text
    assert "not converged" in text
    assert "What there is so far is in part_forest.nc" in text
    saved = fmx.load(folder / "part_forest.nc")
    assert not saved.converged_
    assert saved.transform(X).shape == (1000, 8)


def test_completion_is_there_for_a_shell():
    words = {"_FORESTMIX_COMPLETE": "complete_bash", "COMP_WORDS": "forestmix re", "COMP_CWORD": "1"}
    ended = subprocess.run(MAIN, env=os.environ | words, capture_output=True, text=True)
    assert ended.stdout.split() == ["regress", "report", "reproduce"]


def test_help_imports_nothing_heavy():
    """How long it takes is in benchmarks/startup.py; what would make it slow is here."""
    show = "import sys; sys.argv = ['forestmix', '--help']\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", f"from forestmix.cli import main; {show}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "regress" in ended.stdout
    assert not {"numpy", "scipy", "numba", "matplotlib", "pandas", "dask", "sklearn"} & set(ended.stderr.split())
