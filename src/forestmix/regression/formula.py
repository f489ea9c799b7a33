"""The design of a regression: one matrix with a name for each column, from the terms of a formula and a table.

Fixed effects come first, as formulaic makes them; then, for each term of groups and each column of its expression, a
block with one column for each level: row i has the expression's value in the column of its level and 0 elsewhere. The
matrix is sparse whenever there are groups, or categories that make most of it zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.regression.expressions import again, evaluate, model_matrix, names_in, refuse_times
from forestmix.regression.frames import libraries
from forestmix.regression.terms import Terms


@dataclass(frozen=True)
class Levels:
    """The levels of ``factors`` that occurred, sorted, or in the order of their categories.

    ``parts`` has an index of levels for each factor. A combination of them is the number that its places make, the
    first factor's place leading; ``keys`` has those that occurred, sorted.
    """

    factors: tuple[str, ...]
    parts: tuple[Any, ...]
    keys: Array

    @classmethod
    def learn(cls, factors: tuple[str, ...], frame: Any) -> Self:
        """Find the levels in the columns of a frame without missing entries."""
        parts = tuple(_levels(frame[name]) for name in factors)
        key = _keys(factors, parts, frame)
        return cls(factors, parts, np.arange(len(parts[0])) if len(parts) == 1 else np.unique(key))

    def __len__(self) -> int:
        return len(self.keys)

    def codes(self, frame: Any) -> Array:
        """Return the number of each row's level; -1 for one that did not occur, or is missing."""
        key = _keys(self.factors, self.parts, frame)
        if len(self.parts) == 1:
            return key
        place = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.where(self.keys[place] == key, place, -1)

    @property
    def labels(self) -> list[str]:
        """The name of each level, ``a:b`` for a combination."""
        columns = []
        key = self.keys
        for part in reversed(self.parts):
            key, place = np.divmod(key, len(part))
            names = [_label(level) for level in part]
            columns.append([names[at] for at in place])
        return [":".join(names) for names in zip(*reversed(columns), strict=True)]


def _levels(column: Any) -> Any:
    """Return the levels of one column as a pandas index."""
    pandas, _, _ = libraries()
    if isinstance(column.dtype, pandas.CategoricalDtype):
        return column.cat.remove_unused_categories().cat.categories
    return pandas.Index(pandas.factorize(column, sort=True)[1])


def _keys(factors: tuple[str, ...], parts: tuple[Any, ...], frame: Any) -> Array:
    """Return the number that the places of a row's levels make, -1 where one of them is not there."""
    pandas, _, _ = libraries()
    key: Any = 0
    known: Any = True
    for name, part in zip(factors, parts, strict=True):
        column = frame[name]
        if isinstance(column.dtype, pandas.CategoricalDtype):
            place = part.get_indexer(column.cat.categories)[column.cat.codes]
            place = np.where(column.cat.codes < 0, -1, place)
        else:
            place = part.get_indexer(column)
        if len(place) and np.max(place) < 0:
            _check_kind(name, part, column.dropna())
        known = known & (place >= 0)
        key = key * len(part) + place
    return np.where(known, key, -1).astype(np.int64)


def _check_kind(name: str, part: Any, values: Any) -> None:
    """Raise for numbers where the levels are texts, or the other way round: no level would ever be known."""
    pandas, _, _ = libraries()
    wanted, given = (pandas.api.types.infer_dtype(each) in NUMBERS for each in (part, values))
    if len(values) and wanted != given:
        right, wrong = ("numbers", "texts") if wanted else ("texts", "numbers")
        raise ArgumentError(
            f"Column {name!r} must have levels that are {right}, such as {part[0]}, as in the table that was fitted; "
            f"it has {wrong}, such as {values.iloc[0]}."
        )


def _label(level: Any) -> str:
    """Return a level as people write it: a whole number without its decimal point."""
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)


#: What pandas calls levels that are numbers.
NUMBERS = ("integer", "floating", "mixed-integer-float", "boolean")
#: Fixed effects with a larger share of entries that are not 0 are stored dense.
DENSE_SHARE = 0.25


@dataclass(frozen=True)
class Block:
    """Columns that belong together: those of a fixed term, or those of one effect of groups, which share a scale."""

    name: str
    columns: slice
    levels: Levels | None = None

    @property
    def size(self) -> int:
        """Number of columns."""
        return self.columns.stop - self.columns.start


class Unseen(NamedTuple):
    """Rows whose level of a block did not occur in the fit, and the value that multiplies the level's effect."""

    block: Block
    rows: Array
    values: Array


class Rows(NamedTuple):
    """The design of some rows: the matrix, the offset of each row, and effects of levels that the fit did not see."""

    matrix: Any
    offset: Array
    unseen: tuple[Unseen, ...]


