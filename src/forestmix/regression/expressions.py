"""Expressions of a formula evaluated by formulaic on a frame of plain columns, with errors that name the formula."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError, unknown_name
from forestmix.regression.frames import libraries

#: A name in backticks, or one that is no attribute, no function, no module and no keyword of a call.
_NAME = re.compile(r"`([^`]+)`|(?<![\w.])([^\W\d]\w*)(?!\w)(?!\s*=[^=])(?!\s*[(.])")
_CONSTANTS = {"True", "False", "None", "in", "and", "or", "not"}
#: What pandas calls columns of times.
TIMES = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def names_in(expression: str) -> set[str]:
    """Return the names that an expression mentions, but those of functions and modules."""
    return {quoted or plain for quoted, plain in _NAME.findall(_QUOTED.sub("''", expression))} - _CONSTANTS


def evaluate(expression: str, frame: Any, context: Mapping[str, Any]) -> Array:
    """Return the values of one expression, such as ``log(t)`` or a column's name, as numbers."""
    name = expression.strip("`")
    if name in frame:
        values = frame[name].to_numpy()
    else:
        values = np.asarray(model_matrix(f"0 + {{{expression}}}", frame, context, sparse=False), np.float64)
        if values.shape[1] != 1:
            raise ArgumentError(
                f"formula: {expression!r} must be one column of numbers; got {values.shape[1]} columns."
            )
        values = values[:, 0]
    if values.dtype.kind not in "biuf":
        raise ArgumentError(f"formula: {expression!r} must be a column of numbers; got {type(values[0]).__name__}.")
    return values.astype(np.float64)


def model_matrix(expression: str, frame: Any, context: Mapping[str, Any], *, sparse: bool) -> Any:
    """Return formulaic's model matrix of an expression, with the specification that makes it again for new data."""
    _, _, formulaic = libraries()
    output = "sparse" if sparse else "numpy"
    with _formula_errors(frame):
        return formulaic.model_matrix(
            expression, frame, context={"np": np, **context}, output=output, na_action="ignore"
        )


def again(spec: Any, frame: Any, context: Mapping[str, Any]) -> Any:
    """Return the model matrix of new data by the specification that was learned from the first."""
    with _formula_errors(frame):
        return spec.get_model_matrix(frame, context={"np": np, **context}, na_action="ignore")


def refuse_times(expression: str, frame: Any) -> None:
    """Raise if a column of times stands by itself as a term, where its unit and its zero would be accidents."""
    pandas, _, formulaic = libraries()
    with _formula_errors(frame):
        factors = {factor.expr for term in formulaic.Formula(expression) for factor in term.factors}
    for name in factors & set(frame):
        if pandas.api.types.infer_dtype(frame[name]) in TIMES:
            raise ArgumentError(
                f"formula: column {name!r} must be numbers or levels; it has times. Make numbers of them, such as days "
                f"since the first, or levels by C({name})."
            )


@contextmanager
def _formula_errors(frame: Any) -> Iterator[None]:
    """Raise what formulaic finds wrong as an ``ArgumentError``; a level that is new to a fixed effect is wrong too."""
    _, _, formulaic = libraries()
    from formulaic.errors import DataMismatchWarning

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", DataMismatchWarning)
            yield
    except DataMismatchWarning as error:
        levels = re.findall(r"\{.*\}", re.sub(r"np\.\w+\(([^()]*)\)", r"\1", str(error)))
        raise ArgumentError(
            f"data has levels of a fixed effect that the fit never saw: {' '.join(levels)}. Only groups, "
            "(1 | factor), have a distribution for new levels."
        ) from error
    except formulaic.errors.FormulaicError as error:
        name = re.search(r"NameError: (?:name )?[`'](.+?)[`']", str(error))
        if name:
            raise unknown_name("A column of data, or a name in context,", name[1], map(str, frame.columns)) from error
        hidden = " A column hides the function of its name." if "is not callable" in str(error) else ""
        raise ArgumentError(f"formula: {_plain(str(error))}{hidden}") from error


def _plain(message: str) -> str:
    """Return a message without the codes that colour it in a terminal."""
    return re.sub(r"\x1b\[[\d;]*m|[⧛⧚]", "", message)
