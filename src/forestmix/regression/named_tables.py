"""Estimators on tables in chunks: columns are chosen by name, those beside y and the weights are X.

A chunk becomes an array of float64 where it is read. Vectors of rows, y and the weights, are in memory; X never is in
one piece.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError, unknown_name
from forestmix.regression.table_chunks import TableChunks, table_chunks
from forestmix.weights.dask_chunks import is_dask


def is_table(X: Any, y: Any = None) -> bool:
    """Return whether X is a path or a list of delayed frames; or a frame of Dask of which y is named."""
    listed = isinstance(X, list | tuple) and len(X) > 0 and all(map(is_dask, X))
    named = isinstance(y, str) and is_dask(X) and hasattr(X, "columns")
    return isinstance(X, str | os.PathLike) or listed or named


def training_table(X: Any, y: Any, sample_weight: Any) -> tuple[Any, list[str], Array, Array | None]:
    """Return X as a Dask array (n, m), the names of its columns, y and the weights."""
    table = _opened(X)
    for argument, name in (("y", y), ("sample_weight", sample_weight)):
        if not isinstance(name, str) and (argument == "y" or name is not None):
            raise ArgumentError(f"{argument} must be the name of a column of X, a table in chunks; got {name!r:.80}.")
    features = [name for name in table.columns if name not in (y, sample_weight)]
    if not features:
        raise ArgumentError(f"X must have columns beside those of y and sample_weight; it has {table.columns}.")
    vectors, counts = _vectors(table, {"y": y, "sample_weight": sample_weight})
    parts = [
        _dask_array(_numbers(frame, features), (count, len(features)))
        for frame, count in zip(table.delayed(features), counts, strict=True)
        if count
    ]
    if not parts:
        raise ArgumentError("X must have at least one row; the table in chunks has none.")
    import dask.array

    return dask.array.concatenate(parts), features, vectors["y"], vectors.get("sample_weight")


def named_rows(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Return y and the weights as arrays, read from X where they are names of its columns."""
    named = {"y": y, "sample_weight": sample_weight}
    wanted = {argument: name for argument, name in named.items() if isinstance(name, str)}
    if not wanted or not is_table(X, next(iter(wanted.values()))):
        return y, sample_weight
    found = {**named, **_vectors(_opened(X), wanted)[0]}
    return found["y"], found["sample_weight"]


def blocks_of_table(estimator: Any, X: Any) -> list[Any]:
    """Return the columns that an estimator was fitted to as delayed arrays, one for each chunk of a table."""
    table = _opened(X)
    features = getattr(estimator, "feature_names_in_", None)
    names = table.columns if features is None else [str(name) for name in features]
    if len(names) != estimator.n_features_in_:
        raise ArgumentError(
            f"X must have the {estimator.n_features_in_} columns of the fit, which had no names; it has {len(names)}."
        )
    _check_columns(table, "X", names)
    return [_numbers(frame, names) for frame in table.delayed(names)]


def _opened(X: Any) -> TableChunks:
    table = table_chunks(X, "X")
    if table is None:  # pragma: no cover - is_table comes first
        raise ArgumentError(f"X must be a table in chunks; got {type(X).__name__}.")
    return table


def _check_columns(table: TableChunks, argument: str, names: list[str]) -> None:
    for name in names:
        if name not in table.columns:
            raise unknown_name("A column of X" if argument == "X" else argument, name, table.columns)


def _vectors(table: TableChunks, named: Mapping[str, str | None]) -> tuple[dict[str, Array], list[int]]:
    """Return columns of the whole table, by the argument that named them, and the rows of each chunk."""
    import dask

    wanted = {argument: name for argument, name in named.items() if name is not None}
    for argument, name in wanted.items():
        _check_columns(table, argument, [name])
    read = dask.delayed(_columns_of, pure=False, traverse=False)
    parts = dask.compute(*(read(frame, wanted) for frame in table.delayed(list(dict.fromkeys(wanted.values())))))
    joined = {argument: np.concatenate([part[argument] for part in parts]) for argument in wanted if parts}
    return joined, [len(next(iter(part.values()))) for part in parts]


def _columns_of(native: Any, wanted: dict[str, str]) -> dict[str, Array]:
    return {argument: _vector(native[name], argument, name) for argument, name in wanted.items()}


def _vector(column: Any, argument: str, name: str) -> Array:
    """Return a column of numbers as float64 unless they are whole, one of classes as it is, without missing entries."""
    if argument != "y" or _float_kind(column):
        return _as_float(column, argument, name)
    values = np.asarray(column.to_numpy())
    if values.dtype.kind == "O" and any(value is None or value != value for value in values):
        raise ArgumentError(f"{argument}: column {name!r} of X must have no missing entries.")
    return values


def _numbers(frame: Any, names: list[str]) -> Any:
    import dask

    return dask.delayed(_matrix, pure=False, traverse=False)(frame, names)


def _matrix(native: Any, names: list[str]) -> Array:
    """Return columns of a chunk, side by side, in float64."""
    return np.column_stack([_as_float(native[name], "X", name) for name in names])


def _as_float(column: Any, argument: str, name: str) -> Array:
    kind = column.dtype
    polars_like = hasattr(kind, "is_numeric")
    numeric = kind.is_numeric() or str(kind) == "Boolean" if polars_like else getattr(kind, "kind", "O") in "biuf"
    if not numeric:
        raise ArgumentError(f"{argument}: column {name!r} must have numbers and no missing entries; it has {kind}.")
    asked = {} if polars_like else {"dtype": np.float64, "na_value": np.nan}
    values = (column.cast(_polars_float()) if polars_like else column).to_numpy(**asked)
    if not np.isfinite(values).all():
        raise ArgumentError(f"{argument}: column {name!r} must be finite; it has missing entries, NaN or infinity.")
    return values


def _polars_float() -> Any:
    import polars

    return polars.Float64


def _float_kind(column: Any) -> bool:
    """Return whether a column has numbers that are not whole, or may miss some."""
    kind = column.dtype
    if hasattr(kind, "is_float"):
        return bool(kind.is_float() or (kind.is_numeric() and column.null_count()))
    return getattr(kind, "kind", "O") == "f" or (getattr(kind, "kind", "O") in "biu" and column.hasnans)


def _dask_array(delayed: Any, shape: tuple[int, ...]) -> Any:
    import dask.array

    return dask.array.from_delayed(delayed, shape, dtype=np.float64)
