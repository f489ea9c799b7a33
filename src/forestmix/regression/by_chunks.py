"""Regression of a table that is read in chunks: the design is made chunk by chunk, and W is in chunks of rows.

Vectors of rows, such as the response, are in memory; the design never is in one piece. Three passes come before the
fit: over levels, over the response and what goes with it, and over the design for the defaults of the priors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.checks import one_of
from forestmix.errors import ArgumentError
from forestmix.regression.cases import (
    FAMILIES,
    Cases,
    Extra,
    cases_of_frame,
    check_case_weights,
    missing_message,
    needed_columns,
)  # fmt: skip
from forestmix.regression.chunk_levels import (
    categories_in,
    check_rows_by_themselves,
    joined_levels,
    learned,
    leveled,
    look,
    names_with_state,
)  # fmt: skip
from forestmix.regression.formula import Design
from forestmix.regression.table_chunks import TableChunks
from forestmix.regression.terms import Terms, column_name, pair_of_columns
from forestmix.weights import Weights, as_weights


@dataclass(frozen=True)
class Plan:
    """How a chunk of the table becomes cases: what ``regress`` was given, and the levels of the whole table."""

    terms: Terms
    family: str
    extra: Extra
    missing: str
    context: Mapping[str, Any]
    columns: list[str]
    inputs: list[str]
    levels: Mapping[str, Any]
    classes: tuple[Any, Any] | None

    def cases(self, native: Any) -> tuple[Cases, Array]:
        """Return the cases of a chunk, and which rows miss nothing but perhaps the response."""
        frame = leveled(native, self.columns, self.levels)
        if self.classes is not None:
            name = column_name(self.terms.response)
            codes = frame[name].cat.codes.to_numpy().astype(np.float64)
            frame[name] = np.where(codes < 0, np.nan, codes)
        return cases_of_frame(
            self.terms, frame, self.family, self.extra, self.missing, self.inputs, self.context
        )  # fmt: skip


@dataclass(frozen=True)
class Vectors:
    """What a chunk has for each row: the response and what goes with it, of all its rows."""

    response: Array
    trials: Array | None
    offset: Array
    weights: Array | None
    whole: Array


@dataclass(frozen=True)
class ChunkedDesign:
    """A design with its rows in chunks: those of the fit are ``weights``, with their ``cases``.

    ``learned_from``: a small frame that stands for the table (``chunk_levels.py``).
    """

    design: Design
    learned_from: Any
    plan: Plan
    weights: Weights
    cases: Cases
    offset: Array


def read_chunks(
    terms: Terms, table: TableChunks, family: str, extra: Extra, missing: str, context: Mapping[str, Any]
) -> ChunkedDesign:  # fmt: skip
    """Return the design of a table in chunks, and its cases that have a response."""
    one_of("family", family, FAMILIES)
    one_of("missing", missing, ("drop", "predict"))
    _check_extra(extra)
    needed = needed_columns(terms, table.columns, context, response=True)
    columns = list(dict.fromkeys([*needed, *map(column_name, extra.columns)]))
    inputs = needed_columns(terms, table.columns, context, response=False)
    frames = table.delayed(columns)
    factors = [term.factors for term in terms.groups]
    categories = [name for name in categories_in(terms) if name in columns]
    complete = list(dict.fromkeys([*(columns if missing == "drop" else inputs), *map(column_name, extra.columns)]))
    looks = _computed(look, frames, columns, complete, (factors, categories))
    full = [k for k, one in enumerate(looks) if one.rows]
    if not full:
        raise ArgumentError("data must have at least one row without missing entries in what the formula needs.")
    levels = joined_levels(looks)
    plan = Plan(terms, family, extra, missing, context, columns, inputs, levels, _classes(terms, family, levels))
    first = _computed(_whole_rows, [frames[full[0]]], plan)[0]
    states = names_with_state(terms, first, context)
    parts = _computed(_columns_of, frames, plan, sorted(states)) if states else []
    gathered = {name: np.concatenate([part[name] for part in parts]) for name in states}
    design, small = learned(terms, first, looks, levels, gathered, context)
    check_rows_by_themselves(design, first, "" if pair_of_columns(terms.response) else terms.response, context)
    return _with_rows(design, small, plan, frames, _computed(_vectors_of, frames, plan, design))


def _with_rows(
    design: Design, small: Any, plan: Plan, frames: Sequence[Any], vectors: Sequence[Vectors]
) -> ChunkedDesign:
    """Return the design with the rows of the fit, those that have a response."""
    whole, response = (np.concatenate([getattr(one, name) for one in vectors]) for name in ("whole", "response"))
    message = missing_message(whole, ~np.isnan(response), plan.missing)
    kept = [one.whole & ~np.isnan(one.response) for one in vectors]
    keep = np.flatnonzero(np.concatenate(kept))
    if not len(keep):
        raise ArgumentError(f"data must have at least one row without missing entries. {message}")
    weights = _joined([one.weights for one in vectors], keep)
    check_case_weights(weights)
    cases = Cases(
        None, keep, response[keep], _joined([one.trials for one in vectors], keep), np.zeros(len(keep)), weights,
        plan.classes, [], message,
    )  # fmt: skip
    made = _delayed(_matrix_of)
    matrices = [made(frame, plan, design) for frame, own in zip(frames, kept, strict=True) if own.any()]
    offset = np.concatenate([one.offset for one in vectors])[keep]
    return ChunkedDesign(design, small, plan, as_weights(matrices), cases, offset)


class LeadingColumns:
    """The first columns of weights, of which some leading rows are an array, and all rows an operator."""

    def __init__(self, weights: Weights, count: int) -> None:
        self.weights, self.shape = weights, (weights.shape[0], count)

    def __getitem__(self, rows: slice) -> Any:
        (n, count), weights = self.shape, self.weights
        if rows.stop < n:
            return weights.dense_rows(np.arange(rows.start, rows.stop))[:, :count]
        behind = np.zeros(weights.shape[1] - count)
        return scipy.sparse.linalg.LinearOperator(
            self.shape, matvec=lambda y: weights.forward(np.concatenate([y.ravel(), behind])),
            rmatvec=lambda r: weights.adjoint(r.ravel())[:count], dtype=np.float64,
        )  # fmt: skip


def _classes(terms: Terms, family: str, levels: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """Return the two levels of a response that is no number."""
    name = column_name(terms.response)
    if name not in levels:
        return None
    known = list(levels[name])
    if family != "bernoulli" or len(known) != 2:
        right = "numbers or two levels" if family == "bernoulli" else "numbers"
        raise ArgumentError(f"The response {name!r} must be {right}; it has {len(known)} levels such as {known[0]!r}.")
    return known[0], known[1]


def _check_extra(extra: Extra) -> None:
    for name, value in vars(extra).items():
        if not (value is None or isinstance(value, str) or np.ndim(value) == 0):
            raise ArgumentError(f"{name} must be a column's name or one number for a table in chunks; got an array.")


def _whole_rows(native: Any, plan: Plan) -> Any:
    """Return the frame of the rows that miss no input."""
    cases, whole = plan.cases(native)
    return cases.frame[whole].reset_index(drop=True)


def _columns_of(native: Any, plan: Plan, names: list[str]) -> dict[str, Array]:
    cases, whole = plan.cases(native)
    keep = whole & ~np.isnan(cases.response) if plan.missing == "drop" else whole
    return {name: cases.frame[name].to_numpy()[keep] for name in names}


def _vectors_of(native: Any, plan: Plan, design: Design) -> Vectors:
    cases, whole = plan.cases(native)
    offset = np.zeros(len(whole))
    kept = cases.take(whole)
    offset[whole] = design.offset(kept.frame) + kept.offset
    return Vectors(cases.response, cases.trials, offset, cases.weights, whole)


def _matrix_of(native: Any, plan: Plan, design: Design) -> Any:
    """Return the design of the rows of a chunk that have a response."""
    cases, whole = plan.cases(native)
    return design.rows(cases.take(whole & ~np.isnan(cases.response)).frame).matrix


def _joined(parts: Sequence[Array | None], keep: Array) -> Array | None:
    there = [part for part in parts if part is not None]
    return np.concatenate(there)[keep] if there else None


def _delayed(function: Any) -> Any:
    import dask

    return dask.delayed(function, pure=False, traverse=False)


def _computed(function: Any, frames: Sequence[Any], *given: Any) -> list[Any]:
    """Return what a function gives for each chunk, on the workers of the current client or on threads."""
    import dask

    made = _delayed(function)
    return list(dask.compute(*(made(frame, *given) for frame in frames)))
