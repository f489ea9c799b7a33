"""Tables of pandas as plain values and arrays: the rows that a regression was fitted to, and the levels of its groups.

Columns are those that ``forestmix.regression.frames`` makes: numbers, booleans, times, categories and texts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ForestmixError
from forestmix.regression.frames import libraries


def frame_fields(frame: Any) -> list[dict[str, Any]]:
    """Return the columns of a frame whose rows are numbered."""
    return [{"name": name, "column": _column(name, frame[name])} for name in frame.columns]


def built_frame(given: list[dict[str, Any]]) -> Any:
    """Return the frame of these columns."""
    pandas, _, _ = libraries()
    return pandas.DataFrame({one["name"]: _built_column(pandas, one["column"]) for one in given}, copy=False)


def index_fields(index: Any) -> dict[str, Any]:
    """Return the levels of a factor, an index of pandas."""
    return _column("the levels of a factor", index)


def built_index(given: dict[str, Any]) -> Any:
    """Return the levels of a factor."""
    pandas, _, _ = libraries()
    return pandas.Index(_built_column(pandas, given))


def _column(name: str, column: Any) -> dict[str, Any]:
    pandas, _, _ = libraries()
    if isinstance(column.dtype, pandas.CategoricalDtype):
        values = pandas.Categorical(column)
        return {
            "form": "categories", "codes": np.asarray(values.codes, np.int64), "ordered": bool(values.ordered),
            "categories": _column(f"the categories of {name}", values.categories),
        }  # fmt: skip
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return {"form": "numbers", "values": column.to_numpy()}
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "mM":
        values = column.to_numpy()
        return {"form": "times", "values": values.view(np.int64), "dtype": values.dtype.name}
    return {"form": "texts", "values": _texts(name, column), "dtype": str(column.dtype)}


def _texts(name: str, column: Any) -> list[Any]:
    """Return the distinct entries, and which of them each row has: a column of texts often has few."""
    values = np.asarray(column, object)
    entries = [None if _is_missing(entry) else entry for entry in values.tolist()]
    wrong = [entry for entry in entries if entry is not None and not isinstance(entry, str | bool | int | float)]
    if wrong:
        raise ForestmixError(f"A file cannot hold column {name!r}, which has {wrong[0]!r}; make it texts or numbers.")
    return entries


def _is_missing(entry: Any) -> bool:
    return entry is None or (isinstance(entry, float) and entry != entry) or type(entry).__name__ == "NAType"


def _built_column(pandas: Any, given: dict[str, Any]) -> Any:
    form = given["form"]
    if form == "categories":
        categories = built_index(given["categories"])
        return pandas.Categorical.from_codes(given["codes"], categories=categories, ordered=given["ordered"])
    if form == "numbers":
        return given["values"]
    if form == "times":
        return _times(given["values"], given["dtype"])
    if form != "texts":
        raise ValueError(f"a column of {form!r}")
    return pandas.array(given["values"], dtype="str" if given["dtype"].startswith("str") else object)


def _times(values: Array, dtype: str) -> Array:
    if np.dtype(dtype).kind not in "mM":
        raise ValueError(f"times of {dtype}")
    return values.view(np.dtype(dtype))
