"""The cache: one archive of plain arrays for each fetched data set, written whole or not at all, and checked."""

from __future__ import annotations

import enum
import hashlib
import os
import re
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pooch

from forestmix.data.formats import ARRAY_NAMES, Arrays, BoundedReads, Bytes
from forestmix.data.registry import DATASETS, Dataset, RemoteFile, find_dataset
from forestmix.data.sources import read_source
from forestmix.errors import ArgumentError, ForestmixError

ENVIRONMENT_VARIABLE = "FORESTMIX_DATA"

# The larger data set takes 184 MB. A file far above that is damaged, or meant to exhaust memory.
LARGEST_ARCHIVE = 256 * 1024 * 1024
# A directory of four members has some hundred bytes; arrays are read in parts of this size.
LARGEST_READ = 1024 * 1024
# What np.savez writes before an array of bytes. NumPy's own reader would take what else may stand there.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '\|u1', 'fortran_order': False, 'shape': \(([\d, ]+)\), \} *\n", re.DOTALL
)


def cache_directory() -> Path:
    """Return the directory of fetched data: ``$FORESTMIX_DATA``, or else the user's cache."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(os.path.expanduser(chosen)) if chosen else Path(pooch.os_cache("forestmix"))


def cache_path(name: str) -> Path:
    """Return where the data set called ``name`` is, or would be, stored."""
    return cache_directory() / f"{name}.npz"


def checksum(arrays: Mapping[str, Bytes]) -> str:
    """Return the SHA-256 of the arrays' names, types, shapes and bytes, whatever file they came from."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def make_cache_directory() -> Path:
    """Create the cache directory if need be, and return it."""
    directory = cache_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(directory, error) from error
    return directory


def write_arrays(path: Path, arrays: Mapping[str, Bytes]) -> None:
    """Write the arrays beside ``path``, then move them there in one step: nobody ever sees half a file."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    contents: dict[str, Any] = dict(arrays)
    try:
        with partial.open("xb") as file:
            np.savez(file, **contents)
        os.replace(partial, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        partial.unlink(missing_ok=True)  # gone already, unless something went wrong


def read_arrays(path: Path, names: Sequence[str]) -> Arrays:
    """Return the named arrays of an archive as ``write_arrays`` makes it. Nothing is unpickled or evaluated.

    Each array's own CRC is checked on the way. The arrays never take more memory than the file is long.
    """
    try:
        size = path.stat().st_size
        if not path.is_file() or size > LARGEST_ARCHIVE:
            raise ForestmixError(f"it is not a file of at most {LARGEST_ARCHIVE} bytes")
        with path.open("rb") as file:
            return _read_archive(BoundedReads(file, LARGEST_READ), size, names)
    except Exception as error:  # zipfile believes what it reads, and fails in a dozen ways
        raise ForestmixError(f"{path} is damaged and cannot be read: {error}") from error


def _read_archive(file: Any, size: int, names: Sequence[str]) -> Arrays:
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.getinfo(f"{name}.npy") for name in names}
        if sum(member.file_size for member in members.values()) > size:
            raise ForestmixError("its arrays are longer than the file")
        return {name: _read_array(archive, member) for name, member in members.items()}


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Bytes:
    if member.compress_type != zipfile.ZIP_STORED:
        raise ForestmixError(f"{member.filename} is compressed")
    content = bytearray()
    with archive.open(member) as stream:
        while part := stream.read(LARGEST_READ):
            content += part
    header = _HEADER.match(content)
    if header is None:
        raise ForestmixError(f"{member.filename} is not an array of bytes")
    shape = [int(length) for length in header[1].split(b",") if length.strip()]
    return np.frombuffer(content, np.uint8, offset=header.end()).reshape(shape)


def cannot_write(path: Path, error: OSError) -> ForestmixError:
    """Return the error for a place in the cache that cannot be written."""
    return ForestmixError(
        f"cannot write to {path}: {error}. Set the environment variable {ENVIRONMENT_VARIABLE} to a "
        "directory with room that you may write to."
    )


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
    elif not isinstance(source, str | os.PathLike):
        raise ArgumentError(f"source must be the path of a directory or a tarball, or None; got {source!r}.")
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
