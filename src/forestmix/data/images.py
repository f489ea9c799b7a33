"""What ships inside the package: images (ATTRIBUTION.md says whose they are) and tables; and loaders of fetched images.

``tools/make_tables.py`` drew the tables from models that it states.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from forestmix.checks import is_number, one_of
from forestmix.data.cache import cache_path, read_arrays
from forestmix.data.registry import find_dataset
from forestmix.errors import ArgumentError, ForestmixError, optional

SPLITS = ("train", "test")
KERNEL_WIDTHS = (3, 5, 7)


@dataclass(frozen=True, eq=False)
class Images:
    """Images with their labels, and where each stands in the complete split it comes from.

    ``images`` is uint8, (count, height, width) in grey or (count, height, width, 3) in colour; ``labels`` is
    uint8 and ``index`` int64, both (count,).
    """

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    index: npt.NDArray[np.int64]


def load_mnist_sample(split: str = "train") -> Images:
    """Return the first 100 images of each digit in a split of MNIST: (1000, 28, 28), in their own order."""
    return _load_sample("mnist_sample.npz", split)


def load_cifar10_sample() -> Images:
    """Return the first 4 test images of each class of CIFAR-10: (40, 32, 32, 3), in their own order."""
    return _load_sample("cifar10_sample.npz", "test")


def load_cifar10_kernels(width: int) -> npt.NDArray[np.float32]:
    """Return the first-layer kernels of a small network trained on CIFAR-10: (kernels, 3, width, width).

    ``width`` is 3, 5 or 7. They are to be correlated with images normalised as cifar10_kernels.md says.
    """
    if not is_number(width) or width not in KERNEL_WIDTHS:
        raise ArgumentError(f"width must be one of {', '.join(map(str, KERNEL_WIDTHS))}; got {width!r}")
    return _load_array("cifar10_kernels.npz", f"k{int(width)}")


def load_mnist(split: str = "train") -> Images:
    """Return all 60,000 training or 10,000 test images of MNIST, (count, 28, 28); fetch them first."""
    return _load_fetched("mnist", split)


def load_cifar10(split: str = "train") -> Images:
    """Return all 50,000 training or 10,000 test images of CIFAR-10, (count, 32, 32, 3); fetch them first."""
    return _load_fetched("cifar10", split)


def _load_sample(file: str, split: str) -> Images:
    one_of("split", split, SPLITS)
    images, labels, index = (_load_array(file, f"{split}_{part}") for part in ("images", "labels", "index"))
    return Images(images, labels, index.astype(np.int64))


def _load_array(file: str, name: str) -> npt.NDArray:
    path = resources.files("forestmix.data") / file
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        return archive[name]


def _load_fetched(name: str, split: str) -> Images:
    one_of("split", split, SPLITS)
    path = cache_path(name)
    if not os.path.exists(path):
        raise ForestmixError(f"{name} has not been fetched: {path} does not exist. Run: forestmix data fetch {name}")
    try:
        arrays = read_arrays(find_dataset(name))
    except ForestmixError as error:
        raise ForestmixError(f"{error}. Run: forestmix data fetch {name}") from error
    images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    return Images(images, labels, np.arange(len(labels), dtype=np.int64))


TABLES = ("clinic", "schools", "seeds")


def load_table(name: str) -> Any:
    """Return a table as a pandas frame.

    "clinic": doctor visits of 150 people in several years (counts, an exposure, a group, some missing ages);
    "schools": marks of pupils in classes in schools (a measurement, nested groups); "seeds": seeds that germinated in
    pots on benches (successes out of trials, a group).
    """
    one_of("name", name, TABLES)
    pandas = optional("pandas", "load_table needs pandas: pip install 'forestmix[regression]'")
    with (resources.files("forestmix.data") / "tables" / f"{name}.csv").open("rb") as stream:
        return pandas.read_csv(stream)
