"""Readers of the formats that data sets come in, and the sets of files that each data set is found as.

Bytes in, the same four arrays out. None of the readers unpickles anything.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forestmix.errors import ForestmixError

Bytes = npt.NDArray[np.uint8]

# The largest file of either data set, unpacked, is 47 MB: one far above that is damaged, or meant to exhaust
# memory.
LARGEST_MEMBER = 64 * 1024 * 1024
# Images of a PNG at most: a batch has 10,000. Labels take 150 kB as JSON, and as Python's objects a hundred times that.
LARGEST_BATCH = 10_000
LARGEST_JSON = 1024 * 1024

IDX_UNSIGNED_BYTE = 8
CIFAR_SIDE = 32
CIFAR_PIXELS = CIFAR_SIDE * CIFAR_SIDE
CLASSES = 10
# A PNG begins so, and goes on with width and height; then 8 bits for each of three colours.
PNG_START, PNG_COLOURS = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\x08\x02"


def damaged(name: str, found: str, right: str) -> ForestmixError:
    """Return the error for a file whose content is wrong."""
    return ForestmixError(f"{name} is damaged: {found}; expected {right}. Get the file again.")


def decompress_gzip(data: bytes, name: str) -> bytes:
    """Return the content of a gzip file."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            content = file.read(LARGEST_MEMBER + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(name, str(error), "a complete gzip file") from error
    if len(content) > LARGEST_MEMBER:
        raise damaged(name, f"more than {LARGEST_MEMBER} bytes unpacked", "fewer")
    return content


def parse_idx(data: bytes, name: str, dimensions: int) -> Bytes:
    """Return the array in an IDX file of bytes.

    Such a file is 0, 0, 8, the number of dimensions, the length of each (big-endian uint32), then the bytes.
    """
    magic = bytes([0, 0, IDX_UNSIGNED_BYTE, dimensions])
    header = 4 + 4 * dimensions
    if data[:4] != magic or len(data) < header:
        raise damaged(name, f"it begins with {data[:4].hex() or 'nothing'}", f"an IDX header, {magic.hex()}")
    shape = tuple(int(length) for length in np.frombuffer(data, ">u4", dimensions, offset=4))
    if 0 in shape or len(data) != header + math.prod(shape):
        raise damaged(name, f"it has {len(data)} bytes", f"{header + math.prod(shape)} for the shape {shape}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def parse_cifar_binary(data: bytes, name: str) -> tuple[Bytes, Bytes]:
    """Return images and labels of a CIFAR-10 binary file: records of a label, then three colour planes."""
    record = 1 + 3 * CIFAR_PIXELS
    if not data or len(data) % record:
        raise damaged(name, f"it has {len(data)} bytes", f"whole records of {record}")
    records = np.frombuffer(data, np.uint8).reshape(-1, record)
    planes = records[:, 1:].reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, 0].copy()


def parse_cifar_png(data: bytes, name: str) -> Bytes:
    """Return the images of a PNG that has one image in each row of pixels."""
    import matplotlib.image  # here because it is slow to import and only this one format needs it

    # Before it is unpacked, into as much memory as it asks for.
    if not data.startswith(PNG_START) or data[24:26] != PNG_COLOURS:
        raise damaged(name, f"it begins with {data[:26].hex() or 'nothing'}", "a PNG image in colours of 8 bits")
    width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if width != CIFAR_PIXELS or height > LARGEST_BATCH:
        shape = f"(images, {CIFAR_PIXELS}, 3) with at most {LARGEST_BATCH} images"
        raise damaged(name, f"its shape is {(height, width, 3)}", shape)
    try:
        pixels = matplotlib.image.imread(io.BytesIO(data), format="png")
    except Exception as error:  # Pillow fails in many ways
        raise damaged(name, str(error), "a PNG image") from error
    if pixels.shape != (height, width, 3):
        raise damaged(name, f"its shape is {pixels.shape}", f"{(height, width, 3)} as its header says")
    # imread divides by 255; multiplying and rounding gives back every one of the 256 values exactly.
    values: Bytes = np.rint(pixels * 255).astype(np.uint8)
    return values.reshape(-1, CIFAR_SIDE, CIFAR_SIDE, 3)


def parse_json_labels(data: bytes, name: str) -> Bytes:
    """Return the labels in a JSON list of integers from 0 to 9."""
    if len(data) > LARGEST_JSON:
        raise damaged(name, f"it has {len(data)} bytes", f"at most {LARGEST_JSON}")
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damaged(name, str(error), "a JSON list") from error
    if not isinstance(values, list) or not all(type(value) is int and 0 <= value < CLASSES for value in values):
        raise damaged(name, "it is something else", f"a JSON list of integers from 0 to {CLASSES - 1}")
    return np.array(values, dtype=np.uint8)


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
