"""Codecs of fitted regressions: formula, table, priors and solution.

Columns of the table are those that ``forestmix.regression.frames`` makes: numbers, booleans, times, categories and
texts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.errors import ForestmixError
from forestmix.files.codec import Codec, record
from forestmix.files.formulas import StoredSpec, check_formula, is_sparse, stored_context
from forestmix.inference.status import Status
from forestmix.regression.cases import Cases
from forestmix.regression.chunked_fit import FitWithoutRows
from forestmix.regression.fit import Fit
from forestmix.regression.formula import Block, Design, Levels, _GroupBlocks
from forestmix.regression.frames import libraries
from forestmix.regression.priors import BlockPrior, Priors
from forestmix.regression.solve import Solution
from forestmix.regression.terms import parse


def _column(name: str, column: Any) -> dict[str, Any]:
    """Return a column of a frame, or the levels of a factor, an index of pandas."""
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
    """Return the entries, ``None`` for those that are missing."""
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
        categories = pandas.Index(_built_column(pandas, given["categories"]))
        return pandas.Categorical.from_codes(given["codes"], categories=categories, ordered=given["ordered"])
    if form == "numbers":
        return given["values"]
    if form == "times":
        if np.dtype(given["dtype"]).kind not in "mM":
            raise ValueError(f"times of {given['dtype']}")
        return given["values"].view(given["dtype"])
    if form != "texts":
        raise ValueError(f"a column of {form!r}")
    return pandas.array(given["values"], dtype="str" if given["dtype"].startswith("str") else object)


_CASES = ("rows", "response", "trials", "offset", "weights", "labels", "message")


def _cases(cases: Cases) -> dict[str, Any]:
    classes = cases.classes
    if classes is not None and not all(isinstance(one, str | bool | int | float) for one in classes):
        raise ForestmixError(f"A file cannot hold the classes {classes!r}; make the response texts or numbers.")
    return {
        **{name: getattr(cases, name) for name in _CASES},
        "frame": [{"name": name, "column": _column(name, cases.frame[name])} for name in cases.frame.columns],
        "classes": None if classes is None else list(classes),
    }


def _built_cases(given: dict[str, Any]) -> Cases:
    pandas, _, _ = libraries()
    columns = {one["name"]: _built_column(pandas, one["column"]) for one in given["frame"]}
    classes = None if given["classes"] is None else tuple(given["classes"])
    plain = {name: given[name] for name in _CASES}
    return Cases(frame=pandas.DataFrame(columns, copy=False), classes=classes, **plain)


def _design(design: Design) -> dict[str, Any]:
    check_formula(design.terms)
    return {
        "formula": design.terms.formula,
        "context": stored_context(design.terms, design.context),
        "columns": list(design.spec.column_names),
        "sparse": is_sparse(design.spec),
        "fixed": [_block(block) for block in design.fixed],
        "grouped": [
            {
                "columns": list(term.spec.column_names), "levels": term.levels,
                "blocks": [_block(block) for block in term.blocks],
            }
            for term in design.grouped
        ],
    }  # fmt: skip


def _built_design(given: dict[str, Any], frame: Any) -> Design:
    terms, context = parse(given["formula"]), given["context"]
    check_formula(terms)
    grouped = []
    for term, part in zip(terms.groups, given["grouped"], strict=True):
        spec = StoredSpec(term.expression, part["columns"], False, frame, context)
        blocks = tuple(_built_block(block, part["levels"]) for block in part["blocks"])
        grouped.append(_GroupBlocks(spec, part["levels"], blocks))
    fixed = tuple(_built_block(block, None) for block in given["fixed"])
    spec = StoredSpec(terms.fixed, given["columns"], given["sparse"], frame, context)
    return Design(terms, context, spec, fixed, tuple(grouped))


def _block(block: Block) -> dict[str, Any]:
    return {"name": block.name, "start": block.columns.start, "stop": block.columns.stop}


def _built_block(given: dict[str, Any], levels: Levels | None) -> Block:
    return Block(given["name"], slice(given["start"], given["stop"]), levels)


def _levels(levels: Levels) -> dict[str, Any]:
    parts = [_column("the levels of a factor", part) for part in levels.parts]
    return {"factors": levels.factors, "parts": parts, "keys": levels.keys}


def _built_levels(given: dict[str, Any]) -> Levels:
    pandas, _, _ = libraries()
    parts = tuple(pandas.Index(_built_column(pandas, part)) for part in given["parts"])
    return Levels(tuple(given["factors"]), parts, given["keys"])


def _priors(priors: Priors) -> dict[str, Any]:
    return {"names": list(priors.blocks), "blocks": list(priors.blocks.values()), "noise": priors.noise}


def _built_priors(given: dict[str, Any]) -> Priors:
    return Priors(dict(zip(given["names"], given["blocks"], strict=True)), given["noise"])


def _fit(fit: Fit) -> dict[str, Any]:
    return {
        "family": fit.family,
        "cases": fit.cases,
        "design": _design(fit.design),
        "priors": fit.priors,
        "model": fit.model,
        "posterior": fit.posterior,
        "scales": [{"scale": scale, "posterior": one} for scale, one in fit.scales.items()],
        "message": fit.solution.message,
        "trace": fit.trace,
        "status": fit.status.name,
    }


def _built_fit(given: dict[str, Any], kind: type[Fit] = Fit) -> Fit:
    scales = {one["scale"]: one["posterior"] for one in given["scales"]}
    design = _built_design(given["design"], given["cases"].frame)
    solution = Solution(given["posterior"], scales, given["message"], given["trace"], Status[given["status"]])
    return kind(given["family"], design, given["priors"], given["cases"], given["model"], solution)


CODECS = (
    Codec("cases", Cases, _cases, _built_cases),
    Codec("levels", Levels, _levels, _built_levels),
    record("prior of a block", BlockPrior),
    Codec("priors", Priors, _priors, _built_priors),
    Codec("fit", Fit, _fit, _built_fit),
    Codec("fit without rows", FitWithoutRows, _fit, lambda given: _built_fit(given, FitWithoutRows)),
)
