"""Nanoseconds per row of the softplus expectations, by spread: compiled, in NumPy, and a NumPy sigmoid.

They take turns, so the ratios mean something on a busy machine where times do not.
"""

import time

import numpy as np
from numba import njit

from forestmix.engines.compiled.softplus import MEAN, SIZE, SPREAD, VALUE, WIDTH, lower_softplus
from forestmix.families import expectations

ROWS = 100_000
REPEATS = 7
SPREADS = (0.0, 0.05, 0.1, 0.5, 1.0, 5.0, 50.0, 1000.0)


@njit(nogil=True)
def fill_together(mean, spread, out):
    """Write the first expectation of every row; the others are left in the workspace."""
    work = np.zeros(SIZE)
    for start in range(0, mean.size, WIDTH):
        count = min(WIDTH, mean.size - start)
        for k in range(count):
            work[MEAN + k], work[SPREAD + k] = mean[start + k], spread[start + k]
        lower_softplus(count, work)
        for k in range(count):
            out[start + k] = work[VALUE + k]


def best_times(calls):
    """Return the shortest of several times of each, in ns per row; what disturbs a measurement makes it longer."""
    times = [[] for _ in calls]
    for _ in range(REPEATS):
        for call, own in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
    return [1e9 * min(own) / ROWS for own in times]


def main() -> None:
    mean = np.random.default_rng(0).uniform(-20, 20, ROWS)
    out = np.empty(ROWS)
    fill_together(mean, np.ones(ROWS), out)  # compile
    print(f"E softplus, E sigmoid, E sigmoid' under N(m, s^2), {ROWS} rows, m uniform on [-20, 20]; ns per row")
    print(f"{'s':>6} {'compiled':>9} {'NumPy':>9} {'ratio':>6} {'NumPy sigmoid':>14}")
    for spread in SPREADS:
        given = mean, np.full(ROWS, spread)
        together, single, sigmoid = best_times([
            lambda given=given: fill_together(*given, out),
            lambda given=given: expectations.lower_softplus(np, -np.abs(given[0]), given[1]),
            lambda: 1 / (1 + np.exp(-mean)),
        ])  # fmt: skip
        print(f"{spread:>6g} {together:>9.1f} {single:>9.1f} {single / together:>6.1f} {sigmoid:>14.1f}")


if __name__ == "__main__":
    main()
