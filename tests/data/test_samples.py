from __future__ import annotations

import hashlib

import numpy as np
import pytest

from forestmix.data import load_cifar10_kernels, load_cifar10_sample, load_mnist_sample
from forestmix.errors import ArgumentError


@pytest.mark.parametrize("split", ["train", "test"])
def test_mnist_sample_has_a_hundred_of_each_digit(split):
    sample = load_mnist_sample(split)
    assert sample.images.shape == (1000, 28, 28)
    assert sample.images.dtype == np.uint8
    assert np.bincount(sample.labels).tolist() == [100] * 10
    assert (np.diff(sample.index) > 0).all()
    assert sample.index.dtype == np.int64


def test_mnist_sample_begins_as_mnist_does():
    assert load_mnist_sample().labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert load_mnist_sample("test").labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_cifar10_sample_has_four_of_each_class():
    sample = load_cifar10_sample()
    assert sample.images.shape == (40, 32, 32, 3)
    assert sample.images.dtype == np.uint8
    assert np.bincount(sample.labels).tolist() == [4] * 10
    assert (np.diff(sample.index) > 0).all()
    assert sample.labels[:4].tolist() == [3, 8, 8, 0]


def test_callers_may_change_what_they_load():
    load_mnist_sample().images[:] = 0
    assert load_mnist_sample().images.any()


@pytest.mark.parametrize("width", [3, 5, 7])
def test_kernels(width):
    kernels = load_cifar10_kernels(width)
    assert kernels.dtype == np.float32
    assert kernels.shape == (24, 3, width, width)
    assert np.isfinite(kernels).all()
    # Trained kernels differ from each other and none has died.
    norms = np.sqrt((kernels**2).sum((1, 2, 3)))
    assert norms.min() > 0
    assert len({hashlib.sha256(kernel.tobytes()).digest() for kernel in kernels}) == len(kernels)


@pytest.mark.parametrize("width", [0, 4, 9, "3", np.array([3, 5]), None])
def test_kernels_of_another_width(width):
    with pytest.raises(ArgumentError, match="width must be one of 3, 5, 7; got"):
        load_cifar10_kernels(width)


def test_unknown_split_of_the_sample():
    with pytest.raises(ArgumentError, match=r"split must be one of .* Did you mean 'test'"):
        load_mnist_sample("tests")