@dataclass(frozen=True)
class _GroupBlocks:
    """One term of groups: how its expression is made, its levels, and a block for each column of the expression."""

    spec: Any
    levels: Levels
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Design:
    """What a formula has learned from a table: names, blocks, and how to make the same columns for new rows."""

    terms: Terms
    context: Mapping[str, Any]
    spec: Any
    fixed: tuple[Block, ...]
    grouped: tuple[_GroupBlocks, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks in the order of their columns."""
        return (*self.fixed, *(block for term in self.grouped for block in term.blocks))

    @property
    def n_fixed(self) -> int:
        """Number of fixed effects, the leading columns."""
        return len(self.spec.column_names)

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return max((block.columns.stop for block in self.blocks), default=0)

    @property
    def fixed_names(self) -> list[str]:
        """The names of the fixed effects' columns."""
        return list(self.spec.column_names)

    @property
    def names(self) -> list[str]:
        """The name of every column: that of the effect, with the level in brackets for groups."""
        names = self.fixed_names
        for term in self.grouped:
            labels = term.levels.labels
            names.extend(f"{block.name}[{label}]" for block in term.blocks for label in labels)
        return names

    def rows(self, frame: Any) -> Rows:
        """Return the design of the rows of a frame: the same columns, whatever levels it has."""
        parts, unseen = [_checked(again(self.spec, frame, self.context), self.fixed_names)], []
        for term in self.grouped:
            values = _values(again(term.spec, frame, self.context), term.spec)
            codes = term.levels.codes(frame)
            new = np.flatnonzero(codes < 0)
            for block, value in zip(term.blocks, values.T, strict=True):
                parts.append(_one_hot(codes, value, len(term.levels)))
                if len(new):
                    unseen.append(Unseen(block, new, value[new]))
        return Rows(_joined(parts), self.offset(frame), tuple(unseen))

    def offset(self, frame: Any) -> Array:
        """Return the sum of the formula's offsets."""
        total = np.zeros(len(frame))
        for expression in self.terms.offsets:
            total += _finite(f"offset({expression})", evaluate(expression, frame, self.context))
        return total


def learn_design(terms: Terms, frame: Any, context: Mapping[str, Any]) -> tuple[Design, Rows]:
    """Return the design that a formula makes of a frame without missing entries, and that of the frame's own rows."""
    design = learn_from(terms, frame, context)
    return design, design.rows(frame)


def learn_from(
    terms: Terms, frame: Any, context: Mapping[str, Any], distinct: Mapping[tuple[str, ...], Any] | None = None
) -> Design:
    """Return the design that a formula makes of a frame; ``distinct`` has the levels of factors that it has not."""
    for expression in (terms.fixed, *(term.expression for term in terms.groups)):
        refuse_times(expression, frame)
    fixed = model_matrix(terms.fixed, frame, context, sparse=_has_categories(terms.fixed, frame))
    spec = fixed.model_spec
    blocks = tuple(_fixed_blocks(spec))
    grouped: list[_GroupBlocks] = []
    start = len(spec.column_names)
    for term in terms.groups:
        part = model_matrix(term.expression, frame, context, sparse=False).model_spec
        levels = Levels.learn(term.factors, frame if distinct is None else distinct[term.factors])
        ends = start + len(levels) * np.arange(len(part.column_names) + 1)
        own = (f"{'1' if name == 'Intercept' else name} | {term.factor}" for name in part.column_names)
        made = tuple(
            Block(name, slice(int(first), int(last)), levels)
            for name, first, last in zip(own, ends[:-1], ends[1:], strict=True)
        )
        grouped.append(_GroupBlocks(part, levels, made))
        start = int(ends[-1])
    design = Design(terms, context, spec, blocks, tuple(grouped))
    _check_blocks(design)
    return design


def _fixed_blocks(spec: Any) -> Any:
    for term, columns in spec.term_slices.items():
        if columns.stop > columns.start:
            yield Block("Intercept" if str(term) == "1" else str(term), columns)


def _check_blocks(design: Design) -> None:
    names = [block.name for block in design.blocks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ArgumentError(f"formula must have each effect once; ({twice[0]}) stands there twice.")
    if not names:
        raise ArgumentError(f"formula must have at least one term; {design.terms.formula!r} has none.")


def _has_categories(fixed: str, frame: Any) -> bool:
    """Whether fixed effects may be mostly zeros: some column is no number, or is taken as categories."""
    used = [name for name in names_in(fixed) if name in frame]
    return "C(" in fixed or any(frame[name].dtype.kind not in "biuf" for name in used)


def _checked(matrix: Any, names: list[str]) -> Any:
    """Return the fixed effects as a dense array or in CSR, whichever is smaller, if all of them are finite."""
    plain: Any = matrix.__wrapped__
    if not scipy.sparse.issparse(matrix.__wrapped__):
        plain = np.asarray(plain, np.float64)
        bad = ~np.isfinite(plain).all(axis=0)
    else:
        plain = scipy.sparse.csc_array(plain, dtype=np.float64)
        bad = np.array([not np.isfinite(plain.data[a:b]).all() for a, b in pairwise(plain.indptr)])
        plain = plain.toarray() if plain.nnz >= DENSE_SHARE * np.prod(plain.shape) else plain.tocsr()
    if bad.any():
        raise ArgumentError(f"formula: {names[int(np.argmax(bad))]!r} must be finite; it has NaN or infinity.")
    return plain


def _values(matrix: Any, spec: Any) -> Array:
    """Return the columns of a group's expression, dense: they are few."""
    values = np.asarray(matrix.__wrapped__, np.float64)
    for name, column in zip(spec.column_names, values.T, strict=True):
        _finite(name, column)
    return values


def _finite(name: str, values: Array) -> Array:
    if not np.isfinite(values).all():
        raise ArgumentError(f"formula: {name!r} must be finite; it has NaN or infinity.")
    return values


def _one_hot(codes: Array, values: Array, count: int) -> Any:
    """Return the sparse block with ``values[i]`` in column ``codes[i]`` of row i, nothing where the code is -1."""
    known = codes >= 0
    indptr = np.concatenate([[0], np.cumsum(known)])
    return scipy.sparse.csr_array(
        (values[known], codes[known].astype(np.int32), indptr.astype(np.int32)), shape=(len(codes), count)
    )


def _joined(parts: list[Any]) -> Any:
    """Return the blocks side by side: dense if there is only a dense one."""
    parts = [part for part in parts if part.shape[1]] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return scipy.sparse.csr_array(scipy.sparse.hstack([scipy.sparse.csr_array(part) for part in parts], format="csr"))
