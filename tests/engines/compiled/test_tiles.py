"""Tiles of either height, on any machine: which one kernels use depends on its registers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from forestmix.engines.compiled import tiles
from forestmix.engines.compiled.compiling import njit


@njit(cache=True)
def dot(W, first, last, vectors, products):
    tiles.dot_one(W, (first, last, 1, 4), 0, vectors, products, 2)


@njit(cache=True)
def add(W, first, last, factors, sums):
    tiles.add_one(W, (first, last, 1, 4), 0, factors, 2, sums)


@pytest.mark.parametrize("first", [0, 3, 9, 10])
def test_rows_past_the_end_are_the_last_one(first):
    W, last = np.arange(60.0).reshape(12, 5), 11
    rows = W[np.minimum(first + np.arange(tiles.ROWS), last - 1), 1:4]
    vectors, products = np.array([[1.0, 2.0, 3.0]]), np.zeros((1, 2 + tiles.ROWS))
    dot(W, first, last, vectors, products)
    np.testing.assert_array_equal(products[0], [0, 0, *rows @ vectors[0]])
    factors, sums = np.arange(2.0 + tiles.ROWS)[np.newaxis], np.ones((1, 3))
    add(W, first, last, factors, sums)
    np.testing.assert_array_equal(sums[0], 1 + factors[0, 2:] @ rows)


def test_kernels_for_a_machine_with_narrow_registers():
    """The conformance of passes over a dense W, in a process whose kernels are compiled without wide registers."""
    tests = Path(__file__).parents[2]
    chosen = "compiled and dense and not batch and not missing and float64 and gaussian"
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
