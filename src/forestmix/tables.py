"""Masked arrays and data frames as plain arrays, with NaN where an entry is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from numbers import Real
from typing import Any

import array_api_compat
import numpy as np
import numpy.typing as npt

from forestmix.errors import ArgumentError

#: Kinds of dtype that hold real numbers: booleans, integers with and without sign, floating point.
REAL = "biuf"


def plain_array(name: str, value: Any, *, missing: bool) -> npt.NDArray[Any]:
    """Return what NumPy makes of ``value``, but masked arrays and data frames by what they mean.

    A masked entry and an empty one of a frame become NaN where entries may be ``missing``, and are refused elsewhere.
    """
    if isinstance(value, list | tuple) and any(isinstance(part, np.ma.MaskedArray) for part in value):
        value = np.ma.stack([np.ma.asanyarray(part) for part in value])
    if isinstance(value, np.ma.MaskedArray):
        return _unmasked(name, value, missing)
    if hasattr(value, "to_numpy"):
        return _from_frame(name, value)
    if array_api_compat.is_torch_array(value) or array_api_compat.is_cupy_array(value):
        value = array_api_compat.to_device(value, "cpu")
    return np.asarray(value)


def _unmasked(name: str, value: np.ma.MaskedArray, missing: bool) -> npt.NDArray[Any]:
    count = int(np.sum(np.ma.getmask(value)))
    if count and not missing:
        raise ArgumentError(
            f"{name} must have no masked entries: only observations can be missing, weights and parameters cannot; "
            f"got {count} masked."
        )
    array = np.ma.getdata(value)
    if not count or array.dtype.kind not in REAL:
        return array
    floating = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    return np.where(np.ma.getmaskarray(value), np.nan, array).astype(floating)


def _from_frame(name: str, frame: Any) -> npt.NDArray[Any]:
    """Return a data frame or a series of pandas, polars and the like, with columns of several types as float64."""
    array = np.asarray(frame)
    # polars turns dates among numbers into numbers.
    apart = (column.to_numpy() for column in getattr(frame, "get_columns", tuple)())
    if array.dtype.kind in REAL and all(column.dtype.kind in REAL for column in apart):
        return array
    if not hasattr(frame, "columns"):
        return _column(name, getattr(frame, "name", None), frame)
    columns = [_column(name, label, column) for label, column in _columns(frame)]
    return np.column_stack(columns) if columns else array


def _columns(frame: Any) -> Iterable[tuple[Any, Any]]:
    """Return the columns with their labels: pandas has ``items``, polars series that know their names."""
    if hasattr(frame, "items"):
        return frame.items()
    return ((column.name, column) for column in frame.get_columns())


def _column(name: str, label: Any, column: Any) -> npt.NDArray[np.float64]:
    if getattr(column.dtype, "kind", "O") in REAL:
        # pandas: a column that knows missing entries apart from its numbers.
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    values = column.to_numpy()
    if values.dtype.kind in REAL:
        return values.astype(np.float64)
    wrong = [entry for entry in values if not isinstance(entry, Real | np.bool_) and not _is_missing(entry)]
    if values.dtype.kind != "O" or wrong:
        given = repr(wrong[0]) if wrong else f"dtype {column.dtype}"
        raise ArgumentError(
            f"{name} must hold real numbers; column {label!r} holds {given}. In W words may be categories "
            "(frame.astype({column: 'category'})); forestmix.regress takes words as they are."
        )
    return np.array([np.nan if _is_missing(entry) else float(entry) for entry in values])


def _is_missing(entry: Any) -> bool:
    """Whether an entry of a column of objects stands for a missing one; ``NAType`` is that of ``pandas.NA``."""
    return entry is None or type(entry).__name__ == "NAType"


def column_labels(frame: Any) -> tuple[Any, ...] | None:
    """Return the labels of a data frame's columns; ``None`` for what is no frame, or has only numbered its columns."""
    if not hasattr(frame, "columns") or not hasattr(frame, "to_numpy"):
        return None
    return _labels(frame.columns)


