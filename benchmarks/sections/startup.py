"""What a user waits for before the first answer: imports, the command line, compilation."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness.results import Section, Table, Target
from benchmarks.harness.rounds import Rounds, seconds_text, take_turns, times

#: size: rounds
ROUNDS = {"small": 3, "default": 4, "large": 21}
IMPORT_LIMIT, HELP_LIMIT, KERNEL_LIMIT = 0.5, 0.6, 0.5
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import scipy.sparse": ["-c", "import scipy.sparse"],
    "import numba": ["-c", "import numba"],
    "import forestmix": ["-c", "import forestmix; forestmix.DEF, forestmix.infer"],
    "forestmix --help": ["-c", "import sys; sys.argv = ['forestmix', '--help']; import forestmix.cli as c; c.main()"],
}
#: The seconds on the clock and of the processor that two calls of ``infer`` take, and whether Numba was imported.
FIRST_CALL = """
import sys, time, numpy as np, forestmix as fmx
fmx.DEF, fmx.infer  # public names are imported when first asked for
if {n} * {m} > 2**18:
    import numba  # which kernels need; small problems have none
rng = np.random.default_rng(0)
model = fmx.DEF(fmx.Layer(fmx.{rows}, rng.standard_normal(({n}, {m}))))
x = rng.integers(0, 2, {n})
for _ in range(2):
    wall, processor = time.perf_counter(), time.process_time()
    fmx.infer(model, x)
    print(time.perf_counter() - wall, time.process_time() - processor)
print(int("numba" in sys.modules), 0)
"""
#: The same of all blocks of the README, one after another, imports included.
README = """
import re, sys, time
wall, processor = time.perf_counter(), time.process_time()
import matplotlib
matplotlib.use("Agg")
names, shown = {{}}, sys.stdout
sys.stdout = sys.stderr
for block in re.findall(r"```python\\n(.*?)```", open({path!r}, encoding="utf-8").read(), flags=re.DOTALL):
    exec(block, names)
sys.stdout = shown
print(time.perf_counter() - wall, time.process_time() - processor)
"""
#: name: rows, shape, and the seconds of the first call from an empty cache that are asked for
FIRST_CALLS = {
    "Gaussian, 50 x 20": ("Gaussian(1.0)", 50, 20, 0.5),
    "logistic, 500 x 10": ("Bernoulli()", 500, 10, 0.5),
    "Gaussian, 5000 x 1000": ("Gaussian(1.0)", 5000, 1000, 5.0),
    "Bernoulli, 5000 x 1000": ("Bernoulli()", 5000, 1000, 7.0),
}
README_LIMIT = 20.0


def child(arguments: list[str], settings: dict[str, str] | None = None, folder: str | None = None) -> tuple[float, str]:
    """Return the seconds and the output of a Python process, with settings of its environment, in a folder."""
    environment = dict(os.environ) | (settings or {})
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )  # fmt: skip
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{arguments} failed: {done.stderr[-300:]}")
    return seconds, done.stdout


def pairs(arguments: list[str], cache: str) -> list[tuple[float, ...]]:
    """Return the pairs of numbers that a Python process prints, run with a cache in a folder of its own."""
    # BLAS on one thread: its threads wait in a spin, which the processor's time would count.
    lines = child(arguments, {"NUMBA_CACHE_DIR": cache, "OPENBLAS_NUM_THREADS": "1"}, cache)[1].splitlines()
    return [tuple(map(float, line.split())) for line in lines]


def first_calls(names: Sequence[str], say: Callable[[str], None]) -> tuple[Table, list[Target], float]:
    """Return what first calls take from an empty cache and with kept kernels, by model, and the longest with those."""
    columns = ["model", "empty cache", "of the processor", "kept kernels", "second call", "Numba"]
    table, targets, slowest = Table("First call of `infer` in a process", columns), [], 0.0
    for name in names:
        say(f"first call, {name}")
        rows, n, m, limit = FIRST_CALLS[name]
        with tempfile.TemporaryDirectory() as cache:
            code = ["-c", FIRST_CALL.format(rows=rows, n=n, m=m)]
            (wall, processor), _, _ = pairs(code, cache)
            (_, kept), (again, _), (numba, _) = pairs(code, cache)
        cells = [f"{wall:.2f} s", f"{processor:.2f} s", f"{kept:.2f} s of the processor", seconds_text(again)]
        table.rows.append([name, *cells, "imported" if numba else "not needed"])
        claim = f"first call from an empty cache, {name}, seconds of the processor"
        targets.append(Target(claim, f"< {limit} s", f"{processor:.2f} s", processor < limit))
        slowest = max(slowest, kept)
    return table, targets, slowest


def readme(say: Callable[[str], None]) -> Target:
    """Return what the blocks of the README take on a new machine."""
    say("the blocks of the README")
    path = str(Path(__file__).parents[2] / "README.md")
    with tempfile.TemporaryDirectory() as cache:
        ((wall, processor),) = pairs(["-c", README.format(path=path)], cache)
    claim = "the README's blocks from an empty cache, imports included, seconds of the processor"
    measured = f"{processor:.1f} s ({wall:.1f} s in all)"
    return Target(claim, f"< {README_LIMIT:.0f} s", measured, processor < README_LIMIT)


def command_table(rounds: Rounds) -> Table:
    """Return wall times of processes, and what they add to a bare one."""
    bare = times(rounds, "python -c pass").middle
    table = Table("A process from start to end", ["command", "time", "beyond bare Python"])
    for name in rounds:
        spread = times(rounds, name)
        text = f"{spread.middle:.2f} s ({spread.low:.2f} to {spread.high:.2f})"
        table.rows.append([name, text, f"{spread.middle - bare:.2f} s"])
    return table


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run the commands in turn, then the first calls."""
    repeats = ROUNDS[size]
    say("imports and --help")
    for arguments in COMMANDS.values():
        child(arguments)  # warm the file cache
    runs = {name: lambda arguments=arguments: child(arguments)[0] for name, arguments in COMMANDS.items()}
    rounds = take_turns(runs, repeats)
    small = size == "small"
    kernels, asked, slowest = first_calls(list(FIRST_CALLS)[:2] if small else list(FIRST_CALLS), say)
    asked += [] if small else [readme(say)]
    bare = times(rounds, "python -c pass").middle
    imported = times(rounds, "import forestmix").middle - bare
    helped = times(rounds, "forestmix --help").middle
    note = (
        "Small problems run without kernels. Compiled kernels are kept on disk, so an empty cache is met once for each "
        "kind of model. First calls are timed with all that they need imported, of kernels also Numba. Compiling is "
        "timed in seconds of the processor, which other work on the machine changes little. Public names are imported "
        "when first asked for; importing forestmix is timed with `DEF` and `infer`, which load what a model needs."
    )
    return Section(
        "startup", "Starting up", [note], [command_table(rounds), kernels],
        [
            Target("import forestmix, beyond bare Python", f"< {IMPORT_LIMIT} s", f"{imported:.2f} s", imported < 0.5),
            Target("forestmix --help, whole process", f"< {HELP_LIMIT} s", f"{helped:.2f} s", helped < HELP_LIMIT),
            Target("first call with kept kernels, Numba imported, seconds of the processor", f"< {KERNEL_LIMIT} s",
                   f"{slowest:.2f} s", slowest < KERNEL_LIMIT),
            *asked,
        ],
    )  # fmt: skip
