"""Nanoseconds per row of the softplus expectations, by spread, and their cost relative to a plain NumPy sigmoid.

The sigmoid is evaluated next to each measurement, so the ratio means something on a busy machine where times do not.
"""

import time

import numpy as np

from forestmix.kernels.expectations import fill_lower_expectations

ROWS = 100_000
REPEATS = 7
SPREADS = (0.0, 0.1, 1.0, 5.0, 50.0, 1000.0)


def best_time(call):
    """Return the shortest of several times in seconds; what disturbs a measurement only makes it longer."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    mean = np.random.default_rng(0).uniform(-20, 20, ROWS)
    out = np.empty((4, ROWS))
    fill_lower_expectations(mean, np.ones(ROWS), out)  # compile
    print(f"E softplus, E sigmoid, E sigmoid' under N(m, s^2), {ROWS} rows, m uniform on [-20, 20]; best of {REPEATS}")
    print(f"{'s':>6} {'ns per row':>11} {'NumPy sigmoid':>14} {'ratio':>6}")
    for spread in SPREADS:
        spreads = np.full(ROWS, spread)
        plain = best_time(lambda: 1 / (1 + np.exp(-mean)))
        serial = best_time(lambda s=spreads: fill_lower_expectations(mean, s, out))
        row, sigmoid = (1e9 * seconds / ROWS for seconds in (serial, plain))
        print(f"{spread:>6g} {row:>11.0f} {sigmoid:>14.1f} {row / sigmoid:>6.1f}")


if __name__ == "__main__":
    main()
