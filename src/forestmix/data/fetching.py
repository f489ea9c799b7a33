"""Fetching data sets into the cache, and checking what is there."""

from __future__ import annotations

import enum
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pooch

from forestmix.data.cache import cache_path, cannot_write, checksum, make_cache_directory, read_arrays, write_arrays
from forestmix.data.formats import ARRAY_NAMES, Arrays
from forestmix.data.registry import DATASETS, Dataset, RemoteFile, find_dataset
from forestmix.data.sources import read_source
from forestmix.errors import ForestmixError

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
        right = checksum(read_arrays(path, ARRAY_NAMES)) == dataset.checksum
    except ForestmixError:
        right = False
    return DatasetStatus(dataset, State.PRESENT if right else State.CORRUPT, path)


def fetch(
    name: str, source: str | os.PathLike[str] | None = None, progress: Progress = lambda message: None, bar: Any = False
) -> Path:
    """Put a data set into the cache and return the path of its archive there.

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
    directory = make_cache_directory()
    if source is None:
        arrays = _download(dataset, directory, progress, bar)
    else:
        progress(f"reading {name} from {source}")
        arrays = read_source(dataset, Path(os.path.expanduser(source)))
    found = checksum(arrays)
    if found != dataset.checksum:
        raise ForestmixError(
            f"the images or labels read for {name} are not the original ones: their SHA-256 is {found}; "
            f"expected {dataset.checksum}. Nothing was stored; get the files again."
        )
    write_arrays(status.path, arrays)
    progress(f"stored {name} in {status.path}")
    return status.path


def _download(dataset: Dataset, directory: Path, progress: Progress, bar: Any) -> Arrays:
    # Inside the cache, where there must be room anyway, and gone afterwards whether or not all went well.
    try:
        with tempfile.TemporaryDirectory(prefix="download-", dir=directory) as temporary:
            for file in dataset.files:
                progress(f"downloading {file.name} ({file.size / 1e6:.1f} MB)")
                _download_file(dataset.name, file, Path(temporary), bar)
            return read_source(dataset, Path(temporary))
    except OSError as error:
        raise cannot_write(directory, error) from error


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
