"""The cases of a regression: rows of a table without missing entries, with response, trials, offset and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forestmix.arrays import Array, numbers
from forestmix.checks import is_number, one_of
from forestmix.errors import ArgumentError, unknown_name
from forestmix.regression.expressions import evaluate, names_in
from forestmix.regression.frames import column_names, plain_frame, row_labels
from forestmix.regression.terms import Terms, column_name, has_dot, pair_of_columns, parse, with_columns

FAMILIES = ("gaussian", "bernoulli", "binomial", "poisson")


@dataclass(frozen=True)
class Extra:
    """What goes with the rows beside the formula: a column's name, an array, a number, or nothing, each."""

    trials: Any = None
    offset: Any = None
    weights: Any = None

    @property
    def columns(self) -> list[str]:
        """The columns of the table that are named."""
        return [value for value in (self.trials, self.offset, self.weights) if isinstance(value, str)]


@dataclass(frozen=True)
class Cases:
    """Rows of a table that can be used: those without a missing entry in any column that the formula needs.

    ``rows`` are their numbers in the table, ``response`` is NaN where it is to be predicted, ``classes`` are the two
    levels of a response that is no number. ``message`` says what was left out.
    """

    frame: Any
    rows: Array
    response: Array
    trials: Array | None
    offset: Array
    weights: Array | None
    classes: tuple[Any, Any] | None
    labels: list[str]
    message: str

    def take(self, keep: Array) -> Cases:
        """Return the chosen cases, by a mask or by numbers."""
        vectors = {name: getattr(self, name) for name in ("rows", "response", "trials", "offset", "weights")}
        kept: dict[str, Any] = {name: None if values is None else values[keep] for name, values in vectors.items()}
        labels = [self.labels[row] for row in np.arange(len(self.rows))[keep]] if self.labels else []
        return replace(self, frame=self.frame.iloc[keep].reset_index(drop=True), labels=labels, **kept)


def needed_columns(
    terms: Terms, known: list[str], context: Mapping[str, Any], *, response: bool, argument: str = "data"
) -> list[str]:
    """Return the columns of a table that a formula mentions, in the table's order; raise if one is not there."""
    parts = [terms.fixed, *terms.offsets, *(term.expression for term in terms.groups)]
    mentioned = set().union(*map(names_in, parts))
    for name in mentioned:
        if name.isdigit():
            raise ArgumentError(f"formula: `{name}` would be read as a number. Rename the column, such as x{name}.")
    if response:
        mentioned |= names_in(terms.response)
    mentioned |= {name for term in terms.groups for name in term.factors}
    for name in sorted(mentioned - set(context)):
        if name not in known:
            raise unknown_name(f"A column of {argument}", name, known)
    return [name for name in known if name in mentioned]


def spelled_out(terms: Terms, known: list[str], extra: Extra) -> Terms:
    """Return the terms with a dot of the formula replaced by all columns that the formula does not use elsewhere."""
    right = terms.formula[len(terms.response) :]
    if not has_dot(right):
        return terms
    used = {*names_in(terms.response), *map(column_name, extra.columns)}
    used |= set().union(*(names_in(offset) for offset in terms.offsets), *(term.factors for term in terms.groups))
    rest = [name for name in known if name not in used]
    if not rest:
        raise ArgumentError(f"formula: the dot in {terms.formula!r} must stand for a column; data has no others.")
    return parse(terms.response + with_columns(right, rest))


def read_cases(
    terms: Terms, data: Any, family: str, extra: Extra, missing: str, context: Mapping[str, Any]
) -> Cases:  # fmt: skip
    """Return the cases of a fit: rows with a missing entry left out, or kept to predict if only the response misses."""
    one_of("family", family, FAMILIES)
    one_of("missing", missing, ("drop", "predict"))
    known = column_names(data)
    columns = needed_columns(terms, known, context, response=True)
    frame = plain_frame(data, list(dict.fromkeys([*columns, *map(column_name, extra.columns)])))
    if not len(frame):
        raise ArgumentError("data must have at least one row; got none.")
    inputs = needed_columns(terms, known, context, response=False)
    cases, whole = cases_of_frame(terms, frame, family, extra, missing, inputs, context)
    if not (whole & ~np.isnan(cases.response)).any():
        raise ArgumentError(f"data must have at least one row without missing entries. {cases.message}")
    check_case_weights(cases.weights)
    keep = whole & ~np.isnan(cases.response) if missing == "drop" else whole
    return replace(cases, labels=row_labels(data, len(frame))).take(keep)


