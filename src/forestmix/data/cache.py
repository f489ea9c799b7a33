"""The cache: one file for each fetched data set, which holds the bytes of its arrays and nothing else.

It is written whole or not at all. The registry knows the shapes of the arrays and their checksum, so there is no header
to believe: a file of another length is not read, and one of another content is not used.
"""

from __future__ import annotations

import enum
import hashlib
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pooch

from forestmix.data.formats import ARRAY_NAMES, Arrays, Bytes
from forestmix.data.registry import DATASETS, Dataset, RemoteFile, find_dataset
from forestmix.data.sources import read_source
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.saving import replacing

ENVIRONMENT_VARIABLE = "FORESTMIX_DATA"


def cache_directory() -> Path:
    """Return the directory of fetched data: ``$FORESTMIX_DATA``, or else the user's cache."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(os.path.expanduser(chosen)) if chosen else Path(pooch.os_cache("forestmix"))


def cache_path(name: str) -> Path:
    """Return where the data set called ``name`` is, or would be, stored."""
    return cache_directory() / f"{name}.bin"


def checksum(arrays: Mapping[str, Bytes]) -> str:
    """Return the SHA-256 of the arrays' names, types, shapes and bytes, whatever file they came from."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def write_arrays(path: Path, arrays: Mapping[str, Bytes]) -> None:
    """Write the arrays to a file."""
    with replacing(path) as beside, beside.open("wb") as file:
        for name in ARRAY_NAMES:
            file.write(np.ascontiguousarray(arrays[name]).data)


def read_arrays(dataset: Dataset) -> Arrays:
    """Return the arrays of a data set in the cache, which are those of the registry."""
    path, shapes = cache_path(dataset.name), dataset.shapes
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    try:
        if not path.is_file() or path.stat().st_size != ends[-1]:
            raise ForestmixError(f"it is not a file of {ends[-1]} bytes")
        parts = np.split(np.fromfile(path, np.uint8, count=ends[-1]), ends[:-1])
        arrays = {name: part.reshape(shape) for name, part, shape in zip(ARRAY_NAMES, parts, shapes, strict=True)}
        if checksum(arrays) != dataset.checksum:
            raise ForestmixError("its checksum is wrong")
    except (ForestmixError, OSError, ValueError) as error:  # the last for a file that is cut while it is read
        raise ForestmixError(f"{path} is damaged and cannot be read: {error}") from error
    return arrays


Progress = Callable[[str], None]


class State(enum.Enum):
    """Whether a data set is in the cache, as a sentence for people."""

    ABSENT = "not fetched"
    PRESENT = "fetched, and its checksum is right"
    CORRUPT = "in the cache but damaged: fetch it again"

    @property
    def label(self) -> str:
        """The state in one word, for a table."""
        return self.name.lower()


@dataclass(frozen=True)
class DatasetStatus:
    """A data set, the state of its copy in the cache, and where that copy is or would be."""

    dataset: Dataset
    state: State
    path: Path


def list_datasets() -> list[DatasetStatus]:
    """Return the status of every data set. Reads and checks all that is in the cache."""
    return [verify(name) for name in DATASETS]


def verify(name: str) -> DatasetStatus:
    """Read the copy of a data set in the cache, and compare its arrays with the known checksum."""
    dataset = find_dataset(name)
    path = cache_path(name)
    if not os.path.exists(path):  # which is no error in a folder that may not be read
        return DatasetStatus(dataset, State.ABSENT, path)
    try:
        read_arrays(dataset)
    except ForestmixError:
        return DatasetStatus(dataset, State.CORRUPT, path)
    return DatasetStatus(dataset, State.PRESENT, path)


def fetch(
    name: str, source: str | os.PathLike[str] | None = None, progress: Progress = lambda message: None, bar: Any = False
) -> Path:
    """Put a data set into the cache and return the path of its file there.

    ``source`` is a local directory or tarball to read in place of the network. ``progress`` is called with a
    sentence at each stage; ``bar`` is a progress bar for the bytes of a download, as pooch takes it: an object with
    ``total``, ``update``, ``reset`` and ``close``. A copy that is there already with the right checksum is kept: a new
    one would be the same.
    """
    dataset = find_dataset(name)
    status = verify(name)
    if status.state is State.PRESENT:
        progress(f"{name} is in {status.path} already")
        return status.path
    if not isinstance(source, str | os.PathLike | None):
        raise ArgumentError(f"source must be the path of a directory or a tarball, or None; got {source!r}.")
    arrays, directory = None, status.path.parent
    if source is not None:  # here, since what goes wrong with it has nothing to do with the cache
        progress(f"reading {name} from {source}")
        arrays = read_source(dataset, Path(os.path.expanduser(source)))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if arrays is None:
            arrays = _download(dataset, directory, progress, bar)
        found = checksum(arrays)
        if found != dataset.checksum:
            raise ForestmixError(
                f"the images or labels read for {name} are not the original ones: their SHA-256 is {found}; "
                f"expected {dataset.checksum}. Nothing was stored; get the files again."
            )
        write_arrays(status.path, arrays)
    except OSError as error:
        raise ForestmixError(
            f"cannot write to {directory}: {error}. Set the environment variable {ENVIRONMENT_VARIABLE} to a "
            "directory with room that you may write to."
        ) from error
    progress(f"stored {name} in {status.path}")
    return status.path


def _download(dataset: Dataset, directory: Path, progress: Progress, bar: Any) -> Arrays:
    # Inside the cache, where there must be room anyway, and gone afterwards whether or not all went well.
    with tempfile.TemporaryDirectory(prefix="download-", dir=directory) as temporary:
        for file in dataset.files:
            progress(f"downloading {file.name} ({file.size / 1e6:.1f} MB)")
            _download_file(dataset.name, file, Path(temporary), bar)
        return read_source(dataset, Path(temporary))


def _download_file(name: str, file: RemoteFile, directory: Path, bar: Any) -> None:
    failures = []
    for address in file.addresses:
        try:
            known_hash = f"md5:{file.md5}"
            pooch.retrieve(address, known_hash=known_hash, fname=file.name, path=directory, progressbar=bar)
            return
        except (OSError, ValueError) as error:  # no network; or pooch's word for a wrong hash
            failures.append(f"{address}: {error}")
    raise ForestmixError(
        f"could not download {file.name}. {' '.join(failures)} If you have the files, "
        f"run: forestmix data fetch {name} --from DIRECTORY"
    )
