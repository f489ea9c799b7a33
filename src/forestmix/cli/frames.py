"""Tables from files, and results to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import forestmix as fmx
from forestmix.cli.arrays import read_parquet
from forestmix.errors import MissingExtraError

#: Kinds of files with tables.
KINDS = ("csv", "tsv", "parquet", "nc")


def read_table(path: Path) -> Any:
    """Return the table in a file, as a frame of pandas or polars."""
    kind = path.suffix.lower().removeprefix(".")
    if not path.is_file():
        raise fmx.ArgumentError(f"{path} is no file that can be read.")
    if kind not in KINDS:
        raise fmx.ArgumentError(f"{path} must be of one of the kinds {', '.join(KINDS)}; it ends with {kind!r}.")
    try:
        frame = _read(path, kind)
    except fmx.ForestmixError:
        raise
    except Exception as error:  # libraries that read files raise errors of every kind
        raise fmx.ArgumentError(f"{path} cannot be read as {kind}: {error}") from error
    if not len(frame):
        raise fmx.ArgumentError(f"{path} must have at least one row; it has the columns alone.")
    return frame


def _read(path: Path, kind: str) -> Any:
    if kind == "parquet":
        return read_parquet(path)
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("Tables need pandas: pip install 'forestmix[regression]'") from error
    if kind == "nc":
        import xarray

        with xarray.open_dataset(path, engine="h5netcdf") as dataset:
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
        try:
            import h5netcdf  # noqa: F401
            import xarray  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f"--out needs {error.name}: pip install 'forestmix[io]'") from error
