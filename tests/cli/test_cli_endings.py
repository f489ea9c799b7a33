"""How commands end when what they show cannot be written: quietly, or with one line, and never like a failed claim."""

import os
import subprocess
import sys

import pytest

COMMANDS = [
    ["--help"], ["--version"], ["data", "list"], ["data", "verify", "mnist"], ["demo", "--help"], ["demo"],
    ["reproduce", "fig2a"],
]  # fmt: skip
MAIN = "from forestmix.cli import main; main()"
#: The same with experiments that find nothing at once.
EMPTY = f"""
from forestmix import paper, report
from forestmix.paper.run import Outcome
paper.run_experiments = lambda settings, meter: Outcome(settings, (), (), (), {{}})
paper.write_outcome = report.write_report = lambda folder, outcome: folder
import sys, forestmix.cli
sys.modules["forestmix.cli.app"]._demo_regression = lambda folder: None
{MAIN}
"""


@pytest.fixture(params=COMMANDS, ids=lambda words: " ".join(words[:2]))
def ran(request, tmp_path):
    """Return a function that runs a command with given standard streams."""
    words, works = request.param, request.param in (["demo"], ["reproduce", "fig2a"])
    command = [sys.executable, "-c", EMPTY if works else MAIN, *words, *(["--out", tmp_path] if works else [])]
    environment = os.environ | {"FORESTMIX_DATA": str(tmp_path / "cache")}

    def run(**streams):
        return subprocess.run(command, env=environment, text=True, **streams)

    return run


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_one_line_and_an_error(ran):
    with open("/dev/full", "w") as full:
        ended = ran(stdout=full, stderr=subprocess.PIPE)
        assert ended.returncode == 2
        assert ended.stderr.splitlines()[-1] == "Error: [Errno 28] No space left on device"
        assert "Traceback" not in ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_an_error_that_cannot_be_said_is_still_an_error():
    with open("/dev/full", "w") as full:
        assert subprocess.run([sys.executable, "-c", MAIN, "--help"], stdout=full, stderr=full).returncode == 2


def test_a_closed_pipe_ends_quietly(ran):
    reading, writing = os.pipe()
    os.close(reading)
    ended = ran(stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert ended.returncode == 141
    assert not any(word in ended.stderr for word in ("Traceback", "Error", "Exception"))


def test_the_help_names_the_codes():
    text = subprocess.run([sys.executable, "-c", MAIN, "--help"], capture_output=True, text=True, check=True).stdout
    assert all(f"{code} " in text for code in (0, 1, 2, 130, 141))


def test_ctrl_c_ends_all_of_an_experiment_not_one_of_its_runs(tmp_path):
    """``infer`` alone would return what there is at a KeyboardInterrupt, and the next run would begin."""
    code = f"""
import os, signal
from forestmix.inference.loop import Run
Run._iterate = lambda run: os.kill(os.getpid(), signal.SIGINT)
{MAIN}
"""
    words = [sys.executable, "-c", code, "reproduce", "fig2a", "--images", "1", "--out", str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "Interrupted.\n")
    assert list(tmp_path.iterdir()) == []
