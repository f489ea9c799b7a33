"""Loaders of the small arrays that ship inside the package; ATTRIBUTION.md says whose they are."""

from __future__ import annotations

from importlib import resources

import numpy as np
import numpy.typing as npt

from forestmix.data.images import Images, check_split
from forestmix.errors import ArgumentError

KERNEL_WIDTHS = (3, 5, 7)


def load_mnist_sample(split: str = "train") -> Images:
    """Return the first 100 images of each digit in a split of MNIST: (1000, 28, 28), in their own order."""
    check_split(split)
    return _load_images("mnist_sample.npz", split)


def load_cifar10_sample() -> Images:
    """Return the first 4 test images of each class of CIFAR-10: (40, 32, 32, 3), in their own order."""
    return _load_images("cifar10_sample.npz", "test")


def load_cifar10_kernels(width: int) -> npt.NDArray[np.float32]:
    """Return the first-layer kernels of a small network trained on CIFAR-10: (kernels, 3, width, width).

    ``width`` is 3, 5 or 7. They are to be correlated with images normalised as cifar10_kernels.md says.
    """
    if width not in KERNEL_WIDTHS:
        raise ArgumentError(f"width must be one of {', '.join(map(str, KERNEL_WIDTHS))}; got {width!r}")
    return _load_array("cifar10_kernels.npz", f"k{int(width)}")


def _load_images(file: str, split: str) -> Images:
    images, labels, index = (_load_array(file, f"{split}_{part}") for part in ("images", "labels", "index"))
    return Images(images, labels, index.astype(np.int64))


def _load_array(file: str, name: str) -> npt.NDArray:
    path = resources.files("forestmix.data") / file
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        return archive[name]
