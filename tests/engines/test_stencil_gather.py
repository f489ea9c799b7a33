"""Products with a convolution as compiled sums over taps: in bands, in groups of channels, and on threads."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forestmix.engines.compiled import convolution as kernel
from forestmix.engines.compiled import threaded
from forestmix.weights import Convolution
from support.weights_registry import WEIGHTS, random_kernels
from support.weights_registry import convolution as placed

CASES = {name: factory for name, factory in WEIGHTS.items() if name.startswith("convolution")} | {
    "several bands": lambda: placed(2, 5, 3, image=(30, 4)),
    "several bands, float32": lambda: placed(3, 2, 3, 3, image=(2, 11, 9), dtype=np.float32),
    "several groups of channels": lambda: placed(9, 5, 3, 3, image=(5, 4, 6)),
    "several groups, overlapping": lambda: placed(6, 5, 4, 2, image=(5, 6, 3), placement="overlapping"),
}


def gathered(weights, forward, parts, count=1):
    """Return the products of W (or W^T), |W| and W∘W with three batches, on so many threads."""
    stencil = weights.storage().turned() if forward else weights.storage()
    kernels, source, target, shifts = stencil
    taps = kernel.make_taps(kernels, target[1:], shifts)
    sources = tuple(np.ascontiguousarray(part).reshape(len(part), *source) for part in parts)
    results = tuple(np.empty((len(images), *target), weights.dtype) for images in sources)
    for own in zip(taps.values, sources, results, strict=True):
        cuts = threaded.even_cuts(len(own[1]) * taps.bands * taps.groups, count)
        threaded.over_ranges(kernel.gather, cuts, taps, *own)
    return [result.reshape(len(result), math.prod(target)) for result in results]


def batch(weights, count, axis, seed):
    return np.random.default_rng(seed).normal(size=(count, weights.shape[axis])).astype(weights.dtype)


@pytest.mark.parametrize("counts", [(3, 3, 3), (2, 1, 0), (0, 1, 4)])
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_three_products_at_once(name, forward, counts, monkeypatch):
    monkeypatch.setattr(kernel, "BAND", 40)
    weights, matrix = CASES[name]()
    matrix = matrix.T if forward else matrix
    parts = [batch(weights, count, 1 if forward else 0, seed) for seed, count in enumerate(counts)]
    entries = (matrix, np.abs(matrix), np.square(matrix))
    for threads in (1, 3):
        for result, part, own in zip(gathered(weights, forward, parts, threads), parts, entries, strict=True):
            part, own = part.astype(np.float64), own.astype(np.float64)
            size = np.abs(part) @ np.abs(own)
            limit = 4 * len(own) ** 0.5 * np.finfo(weights.dtype).eps * size
            assert result.shape == size.shape
            assert np.all(np.abs(result - part @ own) <= limit)


def test_numbers_do_not_depend_on_threads():
    weights = Convolution(random_kernels(5, 3, 5, 7), (3, 90, 70))
    values = batch(weights, 2, 1, 0)
    results = [gathered(weights, True, (values, np.abs(values[:1]), values), count) for count in (1, 2, 3)]
    for other in results[1:]:
        for first, second in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(first, second)


def test_a_bad_value_reaches_only_the_results_it_enters():
    weights, matrix = placed(2, 3, 3, image=(9, 8))
    values = np.ones((2, weights.shape[1]))
    values[1, 20] = np.nan
    touched = np.isnan(gathered(weights, True, (values, values[:0], values[:0]))[0])
    np.testing.assert_array_equal(touched, [np.zeros(len(matrix), bool), matrix[:, 20] != 0])
