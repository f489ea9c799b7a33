"""A tree and its arrays as one NetCDF-4 file, by xarray and h5netcdf.

The tree is JSON in the variable ``structure``; each array is a variable of its own, with a ``long_name`` that says what
it is. Nothing is compressed, so the variables together are never larger than the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ForestmixError, optional
from forestmix.files.meanings import long_name
from forestmix.files.seal import FileError, check_seal, seal
from forestmix.saving import replacing

STRUCTURE = "structure"


def xarray_library() -> Any:
    """Return xarray, once it is known that it can write NetCDF-4."""
    _, _, xarray = (
        optional(name, f"Files need {name}: pip install 'forestmix[io]'") for name in ("h5netcdf", "h5py", "xarray")
    )
    return xarray


def write_file(path: Path, tree: Any, arrays: Mapping[str, Array], attributes: Mapping[str, Any]) -> None:
    """Write a file that is either whole or not there; one that stands at ``path`` is replaced in one step."""
    dataset = _dataset(tree, arrays, attributes)
    plain = {name: {"_FillValue": None} for name in arrays}
    try:
        with replacing(path) as beside:
            dataset.to_netcdf(beside, engine="h5netcdf", format="NETCDF4", encoding=plain)
            with beside.open("r+b") as file:
                seal(file)
        _sync_folder(path.parent)
    except OSError as error:
        raise ForestmixError(f"{path} cannot be written: {error.strerror or error}.") from error


@contextmanager
def open_file(path: Path) -> Iterator[tuple[Any, Callable[[str], Array], dict[str, Any]]]:
    """Yield the tree of a file that is known to be whole, what gives its arrays by name, and its attributes."""
    xarray = xarray_library()
    try:
        opened = path.open("rb")
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    # What is read from it stays the same if another one takes its place meanwhile.
    with opened as file:
        check_seal(file, path)
        size = file.seek(0, 2)
        file.seek(0)
        try:
            dataset = xarray.open_dataset(file, engine="h5netcdf", decode_cf=False, cache=False)
        except Exception as error:
            raise FileError(f"{path} cannot be read as NetCDF-4: {error}.") from error
        with dataset:
            if sum(int(variable.nbytes) for variable in dataset.variables.values()) > size:
                raise FileError(f"{path} declares arrays that are larger than the file.")
            text = np.asarray(dataset[STRUCTURE].values).tobytes() if STRUCTURE in dataset else b""
            yield _parsed(path, text), lambda name: np.asarray(dataset[name].values), dict(dataset.attrs)


def _parsed(path: Path, text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} has no readable description of its contents.") from error


def _dataset(tree: Any, arrays: Mapping[str, Array], attributes: Mapping[str, Any]) -> Any:
    xarray = xarray_library()
    variables = {}
    for name, array in arrays.items():
        plain = array.astype(np.int8) if array.dtype == bool else array
        plain = np.ascontiguousarray(plain, plain.dtype.newbyteorder("="))
        dimensions = [f"axis_of_{length}" for length in plain.shape]
        # Not every program reads a variable that has one dimension twice.
        dimensions = [f"{one}_{k}" if dimensions.count(one) > 1 else one for k, one in enumerate(dimensions)]
        variables[name] = (dimensions, plain, {"long_name": long_name(name)})
    text = np.frombuffer(json.dumps(tree, separators=(",", ":")).encode(), "S1")
    variables[STRUCTURE] = (["characters"], text, {"long_name": "how the arrays make up the object, as JSON"})
    return xarray.Dataset(variables, attrs=dict(attributes))


def _sync_folder(folder: Path) -> None:
    """Have the new name written to disk too, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
