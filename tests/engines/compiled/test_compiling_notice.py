"""One line while kernels are compiled: on a terminal, once, and only if it takes a while."""

import os
import subprocess
import sys

import pytest

from forestmix.engines.compiled.notice import TEXT

pty = pytest.importorskip("pty")

#: Stands for Numba, which tells its listeners that a function is compiled; ``slow(name)`` takes a moment for one.
CODE = """
import time
from types import SimpleNamespace
from numba.core import event
from forestmix.engines.compiled import notice
notice.PATIENCE = 0.3
def slow(module, seconds):
    function = SimpleNamespace(__module__=module)
    with event.trigger_event("numba:compile", data={"dispatcher": SimpleNamespace(py_func=function)}):
        with event.trigger_event("numba:compile", data={"dispatcher": SimpleNamespace()}):
            time.sleep(seconds)
"""
CASES = {
    "two slow ones": (
        "slow('forestmix.engines.compiled.dense', 0.5); slow('forestmix.engines.compiled.rows', 0.5)",
        1,
    ),
    "several quick ones": ("for _ in range(5): slow('forestmix.engines.compiled.dense', 0.12)", 1),
    "a quick one, another package, from the cache": (
        """
slow('forestmix.engines.compiled.dense', 0.01)
slow('other.kernels', 0.5)
with event.trigger_event('numba:compiler_lock'):
    time.sleep(0.5)
""",
        0,
    ),
}


def on_terminal(code):
    """Return what a process writes to a terminal."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", CODE + code], stderr=theirs, stdout=theirs, check=True)
        os.write(theirs, b"end")  # so that there is something to read
        return os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("case", CASES)
def test_on_a_terminal(case):
    code, times = CASES[case]
    assert on_terminal(code).split("\r\n")[:-1] == [TEXT] * times


def test_not_in_a_pipe():
    code = CODE + CASES["two slow ones"][0]
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout + ran.stderr == ""


def test_numba_sends_the_event_when_it_compiles_and_not_when_it_loads(tmp_path):
    """In two processes with one cache: the first compiles, the second does not."""
    code = """
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    import numpy as np
    from forestmix.engines.compiled.sparse import collect_columns
    index, one = np.array([0, 1], np.int32), np.ones((1, 3))
    collect_columns(0, 1, index, index[:1], one[0, :1].copy(), one, one.copy())
names = [each.data["dispatcher"].py_func.__module__ for _, each in recorder.buffer]
print(names.count("forestmix.engines.compiled.sparse"))
"""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    for events in ("2", "0"):
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        assert ran.stdout.split() == [events]
