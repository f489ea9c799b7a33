"""Formulas in files: what of them may be stored, and how new rows get their columns after loading.

A formula's transformations remember something of the table that it was fitted to, such as a mean or the knots of a
spline. The file holds that table and the formula, and the columns are learned from them again when the first new rows
come: the same state from the same numbers, whatever the transformation.

To make columns, a formula is evaluated. One that comes from a file must therefore be harmless: its terms are columns,
numbers, texts, operators, and calls of the functions listed here. Others are refused when a fit is saved, and again
when a file is loaded. Loading itself evaluates nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from forestmix.errors import ForestmixError
from forestmix.regression.expressions import again, model_matrix
from forestmix.regression.frames import libraries
from forestmix.regression.terms import Terms, pair_of_columns

#: Functions that formulas know by themselves.
FUNCTIONS = {
    "C", "Diff", "Helmert", "I", "Poly", "Q", "Sum", "Treatment", "bs", "cc", "center", "cr", "cs", "exp", "exp10",
    "exp2", "hashed", "lag", "log", "log10", "log2", "poly", "scale", "standardize",
}  # fmt: skip
#: Those of ``np`` and of ``contr``.
MODULES = {
    "np": {
        "abs", "absolute", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "ceil", "clip", "cos",
        "cosh", "e", "exp", "exp2", "expm1", "fabs", "floor", "log", "log10", "log1p", "log2", "logaddexp", "maximum",
        "minimum", "pi", "power", "reciprocal", "round", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
        "where",
    },
    "contr": {"SAS", "diff", "helmert", "poly", "sum", "treatment"},
}  # fmt: skip
_NODES = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call,
    ast.keyword, ast.Attribute, ast.List, ast.Tuple, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


class StoredSpec:
    """What formulaic's specification is for a fit: names of columns, and the matrix of new rows.

    Args:
        expression: as formulaic reads it.
        column_names: of the matrix.
        sparse: whether the matrix is sparse.
        frame: the rows that it was learned from.
        context: constants that the formula uses.

    """

    def __init__(
        self, expression: str, column_names: list[str], sparse: bool, frame: Any, context: Mapping[str, Any]
    ) -> None:
        self.expression, self.column_names, self.sparse = expression, tuple(column_names), sparse
        self._frame, self._context = frame, context

    @cached_property
    def learned(self) -> Any:
        """Formulaic's own specification, learned again."""
        found = model_matrix(self.expression, self._frame, self._context, sparse=self.sparse).model_spec
        if tuple(found.column_names) != self.column_names:
            raise ForestmixError(
                f"The formula {self.expression!r} makes other columns than when the fit was saved; formulaic may have "
                f"changed. It makes {list(found.column_names)}, and made {list(self.column_names)}."
            )
        return found

    def get_model_matrix(self, frame: Any, **_: Any) -> Any:
        """Return the matrix of new rows."""
        return again(self.learned, frame, self._context)


def is_sparse(spec: Any) -> bool:
    """Whether a specification makes sparse matrices."""
    return spec.sparse if isinstance(spec, StoredSpec) else spec.output == "sparse"


def stored_context(terms: Terms, context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants of a context that a formula uses; raise if it uses something that a file cannot hold."""
    used = {
        node.id for factor in _factors(terms) for node in ast.walk(_tree(factor, terms)) if isinstance(node, ast.Name)
    }
    kept = {}
    for name in sorted(used & set(context)):
        value = context[name].item() if isinstance(context[name], np.generic) else context[name]
        if not isinstance(value, bool | int | float | str):
            raise ForestmixError(
                f"A file cannot hold {name!r} of the context, which the formula {terms.formula!r} uses: it is "
                f"{type(value).__name__}, and only numbers and texts can be stored. Put what it computes into a column "
                "of the table, and fit with that column."
            )
        kept[name] = value
    return kept


def check_formula(terms: Terms) -> None:
    """Raise unless every term of a formula is made of columns, constants, operators and known functions."""
    for factor in _factors(terms):
        for node in ast.walk(_tree(factor, terms)):
            if not isinstance(node, _NODES) or not _is_known(node):
                raise ForestmixError(
                    f"A file cannot hold the formula {terms.formula!r}, since {factor!r} is not made of columns, "
                    "constants, operators and the functions that formulas know (docs/files.md). Put what it computes "
                    "into a column of the table, and fit with that column."
                )


def _is_known(node: ast.AST) -> bool:
    """Whether a call or an attribute is of a listed function, a constant is plain, a name is not private."""
    if isinstance(node, ast.Call):
        function = node.func
        return isinstance(function, ast.Attribute) or (isinstance(function, ast.Name) and function.id in FUNCTIONS)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.attr in MODULES.get(node.value.id, ())
    if isinstance(node, ast.Constant):
        # formulaic puts texts into code between double quotes.
        text = node.value if isinstance(node.value, str) else ""
        return isinstance(node.value, str | int | float | None) and not set(text) & set('"\\')
    return not (isinstance(node, ast.Name) and node.id.startswith("__"))


def _factors(terms: Terms) -> Iterator[str]:
    """Yield the expressions of a formula that are evaluated, as Python."""
    _, _, formulaic = libraries()
    responses = pair_of_columns(terms.response) or (terms.response,)
    evaluated = (f"0 + {{{text}}}" for text in (*terms.offsets, *responses) if not _is_quoted(text))
    for text in (terms.fixed, *(term.expression for term in terms.groups), *evaluated):
        for term in formulaic.Formula(text):
            for factor in term.factors:
                if factor.eval_method.value == "python":
                    yield factor.expr


def _is_quoted(text: str) -> bool:
    """Whether a text is the name of one column in backticks."""
    return len(text) > 2 and text[0] == text[-1] == "`" and "`" not in text[1:-1]


def _tree(factor: str, terms: Terms) -> ast.Expression:
    from formulaic.utils.code import sanitize_variable_names

    try:
        return ast.parse(sanitize_variable_names(factor, {}, {}), mode="eval")
    except SyntaxError as error:
        raise ForestmixError(f"The formula {terms.formula!r} has {factor!r}, which cannot be read.") from error
