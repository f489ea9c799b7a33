"""The cache: one archive of plain arrays for each fetched data set, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import uuid
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pooch

from forestmix.data.formats import Bytes
from forestmix.data.layouts import Arrays
from forestmix.errors import ForestmixError

ENVIRONMENT_VARIABLE = "FORESTMIX_DATA"


def cache_directory() -> Path:
    """Return the directory of fetched data: ``$FORESTMIX_DATA``, or else the user's cache."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(pooch.os_cache("forestmix"))


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
    """Return the named arrays of an archive, refusing pickles. Each array's own CRC is checked on the way."""
    try:
        # Opened here because np.load, given a path, leaves the file of a damaged archive open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ForestmixError(f"{path} is damaged and cannot be read: {error}") from error


def cannot_write(path: Path, error: OSError) -> ForestmixError:
    """Return the error for a place in the cache that cannot be written."""
    return ForestmixError(
        f"cannot write to {path}: {error}. Set the environment variable {ENVIRONMENT_VARIABLE} to a "
        "directory with room that you may write to."
    )
