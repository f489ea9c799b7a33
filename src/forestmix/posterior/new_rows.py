"""Rows to predict that come with names: a data frame with the columns that W had, or a layer made from one."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array, finite
from forestmix.errors import ArgumentError, unknown_name
from forestmix.layer import Layer
from forestmix.tables import column_labels, label_text, labelled_weights, plain_array


def is_frame(rows: Any) -> bool:
    """Return whether rows are a data frame."""
    return hasattr(rows, "columns") and hasattr(rows, "to_numpy")


def rows_of_frame(own: Layer, frame: Any) -> Layer:
    """Return new rows like those of a layer: the columns of its W by their names, in any order; others are left.

    A level of a category that no new row has is a column of zeros.
    """
    if own.labels is None or len(set(own.labels)) < len(own.labels):
        raise ArgumentError("rows must be a Layer for this model: the columns of its W have no names, or not each one.")
    _check_alike(own)
    given, labels = labelled_weights(frame)
    values = finite("rows", plain_array("rows", given, missing=False).astype(own.dtype))
    columns = dict(zip(labels or range(values.shape[1]), values.T, strict=True))
    for base in column_labels(frame) or ():
        if base not in columns:  # a category, which has indicators in its place
            _complete(columns, f"{label_text(base)}[", own.labels, np.zeros(len(values), own.dtype))
    for label in own.labels:
        if label not in columns:
            raise unknown_name("A column of rows", label, map(str, columns))
    new = Layer(own.family.unweighted, np.column_stack([columns[label] for label in own.labels]), own.bias)
    new.labels = own.labels
    return new


def check_names(own: Layer, rows: Layer) -> None:
    """Raise if both layers have names of their columns, and these are not the same in the same order."""
    if own.labels is None or rows.labels is None:
        return
    for k, (wanted, got) in enumerate(zip(own.labels, rows.labels, strict=True)):
        if wanted != got:
            raise ArgumentError(
                f"rows must have the columns of W, in their order; column {k} is {label_text(wanted)!r} in W, and "
                f"{label_text(got)!r} in rows. A data frame may have them in any order: predict(frame)."
            )


def _complete(columns: dict[Any, Array], prefix: str, known: tuple[Any, ...], absent: Array) -> None:
    """Add the known levels of a category that are absent from a frame; raise for a level that is not known."""
    levels = [label for label in known if str(label).startswith(prefix)]
    for label in columns:
        if levels and str(label).startswith(prefix) and label not in levels:
            raise unknown_name("A level of rows", label, map(str, levels))
    for label in levels:
        columns.setdefault(label, absent)


def _check_alike(own: Layer) -> None:
    """Raise if rows differ in what a frame does not say."""
    try:
        own.family.unweighted.check_size(own.size + 1, "rows")
    except ArgumentError as error:
        raise ArgumentError("rows must be a Layer where the rows of the model differ in their family.") from error
    if own.bias.size > 1:
        raise ArgumentError("rows must be a Layer where the rows of the model have a bias each.")
