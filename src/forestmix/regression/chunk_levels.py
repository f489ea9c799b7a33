"""What a formula learns from a table in chunks: a first pass finds levels, and a small frame stands for the table.

formulaic learns from columns: levels of categories, and the state of transforms such as ``center`` or ``bs``. Levels
are found chunk by chunk. A transform with a state needs all of its column, so these columns, and no others, are brought
together. The small frame has them, every level of every category, and rows of the first chunk elsewhere, so that what
is learned from it is what would be learned from the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.regression.expressions import evaluate, model_matrix, names_in
from forestmix.regression.formula import Design, learn_from
from forestmix.regression.frames import libraries, plain_frame
from forestmix.regression.terms import Terms

#: Rows of the first chunk that stand for the table, where nothing needs more.
FIRST_ROWS = 1000
_CATEGORY = re.compile(r"\bC\(([^()]*(?:\([^()]*\))*[^()]*)\)")


@dataclass(frozen=True)
class ColumnLevels:
    """The levels of one column that is no number, in the order of its categories if it has them."""

    levels: Any
    ordered: bool


@dataclass(frozen=True)
class Look:
    """What the first pass sees of a chunk: levels by column, distinct rows by factors, distinct values by column."""

    rows: int
    levels: dict[str, ColumnLevels]
    distinct: dict[tuple[str, ...], Any]
    values: dict[str, Array]


def look(native: Any, columns: list[str], complete: list[str], wanted: Any) -> Look:
    """Return what the rows of a chunk have that miss none of some columns; ``wanted``: factors, columns in ``C()``."""
    pandas, _, _ = libraries()
    frame = plain_frame(native, columns)
    frame = frame[frame[complete].notna().all(axis=1)]
    factors, categories = wanted
    levels = {name: _levels(pandas, frame[name]) for name in columns if frame[name].dtype.kind not in "biufM"}
    distinct = {group: frame[list(group)].drop_duplicates() for group in factors}
    values = {name: np.unique(frame[name]) for name in categories if frame[name].dtype.kind in "biuf"}
    return Look(len(frame), levels, distinct, values)


def _levels(pandas: Any, column: Any) -> ColumnLevels:
    if isinstance(column.dtype, pandas.CategoricalDtype):
        return ColumnLevels(pandas.Index(column.cat.categories), True)
    return ColumnLevels(pandas.Index(column.dropna().unique()), False)


def joined_levels(looks: Sequence[Look]) -> dict[str, Any]:
    """Return the levels of every column that is no number in some chunk: sorted, or in their categories' order."""
    names = dict.fromkeys(name for one in looks for name in one.levels)
    found = {}
    for name in names:
        parts = [one.levels[name] for one in looks if name in one.levels and len(one.levels[name].levels)]
        if not parts:
            continue
        first = parts[0].levels
        if all(part.ordered and part.levels.equals(first) for part in parts):
            found[name] = first
            continue
        for part in parts[1:]:
            first = first.union(part.levels, sort=False)
        try:
            found[name] = first.sort_values()
        except TypeError as error:
            raise ArgumentError(f"data: column {name!r} has levels of different kinds, numbers and texts.") from error
    return found


def leveled(native: Any, columns: list[str], levels: Mapping[str, Any]) -> Any:
    """Return a chunk as a plain frame whose categories are those of the whole table."""
    pandas, _, _ = libraries()
    frame = plain_frame(native, columns)
    for name, known in levels.items():
        if name in frame:
            frame[name] = pandas.Categorical(frame[name], categories=known)
    return frame


def categories_in(terms: Terms) -> set[str]:
    """Return the names inside ``C(...)``, whose levels must all be known."""
    texts = [terms.fixed, *(term.expression for term in terms.groups)]
    return set().union(*(names_in(inside) for text in texts for inside in _CATEGORY.findall(text)))


def names_with_state(terms: Terms, frame: Any, context: Mapping[str, Any]) -> set[str]:
    """Return the columns inside transforms that have a state, such as ``center(x)`` or ``bs(x, df=4)``."""
    states: set[str] = set()
    for text in (terms.fixed, *(term.expression for term in terms.groups)):
        states |= set(model_matrix(text, frame, context, sparse=False).model_spec.transform_state)
    return {name for state in states for name in names_in(state) if name in frame}


def learned(
    terms: Terms, first: Any, looks: Sequence[Look], levels: Mapping[str, Any], states: Mapping[str, Array],
    context: Mapping[str, Any],
) -> tuple[Design, Any]:  # fmt: skip
    """Return the design of a table in chunks, and the small frame that it was learned from.

    ``first`` is the first chunk's frame, ``states`` whole columns.
    """
    pandas, _, _ = libraries()
    values = {
        name: np.unique(np.concatenate([one.values[name] for one in looks if name in one.values]))
        for name in {name for one in looks for name in one.values}
    }
    sizes = [
        min(len(first), FIRST_ROWS),
        *map(len, levels.values()),
        *map(len, values.values()),
        *map(len, states.values()),
    ]
    size = max(sizes)
    columns = {}
    for name in first.columns:
        if name in levels:
            columns[name] = pandas.Categorical.from_codes(np.arange(size) % len(levels[name]), categories=levels[name])
        else:
            columns[name] = np.resize(states.get(name, values.get(name, first[name].to_numpy())), size)
    factors = {group for one in looks for group in one.distinct}
    distinct = {}
    for group in factors:
        frame = pandas.concat([one.distinct[group] for one in looks], ignore_index=True).drop_duplicates()
        for name in group:
            if name in levels:
                frame[name] = pandas.Categorical(frame[name], categories=levels[name])
        distinct[group] = frame
    small = pandas.DataFrame(columns)
    return learn_from(terms, small, context, distinct), small


def check_rows_by_themselves(design: Design, frame: Any, response: str, context: Mapping[str, Any]) -> None:
    """Raise if the value of an expression for a row depends on the other rows of its chunk."""
    half = frame.iloc[len(frame) // 2 :].reset_index(drop=True)
    whole, part = design.rows(frame), design.rows(half)
    same = np.array_equal(_dense(whole.matrix)[len(frame) // 2 :], _dense(part.matrix))
    same &= np.array_equal(whole.offset[len(frame) // 2 :], part.offset)
    pair = [evaluate(response, one, context) for one in (frame, half)] if response else None
    same &= pair is None or np.array_equal(pair[0][len(frame) // 2 :], pair[1], equal_nan=True)
    if not same:
        raise ArgumentError(
            "formula must treat every row by itself for a table in chunks; it has an expression whose value depends on "
            "other rows, such as x - np.mean(x) or lag(x). Use center(x) or scale(x), or bring the table into memory."
        )


def _dense(matrix: Any) -> Array:
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix
