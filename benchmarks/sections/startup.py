"""What a user waits for before the first answer: imports, the command line, compilation."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from benchmarks.harness.results import Section, Table, Target
from benchmarks.harness.rounds import Rounds, Spread, seconds_text, take_turns, times

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
#: The seconds of importing Numba, of the first call in a process and of the second.
FIRST_CALL = """
import time, numpy as np, forestmix as fmx
fmx.DEF, fmx.infer  # public names are imported when first asked for
start = time.perf_counter()
import numba
print(time.perf_counter() - start)
W = np.random.default_rng(0).standard_normal((50, 20))
model = fmx.DEF(fmx.Layer(fmx.{family}(), W))
x = np.zeros(50)
for _ in range(2):
    start = time.perf_counter()
    fmx.infer(model, x)
    print(time.perf_counter() - start)
"""
#: size: rows whose kernels are compiled
FAMILIES = {"small": ("Bernoulli",), "default": ("Gaussian", "Bernoulli")}


def child(arguments: list[str], cache: str | None = None) -> tuple[float, str]:
    """Return the seconds and the output of a Python process."""
    environment = dict(os.environ) | ({} if cache is None else {"NUMBA_CACHE_DIR": cache})
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{arguments} failed: {done.stderr[-300:]}")
    return seconds, done.stdout


def first_calls(family: str, cache: str | None) -> tuple[float, ...]:
    """Return the seconds of importing Numba and of the first and second ``infer`` in a new process."""
    return tuple(float(line) for line in child(["-c", FIRST_CALL.format(family=family)], cache)[1].split())


def kernel_times(families: tuple[str, ...], repeats: int, say: Callable[[str], None]) -> Table:
    """Return what compiling and loading the kernels takes, by family."""
    columns = ["rows", "importing Numba", "empty cache", "cached kernels", "second call"]
    table = Table("First call of `infer`, 50 x 20", columns)
    for family in families:
        say(f"first call, {family} rows")
        with tempfile.TemporaryDirectory() as cache:
            compiled = first_calls(family, cache)[1]
            cached = [first_calls(family, cache) for _ in range(repeats)]
        numba, load, again = (Spread.of(part) for part in zip(*cached, strict=True))
        both = [f"{one.middle:.2f} s ({one.low:.2f} to {one.high:.2f})" for one in (numba, load)]
        table.rows.append([family, both[0], seconds_text(compiled), both[1], seconds_text(again.middle)])
    return table


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
    kernels = kernel_times(FAMILIES.get(size, FAMILIES["default"]), repeats, say)
    bare = times(rounds, "python -c pass").middle
    imported = times(rounds, "import forestmix").middle - bare
    helped = times(rounds, "forestmix --help").middle
    slowest = max(float(line[3].split()[0]) for line in kernels.rows)
    note = (
        "Compiled kernels are kept on disk, so an empty cache is met once for each kind of model. The first call in a "
        "process imports Numba, then loads the kernels; most of the latter is Numba's own start, which a kernel of "
        "one line has as well. Public names are imported when first asked for; importing forestmix is timed with `DEF` "
        "and `infer`, which load what a model needs."
    )
    return Section(
        "startup", "Starting up", [note], [command_table(rounds), kernels],
        [
            Target("import forestmix, beyond bare Python", f"< {IMPORT_LIMIT} s", f"{imported:.2f} s", imported < 0.5),
            Target("forestmix --help, whole process", f"< {HELP_LIMIT} s", f"{helped:.2f} s", helped < HELP_LIMIT),
            Target("first call with cached kernels, Numba imported", f"< {KERNEL_LIMIT} s", f"{slowest:.2f} s",
                   slowest < KERNEL_LIMIT),
        ],
    )  # fmt: skip
