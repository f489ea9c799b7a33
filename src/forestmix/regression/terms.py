"""The terms of a formula: the response, fixed effects, offsets, and effects of groups such as ``(1 + x | g)``.

Only the terms of groups and the offsets are read here; fixed effects go to formulaic as they stand. A group's term is a
pair of parentheses with a bar inside, ``(expression | factor)``::

    (1 | g)      an intercept for each level of g
    (x | g)      an intercept and a slope of x for each level; the same as (1 + x | g) and (x || g)
    (0 + x | g)  a slope only
    (1 | a:b)    an intercept for each pair of levels that occurs
    (1 | a/b)    b nested in a: (1 | a) + (1 | a:b)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from keyword import iskeyword

from forestmix.errors import ArgumentError

#: What closes each bracket and each quotation mark.
_CLOSING = {"(": ")", "[": "]", "{": "}", "'": "'", '"': '"', "`": "`"}
_QUOTES = "'\"`"
_QUOTATION = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
#: A column's name as patsy quotes it, ``Q("my column")``: the same as one in backticks.
_PATSY_QUOTE = re.compile(r"""\bQ\(\s*(?:'([^'`]*)'|"([^"`]*)")\s*\)""")
#: What is in quotation marks, or a dot by itself: no part of a number or of ``np.log``.
_DOT = re.compile(rf"""({_QUOTATION.pattern})|(?<![\w.)\]`])\.(?![\w.])""")


@dataclass(frozen=True)
class GroupTerm:
    """Effects that each level of a factor has: ``expression`` for each combination of levels of ``factors``."""

    expression: str
    factors: tuple[str, ...]

    @property
    def factor(self) -> str:
        """The factor as one name, ``a:b`` for pairs of levels."""
        return ":".join(self.factors)


@dataclass(frozen=True)
class Terms:
    """A formula taken apart: ``fixed`` is what formulaic reads, ``offsets`` are the expressions inside ``offset()``."""

    formula: str
    response: str
    fixed: str
    groups: tuple[GroupTerm, ...]
    offsets: tuple[str, ...]


@dataclass(frozen=True)
class _Piece:
    """A part of the formula with its place, so that errors can point at it."""

    formula: str
    start: int
    end: int
    sign: str = "+"

    @property
    def text(self) -> str:
        return self.formula[self.start : self.end]

    def within(self, start: int, end: int, sign: str = "+") -> _Piece:
        """Return the part from ``start`` to ``end`` of the formula, without the spaces around it."""
        text = self.formula[start:end]
        left = len(text) - len(text.lstrip())
        return _Piece(self.formula, start + left, start + max(left, len(text.rstrip())), sign)

    def error(self, message: str) -> ArgumentError:
        """Return an error that shows the formula with this part marked."""
        marks = " " * self.start + "^" * max(1, self.end - self.start)
        return ArgumentError(f"formula: {message}\n  {self.formula}\n  {marks}")


def parse(formula: str) -> Terms:
    """Take a formula apart; errors point at the term that cannot be read."""
    if not isinstance(formula, str):
        raise ArgumentError(f"formula must be a string such as 'y ~ x + (1 | g)'; got {type(formula).__name__}.")
    formula = _PATSY_QUOTE.sub(r"`\1\2`", " ".join(formula.split()))
    whole = _Piece(formula, 0, len(formula))
    sides = list(_split(whole, "~"))
    if len(sides) != 2 or not all(side.text for side in sides):
        raise whole.error("it must have a response and terms with one ~ between them, such as 'y ~ x + (1 | g)'.")
    fixed: list[str] = []
    groups: list[GroupTerm] = []
    offsets: list[str] = []
    for piece in _split(sides[1], "+-"):
        if not piece.text:
            if piece.sign == "-" or piece.start > sides[1].start:
                raise piece.error("a term is missing beside this sign.")
            continue
        if "|" in _QUOTATION.sub("", piece.text):
            groups.extend(_group_terms(piece))
        elif piece.text.startswith("offset(") and piece.text.endswith(")"):
            offsets.append(_added(piece).text[len("offset(") : -1].strip())
        else:
            fixed.append(f"{piece.sign} {piece.text}")
    if len({(term.expression, term.factor) for term in groups}) < len(groups):
        raise whole.error("a term of groups stands there twice.")
    return Terms(formula, sides[0].text, " ".join(fixed).removeprefix("+ ") or "1", tuple(groups), tuple(offsets))


