"""Arrays and tables from files of many kinds. Nothing in a file is ever run: pickled objects are refused."""

from __future__ import annotations

import csv
import os
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

import forestmix as fmx
from forestmix.errors import MissingExtraError, optional

#: What an empty entry of a text file may look like.
MISSING = {"", "na", "nan", "null", "none", "?"}


class Loaded(NamedTuple):
    """An array, dense or sparse, the names of its columns if the file has them, and where it came from."""

    values: Any
    names: list[str] | None
    path: str


@contextmanager
def about(path: str) -> Iterator[None]:
    """Put the name of a file before errors about what it holds."""
    try:
        yield
    except fmx.ArgumentError as error:
        raise fmx.ArgumentError(f"{path}: {error}") from error


def read_array(name: str) -> Loaded:
    """Return the array of a file; ``file.npz:key`` and ``file.nc:key`` choose one of several."""
    path, key = _split(name)
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    with _reading(path, kind, READERS):
        values, names = READERS[kind](path, key)
    return Loaded(_numbers(path, values), names, str(path))


@contextmanager
def _reading(path: Path, kind: str, kinds: Collection[str]) -> Iterator[None]:
    """Raise unless this is a file of one of the kinds, and what a library finds wrong with it as ``ArgumentError``."""
    if not path.is_file():
        raise fmx.ArgumentError(f"{path} is no file that can be read.")
    if kind not in kinds:
        raise fmx.ArgumentError(f"{path} must be of one of the kinds {', '.join(kinds)}; it ends with {kind!r}.")
    try:
        yield
    except fmx.ForestmixError:
        raise
    except Exception as error:  # libraries that read files raise errors of every kind
        raise fmx.ArgumentError(f"{path} cannot be read as {kind}: {error}") from error


def dense(values: Any) -> Any:
    """Return an array that may be sparse as a dense one."""
    return np.asarray(values if isinstance(values, np.ndarray) else values.toarray())


def _split(name: str) -> tuple[Path, str | None]:
    """Return path and key; a file whose own name has a colon is found first."""
    path, colon, key = name.rpartition(":")
    if Path(name).exists() or not colon or not Path(path).exists():
        return Path(name), None
    return Path(path), key


def _numbers(path: Path, values: Any) -> Any:
    """Return the array as it is, once it is known to hold real numbers in one or two dimensions."""
    if not scipy.sparse.issparse(values):
        values = np.asanyarray(values)
    if values.dtype.kind not in "biuf":
        raise fmx.ArgumentError(f"{path} must hold real numbers; it has {values.dtype}.")
    if values.ndim not in (1, 2) or 0 in values.shape:
        raise fmx.ArgumentError(
            f"{path} must hold a vector or a matrix that is not empty; its shape is {values.shape}."
        )
    return values


def _npy(path: Path, key: str | None) -> tuple[Any, None]:
    # A map of the file allocates nothing, holds no Python objects, and is refused where the file is cut off.
    return np.lib.format.open_memmap(path, mode="r"), None


def _npz(path: Path, key: str | None) -> tuple[Any, None]:
    with zipfile.ZipFile(path) as archive:
        _check_memory(path, sum(member.file_size for member in archive.infolist()))
    with np.load(path, allow_pickle=False) as archive:
        if {"format", "shape", "data"} <= set(archive.files):
            return scipy.sparse.csr_array(scipy.sparse.load_npz(path)), None
        return archive[_choose(path, key, archive.files)], None


def _check_memory(path: Path, size: int) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**36
    if size > memory:
        raise fmx.ArgumentError(
            f"{path} declares {size / 1e9:,.0f} GB, more than the {memory / 1e9:,.0f} GB of memory."
        )


def _choose(path: Path, key: str | None, known: list[str]) -> str:
    """Return which of several arrays is meant."""
    if key is None and len(known) == 1:
        return known[0]
    if key not in known:
        shown = ", ".join(known[:8]) or "none"
        raise fmx.ArgumentError(f"{path} has the arrays {shown}; say which by {path}:NAME.")
    return key


def _mtx(path: Path, key: str | None) -> tuple[Any, None]:
    found = scipy.io.mmread(path)
    return (scipy.sparse.csr_array(found) if scipy.sparse.issparse(found) else found), None