def cases_of_frame(
    terms: Terms, frame: Any, family: str, extra: Extra, missing: str, inputs: list[str], context: Mapping[str, Any]
) -> tuple[Cases, Array]:
    """Return all rows of a frame as cases, without labels, and which of them miss nothing but perhaps the response."""
    response, trials, classes = _response(terms.response, frame, family, extra.trials, context)
    offset = np.zeros(len(frame)) if extra.offset is None else for_rows("offset", extra.offset, frame)
    weights = None if extra.weights is None else for_rows("weights", extra.weights, frame)
    whole = frame[inputs].notna().to_numpy().all(axis=1) & np.isfinite(offset)
    for part in (trials, weights):
        whole &= True if part is None else np.isfinite(part)
    message = missing_message(whole, ~np.isnan(response), missing)
    return Cases(frame, np.arange(len(frame)), response, trials, offset, weights, classes, [], message), whole


def _response(
    text: str, frame: Any, family: str, trials: Any, context: Mapping[str, Any]
) -> tuple[Array, Array | None, tuple[Any, Any] | None]:  # fmt: skip
    """Return the response as numbers, the trials of binomial ones, and the classes of one that is no number."""
    pair = pair_of_columns(text)
    if family != "binomial":
        if pair is not None or trials is not None:
            raise ArgumentError(f"trials and cbind() go with family='binomial'; got family={family!r}.")
        return _one_column(text, frame, family, context)
    if pair is not None:
        if trials is not None:
            raise ArgumentError("trials must be left out with cbind(successes, failures), which has them.")
        successes, failures = (evaluate(part, frame, context) for part in pair)
        return successes, successes + failures, None
    if trials is None:
        raise ArgumentError("A binomial response needs trials=, or cbind(successes, failures) in the formula.")
    return evaluate(text, frame, context), for_rows("trials", trials, frame), None


def _one_column(
    text: str, frame: Any, family: str, context: Mapping[str, Any]
) -> tuple[Array, None, tuple[Any, Any] | None]:  # fmt: skip
    """Return a response of one column; two levels that are no numbers are 0 and 1 in their order."""
    name = column_name(text)
    if name not in frame or frame[name].dtype.kind in "biuf":
        return evaluate(text, frame, context), None, None
    column = frame[name].astype("category")
    levels = list(column.cat.remove_unused_categories().cat.categories)
    if family != "bernoulli" or len(levels) != 2:
        right = "numbers or two levels" if family == "bernoulli" else "numbers"
        raise ArgumentError(
            f"The response {text!r} must be {right}; it has {len(levels)} levels such as {levels[0]!r}."
        )
    codes = column.cat.remove_unused_categories().cat.codes.to_numpy().astype(np.float64)
    return np.where(codes < 0, np.nan, codes), None, (levels[0], levels[1])


def for_rows(argument: str, given: Any, frame: Any) -> Array:
    """Return one number for each row of the table: from a column of it, an array, or one number for all."""
    if isinstance(given, str):
        given = frame[column_name(given)].to_numpy()
    if is_number(given):
        return np.full(len(frame), float(given))
    values = numbers(argument, given, missing=True).astype(np.float64)
    if values.shape != (len(frame),):
        raise ArgumentError(
            f"{argument} must be the name of a column, or have one number for each of the {len(frame)} rows; "
            f"got shape {values.shape}."
        )
    return values


def check_case_weights(weights: Array | None) -> None:
    """Raise unless weights can be those of cases."""
    if weights is not None and ((weights < 0).any() or np.isinf(weights).any() or not (weights > 0).any()):
        worst = weights[np.argmax((weights < 0) | np.isinf(weights))]
        raise ArgumentError(f"weights must be finite, 0 or more, and not all 0; got {worst:g}.")


def missing_message(whole: Array, answered: Array, missing: str) -> str:
    """Say how many rows are left out or predicted because of missing entries; an empty string if none is."""
    left_out = int(np.sum(~(whole & answered))) if missing == "drop" else int(np.sum(~whole))
    predicted = 0 if missing == "drop" else int(np.sum(whole & ~answered))
    parts = []
    if left_out:
        parts.append(f"{left_out} of {len(whole)} rows are left out: they have missing entries.")
    if predicted:
        parts.append(f"{predicted} rows without a response are predicted.")
    return " ".join(parts)
