"""A line at the end of a file that says what it is and that it is whole, read before anything else.

The line has a number of the format and the SHA-256 of all bytes before it and of that number. HDF5 ignores what stands
behind its data, so other programs read the file as they read any NetCDF file. A file that was cut, changed or made by
another program never gets as far as the HDF5 library, which is not safe from such files.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import BinaryIO

from forestmix.errors import ForestmixError

#: The format that this version writes; it reads this one and those before it.
FORMAT = 1
_LINE = re.compile(rb"\nforestmix (\d{4}) sha256:([0-9a-f]{64})\n")
_LENGTH = len("\nforestmix 0001 sha256:\n") + 64
_CHUNK = 2**20
_STARTS = {
    b"\x80": "a pickle, which is never loaded since it can run code",
    b"PK": "a zip archive, such as NumPy's npz",
    b"\x93NUMPY": "an array of NumPy (npy)",
    b"CDF": "a NetCDF file of another program",
}
_HDF5 = b"\x89HDF\r\n\x1a\n"


class FileError(ForestmixError):
    """A file cannot be read as one of forestmix."""


def seal(file: BinaryIO) -> None:
    """Write the line behind what the file has, which must be open for reading and writing."""
    number = f"{FORMAT:04d}".encode()
    size = file.seek(0, 2)
    line = b"\nforestmix " + number + b" sha256:" + _digest(file, size, number) + b"\n"
    file.seek(0, 2)
    file.write(line)


def check_seal(file: BinaryIO, path: Path) -> None:
    """Raise unless the file ends in a line that is right for what stands before it."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _LENGTH))
    found = _LINE.fullmatch(file.read(_LENGTH))
    if found is None:
        raise FileError(f"{path} is not a whole file of forestmix: {_what_it_is(file)}.")
    number, digest = found.groups()
    if _digest(file, size - _LENGTH, number) != digest:
        raise FileError(
            f"{path} was damaged or changed after forestmix wrote it: its checksum does not fit its contents. Use a "
            "copy, or save it again."
        )
    if int(number) > FORMAT:
        raise FileError(
            f"{path} has format {int(number)}, from a newer version of forestmix; this one reads up to {FORMAT}. "
            "Upgrade forestmix: pip install --upgrade forestmix."
        )


def _digest(file: BinaryIO, size: int, number: bytes) -> bytes:
    """Return the checksum of the first ``size`` bytes and of the number of the format, a chunk at a time."""
    hashed, left = hashlib.sha256(number), size
    file.seek(0)
    while left > 0:
        chunk = file.read(min(_CHUNK, left))
        if not chunk:
            break
        hashed.update(chunk)
        left -= len(chunk)
    return hashed.hexdigest().encode()


def _what_it_is(file: BinaryIO) -> str:
    file.seek(0)
    start = file.read(8)
    if not start:
        return "it is empty"
    if start == _HDF5:
        return "it is an HDF5 or NetCDF file that was cut off, or was made or changed by another program"
    known = [text for first, text in _STARTS.items() if start.startswith(first)]
    return f"it is {known[0]}" if known else "it has neither the beginning nor the end of one"
