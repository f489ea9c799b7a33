"""``forestmix regress``, ``predict`` and ``compare``: regressions of tables, by formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forestmix.cli.options import Json, Level, RowFamily, SaveTo

Table = Annotated[
    Path, typer.Argument(metavar="TABLE", help="A csv, tsv, parquet or nc file with a column for each name.")
]
Saved = Annotated[Path, typer.Argument(metavar="FIT", help="A fit that regress saved.")]
Trials = Annotated[str | None, typer.Option(help="Column with the trials of a binomial response, or one number.")]
Offset = Annotated[str | None, typer.Option(help="Column that is added to the predictor, or one number.")]


def regress(
    table: Table,
    formula: Annotated[str, typer.Argument(help='Such as "y ~ a + C(b) + (1 | g)".')],
    family: Annotated[
        RowFamily, typer.Option(help="Family of the response, with its usual link.")
    ] = RowFamily.gaussian,
    prior: Annotated[
        list[str] | None,
        typer.Option(help='NAME=SD, such as "age=0.5", for one term; "flat" for all fixed effects. May be repeated.'),
    ] = None,
    trials: Trials = None,
    offset: Offset = None,
    weights: Annotated[str | None, typer.Option(help="Column with case weights.")] = None,
    level: Level = 0.9,
    out: SaveTo = None,
    json: Json = False,
) -> None:
    """Fit a Bayesian regression of a table by a formula.

    Ctrl-C stops the fit, saves what there is, and ends with the code 130; one
    that does not converge ends with 1.

    Example:
    [bold]forestmix regress data.csv "y ~ a + (1 | g)" --family poisson --out fit.nc[/bold]
    and then [bold]forestmix report fit.nc[/bold].
    """
    import forestmix as fmx
    from forestmix.cli.group import ended, watched
    from forestmix.cli.inputs import about, check_out, read_table
    from forestmix.cli.show import records, show_json, show_line, show_table

    check_out(out)
    priors = read_priors(prior or [])
    data = read_table(table)
    columns = {"trials": column_or_number(trials), "offset": column_or_number(offset), "weights": weights}
    with watched() as watch, about(str(table)):
        fit = fmx.regress(formula, data, family.value, prior=priors, callback=watch, **columns)
    summary = fit.summary(level)
    if out is not None:
        fit.save(out)
    if json:
        facts = {"command": "regress", "formula": fit.formula, "family": fit.family, "rows": fit.model.n_observed}
        facts |= {"converged": fit.status is fmx.Status.CONVERGED, "notes": summary.notes}
        show_json(facts | {"summary": records(summary), "out": None if out is None else str(out)})
    else:
        show_table(summary)
        if out is not None:
            show_line(f"Saved: {out}")
    ended(watch, out, fit.status is fmx.Status.CONVERGED)


def read_priors(given: list[str]) -> Any:
    """Return priors by the names of terms."""
    import forestmix as fmx

    if given == ["flat"]:
        return "flat"
    priors = {}
    for text in given:
        name, _, sd = text.rpartition("=")
        try:
            priors[name.strip()] = float(sd)
        except ValueError:
            priors[""] = 0.0
        if not name.strip() or "" in priors:
            raise fmx.ArgumentError(f'--prior must be NAME=SD, such as "age=0.5", or flat alone; got {text!r}.')
    return priors or None


def column_or_number(given: str | None) -> Any:
    """Return a number where one was given, else the name of a column."""
    try:
        return None if given is None else float(given)
    except ValueError:
        return given


def predict(
    fit: Saved,
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="New rows: csv, tsv, parquet or nc.")],
    trials: Trials = None,
    offset: Offset = None,
    level: Level = 0.9,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV file for the predictions; standard output without it.")
    ] = None,
    json: Json = False,
) -> None:
    """Predict the response of new rows: mean, interval, and the linear predictor.

    Example: [bold]forestmix predict fit.nc new.csv --out p.csv[/bold]
    """
    import forestmix as fmx
    from forestmix.cli.inputs import about, check_out, read_table
    from forestmix.cli.show import records, show_json, show_line
    from forestmix.paper.output import csv_bytes, write_bytes

    check_out(out, files=False)
    loaded = loaded_as(fit, fmx.Fit, "a fit of regress")
    data = read_table(table)
    with about(str(table)):
        found = loaded.predict(data, level, trials=column_or_number(trials), offset=column_or_number(offset))
    rows = [list(row.values()) for row in records(found)]
    content = csv_bytes(["row", *found.columns], rows)
    if out is not None:
        write_bytes(out, content)
    if json:
        show_json({"command": "predict", "level": level, "predictions": records(found)})
    elif out is None:
        typer.echo(content.decode(), nl=False)
    else:
        show_line(f"Saved: {out}, {len(rows):,} rows.")


def compare(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Fits or posteriors of the same data.")],
    json: Json = False,
) -> None:
    """Compare fits of the same data by how well they predict rows that are left out, the best first.

    Example: [bold]forestmix compare with_ward.nc without.nc[/bold]
    """
    import forestmix as fmx
    from forestmix.cli.show import records, show_json, show_line, show_table
    from forestmix.posterior.result import reported

    if len({path.resolve() for path in files}) < max(len(files), 2):
        raise fmx.ArgumentError("compare needs two files or more, each of them once.")
    stems = [path.stem for path in files]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in files]
    kinds = (fmx.Fit, fmx.Result, fmx.Posterior)
    models = {}
    for name, path in zip(names, files, strict=True):
        loaded = loaded_as(path, kinds, "a fit, a result or a posterior")
        models[name] = reported(loaded) if isinstance(loaded, fmx.Result) else loaded
    table = fmx.compare(models)
    if json:
        show_json({"command": "compare", "models": records(table)})
        return
    show_table(table)
    show_line("A difference within a few of its standard errors does not tell the models apart.")


def loaded_as(path: Path, kinds: Any, words: str) -> Any:
    """Return what a file holds, once it is known to be of the kind that a command needs."""
    import forestmix as fmx
    from forestmix.cli.inputs import about

    with about(str(path)):
        loaded = fmx.load(path)
    if not isinstance(loaded, kinds):
        raise fmx.ArgumentError(f"{path} must hold {words}; it holds a {type(loaded).__name__}.")
    return loaded
