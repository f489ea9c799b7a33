"""Tables of any library as a pandas frame of plain columns: what formulas are evaluated on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from forestmix.errors import ArgumentError, optional, unknown_name

#: How to install what formulas need.
EXTRA = "pip install 'forestmix[regression]'"


def libraries() -> tuple[Any, Any, Any]:
    """Return pandas, narwhals and formulaic, which the extra "regression" installs."""
    pandas, narwhals, formulaic = (
        optional(name, f"A regression from a table needs {name}: {EXTRA}")
        for name in ("pandas", "narwhals", "formulaic")
    )
    return pandas, narwhals, formulaic


def plain_frame(data: Any, columns: Iterable[str], argument: str = "data") -> Any:
    """Return the asked columns of a table as a pandas frame of numbers, booleans, categories and strings.

    ``data`` is a frame of pandas, polars or any library that narwhals reads, or a dictionary of columns. Missing
    entries are NaN, or None among strings; rows are numbered from 0.
    """
    pandas, narwhals, _ = libraries()
    if isinstance(data, dict):
        data = _frame_of_dictionary(pandas, data, argument)
    table = _table(data, argument)
    known = {str(name): name for name in table.columns}
    for name in columns:
        if name not in known:
            raise unknown_name(f"A column of {argument}", name, known)
    plain = {name: _plain_column(pandas, narwhals, table.get_column(known[name])) for name in columns}
    return pandas.DataFrame(plain, copy=False)


def column_names(data: Any, argument: str = "data") -> list[str]:
    """Return the names of a table's columns."""
    return [str(name) for name in (data if isinstance(data, dict) else _table(data, argument).columns)]


def _table(data: Any, argument: str) -> Any:
    """Return a table as a frame of narwhals; raise for what is no table, or has two columns of one name."""
    _, narwhals, _ = libraries()
    try:
        return narwhals.from_native(data, eager_only=True)
    except TypeError as error:
        raise _no_table(data, argument) from error
    except narwhals.exceptions.DuplicateError as error:
        twice = sorted({str(name) for name in data.columns if list(data.columns).count(name) > 1})
        raise ArgumentError(f"{argument} must have columns of different names; two are called {twice[0]!r}.") from error


def row_labels(data: Any, count: int) -> list[str]:
    """Return the name of each row: that of a pandas index, else its number."""
    return [str(label) for label in getattr(data, "index", range(count))]


def _no_table(data: Any, argument: str) -> ArgumentError:
    lazy = " Its collect() makes a table of it." if hasattr(data, "collect") else ""
    return ArgumentError(
        f"{argument} must be a table: a frame of pandas or polars, or a dictionary of columns; "
        f"got {type(data).__name__}.{lazy}"
    )


def _frame_of_dictionary(pandas: Any, data: dict[Any, Any], argument: str) -> Any:
    try:
        return pandas.DataFrame(data)
    except ValueError as error:
        raise ArgumentError(f"{argument} must have columns of one length; {error}.") from error


def _plain_column(pandas: Any, narwhals: Any, column: Any) -> Any:
    """Return a column as an array of float, int or bool, a pandas categorical, or an array of objects."""
    kind = column.dtype
    if kind == narwhals.Categorical or kind == narwhals.Enum:
        return _categories(pandas, column)
    if kind.is_numeric():
        if kind.is_integer() and not column.null_count():
            return column.to_numpy().astype(np.int64)
        return column.cast(narwhals.Float64).to_numpy().astype(np.float64)
    if kind == narwhals.Boolean:
        missing = column.is_null().to_numpy()
        values = np.array([value is True for value in column.to_list()])
        return np.where(missing, np.nan, values) if missing.any() else values
    return _objects(pandas, column)


def _categories(pandas: Any, column: Any) -> Any:
    """Return categories in their own order where they have one, else sorted."""
    native = column.to_native()
    if hasattr(native, "cat") and hasattr(native.cat, "codes"):
        return pandas.Categorical(native)
    levels = getattr(column.dtype, "categories", None)
    return pandas.Categorical(column.to_list(), categories=None if levels is None else list(levels))


def _objects(pandas: Any, column: Any) -> Any:
    """Return a column of strings or of Python's objects; numbers and booleans among objects are read as such."""
    native = column.to_native()
    values = native.to_numpy() if hasattr(native, "to_numpy") else np.asarray(column.to_list(), object)
    if values.dtype.kind == "M":
        return values
    series = pandas.Series(values, dtype=object)
    found = pandas.api.types.infer_dtype(series, skipna=True)
    if found in ("integer", "floating", "mixed-integer-float", "decimal"):
        return series.astype(np.float64).to_numpy()
    if found == "boolean":
        numbers = series.astype(np.float64).to_numpy()
        return numbers if np.isnan(numbers).any() else numbers.astype(bool)
    return series.where(series.notna(), None).to_numpy()