def pair_of_columns(response: str) -> tuple[str, str] | None:
    """Return successes and failures of a response ``cbind(successes, failures)``, None for any other response."""
    if not (response.startswith("cbind(") and response.endswith(")")):
        return None
    inside = _Piece(response, len("cbind("), len(response) - 1)
    parts = [part.text for part in _split(inside, ",")]
    if len(parts) != 2 or not all(parts):
        raise inside.error("cbind must have two columns, successes and failures.")
    return parts[0], parts[1]


def has_dot(text: str) -> bool:
    """Return whether a dot stands by itself, for all other columns of the table."""
    return any(found[1] is None for found in _DOT.finditer(text))


def with_columns(text: str, columns: Sequence[str]) -> str:
    """Return a part of a formula with its dots replaced by the sum of some columns."""
    names = (name if name.isidentifier() and not iskeyword(name) else f"`{name}`" for name in columns)
    every = " + ".join(names)

    def replaced(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        before, after = text[: found.start()].rstrip()[-1:], text[found.end() :].lstrip()[:1]
        return every if before in "~+" and after in "+-" else f"({every})"

    return _DOT.sub(replaced, text)


def column_name(factor: str) -> str:
    """Return the name of a column as the table has it: without backticks."""
    return factor.strip("`")


def _group_terms(piece: _Piece) -> Iterator[GroupTerm]:
    """Yield the terms of groups that ``(expression | factor)`` stands for; a nested factor is several."""
    text = _added(piece).text
    if not (text.startswith("(") and [place for place, _ in _outside(piece)] == [piece.end - 1]):
        raise piece.error("a term of groups stands by itself, '(expression | factor)', joined to others by +.")
    inside = piece.within(piece.start + 1, piece.end - 1)
    sides = [side for side in _split(inside, "|") if side.text or side.start in (inside.start, inside.end)]
    if len(sides) != 2 or not all(side.text for side in sides):
        raise piece.error("a term of groups has an expression and a factor around one bar, such as (1 | g).")
    expression, factor = sides
    for levels in _nested(factor):
        yield GroupTerm(" ".join(expression.text.split()), levels)


def _nested(factor: _Piece) -> Iterator[tuple[str, ...]]:
    """Yield the factors of ``a/b``: a, then a:b; of ``a:b`` itself."""
    levels: tuple[str, ...] = ()
    for part in _split(factor, "/"):
        names = list(_split(part, ":"))
        for name in names:
            if not (name.text.isidentifier() or (len(name.text) > 2 and name.text[0] == name.text[-1] == "`")):
                raise name.error(
                    "a factor is a column, or columns joined by : or /; write (1 | a) + (1 | b) for crossed factors "
                    "and backticks around a name with other characters."
                )
        levels += tuple(column_name(name.text) for name in names)
        yield levels


def _added(piece: _Piece) -> _Piece:
    if piece.sign == "-":
        raise piece.error("this term cannot be taken away with a minus sign.")
    return piece


def _split(piece: _Piece, separators: str) -> Iterator[_Piece]:
    """Yield the parts of a piece between separators that stand outside brackets and quotes."""
    start, sign = piece.start, "+"
    for place, character in _outside(piece):
        if character in separators:
            yield piece.within(start, place, sign)
            start, sign = place + 1, character
    yield piece.within(start, piece.end, sign)


def _outside(piece: _Piece) -> Iterator[tuple[int, str]]:
    """Yield the characters of a piece outside brackets and quotes, and those that close them, with their places."""
    opened: list[int] = []
    for place in range(piece.start, piece.end):
        character = piece.formula[place]
        wanted = _CLOSING[piece.formula[opened[-1]]] if opened else ""
        if character == wanted:
            opened.pop()
        elif wanted in _QUOTES and opened:
            continue
        elif character in _CLOSING:
            opened.append(place)
        elif character in ")]}":
            if opened:
                break
            raise piece.within(place, place + 1).error("this bracket closes nothing.")
        if not opened:
            yield place, character
    if opened:
        raise piece.within(opened[-1], opened[-1] + 1).error("this bracket or quotation mark is never closed.")
