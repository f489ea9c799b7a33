"""Convolutions against SciPy's correlation, and windows against a loop over placements."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import signal, sparse

from forestmix.weights import Convolution, windows
from support.weights_registry import random_kernels


@pytest.mark.parametrize(("placement", "mode"), [("centred", "same"), ("overlapping", "full")])
@pytest.mark.parametrize("size", [(3, 3), (5, 1), (1, 5), (7, 3)])
def test_adjoint_is_the_correlation(placement, mode, size):
    kernels = random_kernels(4, 3, *size)
    images = np.random.default_rng(0).normal(size=(2, 3, 9, 8))
    weights = Convolution(kernels, (9, 8), placement)
    actual = weights.adjoint(images.reshape(2, -1)).reshape(2, *weights.latent_shape)
    for number, k in np.ndindex(2, 4):
        expected = sum(signal.correlate2d(images[number, c], kernels[k, c], mode=mode) for c in range(3))
        np.testing.assert_allclose(actual[number, k], expected, atol=1e-12)


@pytest.mark.parametrize(("placement", "mode"), [("centred", "same"), ("overlapping", "valid")])
def test_forward_is_the_convolution(placement, mode):
    kernel = random_kernels(3, 5)
    weights = Convolution(kernel, (6, 7), placement)
    latents = np.random.default_rng(1).normal(size=weights.latent_shape)
    expected = signal.convolve2d(latents[0], kernel, mode=mode)
    np.testing.assert_allclose(weights.forward(latents.ravel()), expected.ravel(), atol=1e-12)


def test_shapes():
    weights = Convolution(np.ones((5, 2, 3, 7)), (10, 11))
    assert weights.image_shape == (2, 10, 11)
    assert weights.latent_shape == (5, 10, 11)
    overlapping = Convolution(np.ones((5, 2, 3, 7)), (2, 10, 11), placement="overlapping")
    assert overlapping.latent_shape == (5, 12, 17)
    assert overlapping.shape == (220, 5 * 12 * 17)


def test_a_batch_of_several_chunks():
    weights = Convolution(random_kernels(8, 3, 5, 5), (32, 32))
    latents = np.random.default_rng(2).normal(size=(40, weights.shape[1]))
    together = weights.forward(latents)
    one_by_one = np.stack([weights.forward(y) for y in latents])
    np.testing.assert_allclose(together, one_by_one, atol=1e-11)
    back = weights.adjoint(together)
    np.testing.assert_allclose(back, np.stack([weights.adjoint(r) for r in together]), atol=1e-9)


def test_kernels_are_copied():
    kernels = np.ones((2, 1, 3, 3))
    weights = Convolution(kernels, (4, 4))
    kernels[:] = 7
    assert weights.kernels.max() == 1
    with pytest.raises(ValueError, match="read-only"):
        weights.kernels[0] = 1


def test_a_few_columns_of_a_large_convolution_are_cheap():
    weights = Convolution(np.ones((64, 3, 7, 7), dtype=np.float32), (4000, 4000))
    tracemalloc.start()
    try:
        columns = weights.columns([0, 512_000_123, weights.shape[1] - 1])
        rows = weights.rows([0, weights.shape[0] - 1])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.diff(columns.indptr).tolist() == [3 * 16, 3 * 28, 3 * 16]
    assert np.diff(rows.indptr).tolist() == [64 * 16, 64 * 16]
    assert weights.nnz == 64 * 3 * (7 * 4000 - 12) ** 2
    assert peak < 2_000_000


@pytest.mark.parametrize("shape", [(1, 1), (5, 4), (3, 7)])
@pytest.mark.parametrize("size", [1, 2, 3, 6, (2, 3)])
def test_windows_are_all_placements_that_overlap(shape, size):
    high, wide = size if isinstance(size, tuple) else (size, size)
    pictures = []
    for top in range(-high - 2, shape[0] + 3):
        for left in range(-wide - 2, shape[1] + 3):
            picture = np.zeros(shape)
            picture[max(top, 0) : max(top + high, 0), max(left, 0) : max(left + wide, 0)] = 1
            if picture.any():
                pictures.append(picture.ravel())
    W = windows(shape, size)
    assert isinstance(W, sparse.csr_array)
    np.testing.assert_array_equal(W.toarray(), np.stack(pictures, axis=1))


@pytest.mark.parametrize("placement", ["centred", "overlapping"])
def test_windows_of_one_pixel_are_the_identity(placement):
    np.testing.assert_array_equal(windows((3, 4), 1, placement).toarray(), np.eye(12))


@pytest.mark.parametrize(("size", "columns"), [(1, 784), (3, 900), (7, 1156), (15, 1764)])
def test_counts_of_the_paper(size, columns):
    W = windows((28, 28), size)
    assert W.shape == (784, columns)
    assert W.dtype == np.float64
    assert np.all(np.diff(W.indptr) == size**2)


def test_centred_windows_have_the_counts_of_their_border():
    counts = windows((4, 5), 3, "centred").sum(axis=0).reshape(4, 5)
    np.testing.assert_array_equal(counts, np.outer([2, 3, 3, 2], [2, 3, 3, 3, 2]))


def test_windows_dtype_and_index_type():
    W = windows((30, 20), np.int64(5), dtype="float32")
    assert W.dtype == np.float32
    assert W.indices.dtype == np.int32
    assert W.has_canonical_format
