"""Tables that are read in chunks: frames of Dask, folders of Parquet files, and lists of delayed frames."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forestmix.errors import ArgumentError, optional
from forestmix.weights.dask_chunks import is_dask

#: Rows of a Parquet file that are read at a time where its own groups of rows are not known.
ROWS_AT_A_TIME = 2**18


@dataclass(frozen=True)
class TableChunks:
    """A table in chunks: the names of its columns, and delayed frames of the columns that are asked for."""

    columns: list[str]
    delayed: Callable[[list[str]], list[Any]]


def table_chunks(data: Any, argument: str = "data") -> TableChunks | None:
    """Return a table that is read in chunks, or ``None`` for one in memory."""
    if isinstance(data, str | os.PathLike):
        return _parquet(Path(data), argument)
    if isinstance(data, list | tuple) and data and all(map(is_dask, data)):
        names = [str(name) for name in data[0].columns.compute()]
        return TableChunks(names, lambda columns: list(data))
    if is_dask(data) and hasattr(data, "to_delayed") and hasattr(data, "columns"):
        return TableChunks([str(name) for name in data.columns], lambda columns: list(data[columns].to_delayed()))
    return None


def _parquet(path: Path, argument: str) -> TableChunks:
    """Return a Parquet file, or all of a folder, read by pyarrow where it is installed, else by polars."""
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise ArgumentError(f"{argument} must be a Parquet file, or a folder with some; got {os.fspath(path)!r}.")
    try:
        import pyarrow.dataset
    except ImportError:
        return _by_polars(files)
    table = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive")
    parts = [part for whole in table.get_fragments() for part in whole.split_by_row_group()]
    return TableChunks(
        list(table.schema.names), lambda columns: [_dask()(_arrow_rows)(one, table.schema, columns) for one in parts]
    )


def _by_polars(files: list[Path]) -> TableChunks:
    polars = optional("polars", "Parquet files need pyarrow or polars: pip install 'forestmix[parquet]'.")
    names = polars.scan_parquet(files[0], hive_partitioning=True).collect_schema().names()
    cuts = []
    for file in files:
        count = polars.scan_parquet(file).select(polars.len()).collect().item()
        cuts += [(file, start) for start in range(0, count, ROWS_AT_A_TIME)]
    return TableChunks(list(names), lambda columns: [_dask()(_polars_rows)(*cut, columns) for cut in cuts])


def _arrow_rows(part: Any, schema: Any, columns: list[str]) -> Any:
    return part.to_table(schema=schema, columns=columns).to_pandas()


def _polars_rows(file: Path, start: int, columns: list[str]) -> Any:
    import polars

    return polars.scan_parquet(file, hive_partitioning=True).select(columns).slice(start, ROWS_AT_A_TIME).collect()


def _dask() -> Any:
    dask = optional("dask", "A table in chunks needs Dask: pip install 'forestmix[dask]'.")
    return dask.delayed
