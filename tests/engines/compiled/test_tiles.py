"""Tiles of either height, on any machine: which one kernels use depends on its registers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from forestmix.engines.compiled import tiles


@pytest.mark.parametrize(("height", "tile"), [(4, tiles._four), (8, tiles._eight)])
@pytest.mark.parametrize("first", [0, 3, 9, 11])
def test_rows_past_the_end_are_the_last_one(height, tile, first):
    W, last = np.arange(60.0).reshape(12, 5), 11
    rows = tile(W, first, last)
    np.testing.assert_array_equal(rows, W[np.minimum(first + np.arange(height), last - 1)])


def test_kernels_for_a_machine_with_narrow_registers():
    """The conformance of passes over a dense W, in a process whose kernels are compiled without wide registers."""
    tests = Path(__file__).parents[2]
    chosen = "compiled and dense and not batch and not missing and float64 and (gaussian or bernoulli)"
    code = "from forestmix.engines.compiled.tiles import ROWS; assert ROWS == 4"
    environment = os.environ | {"NUMBA_ENABLE_AVX": "0"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", chosen,
         str(tests / "engines" / "test_conformance.py")],
        env=environment, cwd=tests.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
