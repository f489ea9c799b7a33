"""Data: samples that ship with the package, and complete sets that are fetched once and kept in a cache."""

from forestmix.data.cache import DatasetStatus, State, cache_directory, fetch, list_datasets, verify
from forestmix.data.images import (
    Images,
    load_cifar10,
    load_cifar10_kernels,
    load_cifar10_sample,
    load_mnist,
    load_mnist_sample,
    load_table,
)
from forestmix.data.registry import Dataset

__all__ = [
    "Dataset",
    "DatasetStatus",
    "Images",
    "State",
    "cache_directory",
    "fetch",
    "list_datasets",
    "load_cifar10",
    "load_cifar10_kernels",
    "load_cifar10_sample",
    "load_mnist",
    "load_mnist_sample",
    "load_table",
    "verify",
]
