"""``regress``: from a formula and a table to a fit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from forestmix.inference.loop import Callback
from forestmix.regression.by_chunks import LeadingColumns, read_chunks
from forestmix.regression.cases import Extra, read_cases, spelled_out
from forestmix.regression.chunked_fit import ChunkedFit
from forestmix.regression.fit import Fit
from forestmix.regression.formula import learn_design
from forestmix.regression.frames import column_names
from forestmix.regression.priors import default_noise, default_priors, set_priors
from forestmix.regression.solve import (
    centre_and_unit,
    check_response,
    family_of,
    make_model,
    rows_with_response,
    solve,
)
from forestmix.regression.table_chunks import table_chunks
from forestmix.regression.terms import parse


def regress(
    formula: str,
    data: Any,
    family: str = "gaussian",
    *,
    prior: Mapping[str, Any] | str | None = None,
    trials: Any = None,
    offset: Any = None,
    weights: Any = None,
    missing: str = "drop",
    context: Mapping[str, Any] | None = None,
    progress: bool = False,
    callback: Callback | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 60.0,
) -> Fit:
    """Fit a Bayesian regression by a formula and a table (docs/table.md).

    Args:
        formula: such as ``"visits ~ age + C(ward) + (1 | subject)"``. Fixed effects are read by formulaic; effects of
            groups are ``(1 | g)``, ``(x | g)``, ``(0 + x | g)``, ``(1 | a/b)`` and ``(1 | a:b)``, each with an unknown
            scale for each of its columns; offsets are ``offset(log(t))``; a binomial response may be
            ``cbind(successes, failures)``; a dot stands for all columns that the formula does not use elsewhere.
        data: a frame of pandas, polars or another library that narwhals reads, or a dictionary of columns; a frame of
            Dask, a list of delayed frames or the path of Parquet files, which are read in chunks (docs/scaling.md).
        family: "gaussian", "bernoulli", "binomial" or "poisson", with its usual link.
        prior: priors by the names of terms, where the defaults should not hold (``fit.priors`` prints them): a number
            is an sd around 0, a pair a mean and an sd, a scale such as ``scales.HalfNormal(1.0)`` an unknown sd;
            "flat" makes it all but flat. "noise" is the sd of Gaussian rows, "fixed" are all fixed effects but the
            intercept; ``prior="flat"`` makes them all flat, the intercept too, and without groups the noise.
        trials: of a binomial response: a column's name, an array, or one number.
        offset: added to the predictor, likewise.
        weights: case weights, likewise; a row of weight 2 counts as two.
        missing: "drop" leaves out rows with a missing entry, "predict" keeps those that miss the response only, for
            ``fit.predict()``; ``fit.message`` says how many.
        context: functions and constants that the formula uses, by name; ``np`` is there.
        progress: show a progress bar.
        callback: called on the way, as that of ``infer``; the fit stops if it returns True, and is what there is.
        checkpoint: path of a file that the fit leaves its state in, and goes on from if it is there, as that of
            ``infer``; for a long fit of a large table (docs/scaling.md).
        checkpoint_seconds: seconds between two checkpoints.

    Returns:
        A ``Fit``: ``summary()``, ``predict(new_data)``, ``loo()``, ``check()``, ``plot()`` and ``posterior``.

    """
    context, table, extra, found = dict(context or {}), table_chunks(data), Extra(trials, offset, weights), None
    terms = spelled_out(parse(formula), column_names(data) if table is None else table.columns, extra)
    fixed: Any
    if table is None:
        cases = read_cases(terms, data, family, extra, missing, context)
        design, rows = learn_design(terms, cases.frame, context)
        matrix, shift, seen = rows_with_response(rows, cases)
        fixed = matrix[:, : design.n_fixed]
    else:
        found = read_chunks(terms, table, family, extra, missing, context)
        design, matrix, shift, seen = found.design, found.weights, found.offset, found.cases
        fixed = LeadingColumns(matrix, design.n_fixed)
    check_response(family, terms.response, seen.response, seen.trials)
    centre, unit = centre_and_unit(family, seen.response, seen.trials, shift, seen.weights)
    noise = default_noise(fixed, seen.response - shift, unit, seen.weights) if family == "gaussian" else None
    count = len(seen.response) if seen.weights is None else float(seen.weights.sum())
    priors = set_priors(default_priors(design, matrix, centre, unit, seen.weights, noise), design, prior, count)
    model = make_model(family_of(family, priors.noise, seen.trials), matrix, shift, priors, seen.weights, design.names)
    kept = {"checkpoint": checkpoint, "checkpoint_seconds": checkpoint_seconds}
    solution = solve(model, seen.response, progress=progress, callback=callback, **kept)
    if table is not None and found is not None:
        return ChunkedFit(family, found, priors, model, solution, table)
    return Fit(family, design, priors, cases, model, solution)
