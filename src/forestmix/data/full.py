"""Loaders of the complete data sets, once they have been fetched."""

from __future__ import annotations

import os

import numpy as np

from forestmix.data.cache import cache_path, read_arrays
from forestmix.data.images import Images, check_split
from forestmix.errors import ForestmixError


def load_mnist(split: str = "train") -> Images:
    """Return all 60,000 training or 10,000 test images of MNIST, (count, 28, 28); fetch them first."""
    return _load("mnist", split)


def load_cifar10(split: str = "train") -> Images:
    """Return all 50,000 training or 10,000 test images of CIFAR-10, (count, 32, 32, 3); fetch them first."""
    return _load("cifar10", split)


def _load(name: str, split: str) -> Images:
    check_split(split)
    path = cache_path(name)
    if not os.path.exists(path):
        raise ForestmixError(f"{name} has not been fetched: {path} does not exist. Run: forestmix data fetch {name}")
    try:
        arrays = read_arrays(path, (f"{split}_images", f"{split}_labels"))
    except ForestmixError as error:
        raise ForestmixError(f"{error}. Run: forestmix data fetch {name}") from error
    images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    if images.ndim < 3 or labels.shape != images.shape[:1]:
        raise ForestmixError(f"{path} is damaged: its arrays do not fit together. Run: forestmix data fetch {name}")
    return Images(images, labels, np.arange(len(labels), dtype=np.int64))