def row_labels(frame: Any) -> tuple[Any, ...] | None:
    """Return the labels of the rows of a frame or series of pandas; ``None`` for others, and if they are numbered."""
    if not type(frame).__module__.startswith("pandas") or not hasattr(frame, "to_numpy") or not hasattr(frame, "index"):
        return None
    return _labels(frame.index)


def _labels(index: Any) -> tuple[Any, ...] | None:
    numbered = type(index).__name__ == "RangeIndex" and list(index) == list(range(len(index)))
    return None if numbered else tuple(map(plain_label, index))


def in_order(name: str, given: Sequence[Any] | None, wanted: Sequence[Any] | None) -> list[int] | None:
    """Return the places of the wanted labels among those given; ``None`` if they are the same, or either has none."""
    if given is None or wanted is None or list(given) == list(wanted):
        return None
    places = {label: place for place, label in enumerate(given)}
    absent = [label for label in wanted if label not in places]
    if absent or len(places) < len(given) or len(set(wanted)) < len(wanted):
        problem = f"{label_text(absent[0])!r} is not there" if absent else "they are not each there once"
        raise ArgumentError(f"{name} must have the labels of W's rows; {problem}. Arrays have no labels: x.to_numpy().")
    return [places[label] for label in wanted]


def labelled_weights(W: Any) -> tuple[Any, tuple[Any, ...] | None]:
    """Return weights, and the labels of their columns if they are a frame.

    Categories that are words become an indicator of each of their levels, labelled ``column[level]``.
    """
    labels = column_labels(W)
    if not hasattr(W, "columns") or not (hasattr(W, "items") or hasattr(W, "get_columns")):
        return W, labels
    columns = [(label, column, _levels(column)) for label, column in _columns(W)]
    if all(levels is None for _, _, levels in columns):
        return W, labels
    names: list[Any] = []
    parts = []
    for label, column, levels in columns:
        if levels is None:
            names.append(plain_label(label))
            parts.append(_column("W", label, column))
            continue
        entries = np.array([None if _is_missing(entry) or entry != entry else str(entry) for entry in column], object)
        missing = np.array([entry is None for entry in entries])
        names += [f"{label_text(label)}[{level}]" for level in levels]
        parts += [np.where(missing, np.nan, entries == str(level)) for level in levels]
    return np.column_stack(parts), tuple(names)


def _levels(column: Any) -> list[Any] | None:
    """Return the levels of categories of pandas or polars; ``None`` for other columns, and if they are numbers."""
    kind: Any = getattr(column, "dtype", None)
    if str(kind).startswith("Categorical"):  # polars, which lists those of other columns too
        levels = sorted(column.drop_nulls().unique().to_list())
    elif hasattr(kind, "categories"):  # pandas, and Enum of polars
        levels = list(kind.categories)
    else:
        return None
    return None if all(isinstance(level, Real | np.bool_) for level in levels) else levels


def plain_label(label: Any) -> Any:
    """Return a label as a text, a number, a time of Python's, or a tuple of them; one of another type as its text."""
    if isinstance(label, tuple):
        return tuple(map(plain_label, label))
    if isinstance(label, np.generic):
        label = label.item()
    # pandas: its times have nanoseconds, which those of Python have not.
    whole = not getattr(label, "nanosecond", 0) and not getattr(label, "nanoseconds", 0) and label == label
    for convert in ("to_pydatetime", "to_pytimedelta"):
        if whole and hasattr(label, convert):
            return getattr(label, convert)()
    plain = type(label) in (str, bool, int, float, type(None), date, datetime, timedelta)
    return label if plain and whole else str(label)


def label_text(label: Any) -> str:
    """Return a label as people read it."""
    return ", ".join(map(label_text, label)) if isinstance(label, tuple) else str(label)
