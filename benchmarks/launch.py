"""What a run waits for before it works: threads to start, kernels to be compiled.

Two threads for a pass that is too small for them: Python's pool beside Numba's parallel loops. The same compiled range
of rows runs on both, with nothing else on the machine and then beside as many busy processes as there are cores.
Printed are medians and 90 % quantiles in microseconds, the runs taking turns.

Then the first calls of ``infer`` in new processes, from an empty cache and with kept kernels, and the README's blocks,
as ``python -m benchmarks startup`` has them on its page.
"""

import multiprocessing
import time
from functools import partial

import numba
import numpy as np

from benchmarks.sections.startup import FIRST_CALLS, first_calls, readme
from forestmix.engines.compiled import threaded

ROWS, COLUMNS, ROUNDS = 300, 1000, 200


@numba.njit(nogil=True)
def products(first, last, W, v, out):
    for i in range(first, last):
        total = 0.0
        for j in range(W.shape[1]):
            total += W[i, j] * v[j]
        out[i] = total


@numba.njit(parallel=True)
def by_numba(cuts, W, v, out):
    for t in numba.prange(len(cuts) - 1):
        products(cuts[t], cuts[t + 1], W, v, out)


def by_python(cuts, W, v, out):
    threaded.run_all([partial(products, cuts[t], cuts[t + 1], W, v, out) for t in range(len(cuts) - 1)])


def spin():
    while True:
        pass


def measure(runs):
    """Return microseconds, by name, of runs that take turns."""
    times = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(1e6 * (time.perf_counter() - start))
    return times


def main() -> None:
    rng = np.random.default_rng(0)
    W, v, out = rng.random((ROWS, COLUMNS)), rng.random(COLUMNS), np.empty(ROWS)
    cuts = threaded.even_cuts(ROWS, 2)
    runs = {
        "one thread": lambda: products(0, ROWS, W, v, out),
        "Python's pool": lambda: by_python(cuts, W, v, out),
        "Numba's loop": lambda: by_numba(cuts, W, v, out),
    }
    for run in runs.values():
        run()  # compile
    print(f"Products with {ROWS} x {COLUMNS} entries, microseconds: median (90 % quantile) of {ROUNDS}")
    print(f"{'':<16}{'idle':>22}{'beside busy processes':>26}")
    idle = measure(runs)
    others = [multiprocessing.get_context("spawn").Process(target=spin, daemon=True) for _ in range(2)]
    for other in others:
        other.start()
    time.sleep(2)
    busy = measure(runs)
    for other in others:
        other.kill()
    for name in runs:
        cells = [f"{np.median(times[name]):,.0f} ({np.quantile(times[name], 0.9):,.0f})" for times in (idle, busy)]
        print(f"{name:<16}{cells[0]:>22}{cells[1]:>26}")
    table, targets, _ = first_calls(list(FIRST_CALLS), lambda what: None)
    print(f"\n{table.title}")
    for line in (table.columns, *table.rows):
        print("".join(f"{cell:<26}" for cell in line).rstrip())
    print()
    for target in (*targets, readme(lambda what: None)):
        print(f"{'met' if target.met else 'missed':<8}{target.claim}: {target.measured} (asked for: {target.target})")


if __name__ == "__main__":
    main()