def _csv(path: Path, key: str | None, comma: str = ",") -> tuple[Any, list[str] | None]:
    """Read numbers; a first line with anything else has the names of the columns."""
    with open(path, newline="", encoding="utf-8-sig") as stream:
        lines = [row for row in csv.reader(stream, delimiter=comma) if row]
    if not lines:
        raise fmx.ArgumentError(f"{path} is empty.")
    names = None if all(map(_is_number, lines[0])) else [cell.strip() for cell in lines[0]]
    body, first = (lines, 1) if names is None else (lines[1:], 2)
    for number, row in enumerate(body, first):
        if len(row) != len(lines[0]):
            raise fmx.ArgumentError(f"{path} has {len(row)} entries in line {number}, and {len(lines[0])} in line 1.")
        wrong = next((cell for cell in row if not _is_number(cell)), None)
        if wrong is not None:
            raise fmx.ArgumentError(f"{path} has {wrong[:40]!r} in line {number}, which is no number.")
    values = [[np.nan if cell.strip().lower() in MISSING else float(cell) for cell in row] for row in body]
    array = np.array(values).reshape(len(body), len(lines[0]))
    return (array[:, 0] if array.shape[1] == 1 else array), names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.strip().lower() in MISSING
    return True


def _parquet(path: Path, key: str | None) -> tuple[Any, list[str]]:
    frame = read_parquet(path)
    array = frame.to_numpy()
    return (array[:, 0] if array.shape[1] == 1 else array), [str(name) for name in frame.columns]


def read_parquet(path: Path) -> Any:
    """Return a frame of polars or of pandas, whichever can read the file here."""
    try:
        import polars

        return polars.read_parquet(path)
    except ImportError:
        pass
    try:
        import pandas

        return pandas.read_parquet(path)
    except ImportError as error:
        raise MissingExtraError(f"{path}: parquet files need polars or pyarrow: pip install polars.") from error


def _netcdf(path: Path, key: str | None) -> tuple[Any, None]:
    with _dataset(path, decode_times=False) as dataset:
        chosen = dataset[_choose(path, key, [str(name) for name in dataset.data_vars])]
        _check_memory(path, chosen.nbytes)
        return chosen.values, None


def _dataset(path: Path, **options: Any) -> Any:
    """Return a NetCDF file opened by xarray."""
    return _xarray(f"{path}: NetCDF files need").open_dataset(path, engine="h5netcdf", **options)


def _xarray(needs: str) -> Any:
    """Return the library that reads and writes NetCDF files, or say what needs it."""
    _, xarray = (optional(name, f"{needs} {name}: pip install 'forestmix[io]'.") for name in ("h5netcdf", "xarray"))
    return xarray


READERS: dict[str, Callable[[Path, str | None], tuple[Any, list[str] | None]]] = {
    "npy": _npy,
    "npz": _npz,
    "mtx": _mtx,
    "csv": _csv,
    "tsv": lambda path, key: _csv(path, key, "\t"),
    "parquet": _parquet,
    "nc": _netcdf,
}


#: Kinds of files with tables.
KINDS = ("csv", "tsv", "parquet", "nc")


def read_table(path: Path) -> Any:
    """Return the table in a file, as a frame of pandas or polars."""
    kind = path.suffix.lower().removeprefix(".")
    with _reading(path, kind, KINDS):
        frame = _frame(path, kind)
    if not len(frame):
        raise fmx.ArgumentError(f"{path} must have at least one row; it has the columns alone.")
    return frame


def _frame(path: Path, kind: str) -> Any:
    if kind == "parquet":
        return read_parquet(path)
    pandas = optional("pandas", "Tables need pandas: pip install 'forestmix[regression]'")
    if kind == "nc":
        with _dataset(path) as dataset:
            return dataset.to_dataframe().reset_index()
    return pandas.read_csv(path, sep="\t" if kind == "tsv" else ",")


def check_out(out: Path | None, *, files: bool = True) -> None:
    """Raise before the work, which would be lost, where its result could not be written.

    ``files``: whether the result is a NetCDF file, which needs libraries of an extra.
    """
    if out is None:
        return
    if out.is_dir() or not out.parent.is_dir():
        why = "it is a folder" if out.is_dir() else f"there is no folder {out.parent}"
        raise fmx.ArgumentError(f"--out must be a file in a folder that exists; got {str(out)!r}, and {why}.")
    if files:
        _xarray("--out needs")
