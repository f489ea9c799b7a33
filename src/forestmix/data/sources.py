"""Reading a data set from files on this machine: a directory, or certain members of a tarball."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from forestmix.data.formats import FOLDERS, LARGEST_MEMBER, Arrays, damaged
from forestmix.data.registry import Dataset
from forestmix.errors import ArgumentError, ForestmixError

# Of a tarball, unpacked. Those of either data set have less than half of the bytes, and some dozen members.
LARGEST_TARBALL, MOST_MEMBERS = 512 * 1024 * 1024, 1000


class BoundedReads:
    """A file that is never read by more than ``largest`` bytes at once, whatever the lengths in it say."""

    def __init__(self, file: Any, largest: int) -> None:
        self.file, self.largest = file, largest

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes, or all that are left, if they are not too many."""
        content: bytes = self.file.read(self.largest + 1 if size < 0 else min(size, self.largest + 1))
        if len(content) > self.largest:
            raise OSError(f"a part of it has more than {self.largest} bytes")
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def read_source(dataset: Dataset, source: Path) -> Arrays:
    """Return the arrays of ``dataset`` from a directory or tarball, whichever layout it holds."""
    if not source.exists():
        raise ArgumentError(f"source must be a directory or a tarball that exists; got {str(source)!r}")
    candidates = [source]
    if source.is_dir():
        candidates += [path for name in dataset.archives if (path := source / name).is_file()]
    wanted = {name for layout in dataset.layouts for name in layout.members}
    seen: set[str] = set()
    for candidate in candidates:
        members = (_read_directory if candidate.is_dir() else _read_tarball)(candidate, wanted)
        for layout in dataset.layouts:
            if members.keys() >= set(layout.members):
                return layout.decode(members)
        seen |= members.keys()
    choices = "; or ".join(f"{layout.title} ({', '.join(layout.members)})" for layout in dataset.layouts)
    found = ", ".join(sorted(seen)) or "none of them"
    message = f"source must hold a complete copy of {dataset.name}: {choices}. {str(source)!r} holds {found}."
    raise ArgumentError(f"{message} {dataset.advice}".rstrip())


def _read_directory(directory: Path, wanted: Collection[str]) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    for name in wanted:
        path = next((path for folder in FOLDERS if (path := directory / f"{folder}{name}").is_file()), None)
        if path is None:
            continue
        _check_size(name, path.stat().st_size)
        try:
            members[name] = path.read_bytes()
        except OSError as error:
            raise ForestmixError(f"cannot read {path}: {error}") from error
    return members


def _read_tarball(tarball: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """Read in one pass, into memory: nothing is extracted, so no member's name can reach the file system."""
    try:
        with gzip.open(tarball) as unpacked:
            bounded: Any = BoundedReads(unpacked, LARGEST_MEMBER)
            with tarfile.open(fileobj=bounded, mode="r:") as archive:
                return _read_archive(archive, wanted)
    except ForestmixError:
        raise
    except Exception as error:  # tarfile believes what it reads, and fails in a dozen ways
        raise damaged(str(tarball), str(error), "a complete compressed tarball (.tgz or .tar.gz)") from error


def _read_archive(archive: tarfile.TarFile, wanted: Collection[str]) -> dict[str, bytes]:
    places = {f"{folder}{name}": name for folder in FOLDERS for name in wanted}
    members: dict[str, bytes] = {}
    for number, member in enumerate(archive):
        _check_size(member.name, member.size)
        if number >= MOST_MEMBERS or member.offset_data + member.size > LARGEST_TARBALL:
            found = f"{member.offset_data + member.size} bytes and {number + 1} members up to its end"
            raise damaged(member.name, found, f"at most {LARGEST_TARBALL} and {MOST_MEMBERS} in the whole tarball")
        name = places.get(member.name.removeprefix("./"))
        content = archive.extractfile(member) if name is not None and member.isfile() else None
        if name is not None and content is not None:
            members[name] = content.read()
    return members


def _check_size(name: str, size: int) -> None:
    if not 0 <= size <= LARGEST_MEMBER:
        raise damaged(name, f"it has {size} bytes", f"at most {LARGEST_MEMBER}")
