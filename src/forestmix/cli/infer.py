"""``forestmix infer``: latents of a model whose weights are in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestmix.cli.options import Covariance, Json, Level, RowFamily, SaveTo, Tolerance

if TYPE_CHECKING:
    from forestmix import Result
    from forestmix.cli.inputs import Loaded


def infer(
    weights: Annotated[str, typer.Argument(metavar="W", help="Weights, a row for each entry of x.")],
    observations: Annotated[str, typer.Argument(metavar="X", help="One observation, or a batch with one in a row.")],
    family: Annotated[RowFamily, typer.Option(help="Family of the rows.")] = RowFamily.gaussian,
    noise_sd: Annotated[float, typer.Option(help="Standard deviation of Gaussian rows.")] = 1.0,
    trials: Annotated[int, typer.Option(min=1, help="Trials of binomial rows.")] = 1,
    prior_sd: Annotated[float, typer.Option(help="Prior standard deviation of the latents.")] = 1.0,
    bias: Annotated[str | None, typer.Option(help="File with b, one number for each row; 0 without it.")] = None,
    covariance: Annotated[Covariance, typer.Option(help="Of q.")] = Covariance.factorised,
    tol: Tolerance = 1e-6,
    max_iter: Annotated[int, typer.Option(min=0, help="Iterations at most.")] = 10_000,
    level: Level = 0.9,
    out: SaveTo = None,
    json: Json = False,
) -> None:
    """Infer the latents y of x, where x_i depends on b_i + w_i . y.

    W and X are npy, npz (dense or sparse), mtx, csv, tsv, parquet or nc
    files; FILE:NAME chooses one of several arrays. NaN, or an empty entry, in
    X is missing.

    Ctrl-C stops the run, saves what there is, and ends with the code 130; a
    run that does not converge ends with 1.

    Example: [bold]forestmix infer W.npz x.npy --family bernoulli --out r.nc[/bold]
    and then [bold]forestmix report r.nc[/bold].
    """
    import numpy as np

    import forestmix as fmx
    from forestmix.cli.group import ended, watched
    from forestmix.cli.inputs import about, check_out, read_array

    check_out(out)
    W, x = read_array(weights), read_array(observations)
    b = 0.0 if bias is None else np.ravel(read_array(bias).values)
    values = fitting(x, W)
    rows = row_family(family.value, noise_sd, trials)
    with about("--prior-sd"):
        prior = fmx.Prior(fmx.Gaussian(prior_sd))
    with about(W.path):
        layer = fmx.Layer(rows, W.values, b)
        layer.labels = None if W.names is None else tuple(W.names)
        model = fmx.DEF(layer, prior=prior)
    with watched(tol) as watch, about(x.path):
        options: dict[str, Any] = {"covariance": covariance.value, "tol": tol, "max_iter": max_iter}
        result = fmx.infer(model, values, callback=watch, **options)
    if out is not None:
        result.save(out)
    show(result, level, None if out is None else str(out), json)
    ended(watch, out, bool(np.all(result.converged)))


def row_family(name: str, noise_sd: float, trials: int) -> Any:
    """Return the family of the rows; a noise sd or trials that are wrong are said by the option's name."""
    import forestmix as fmx
    from forestmix.cli.inputs import about

    if name == "gaussian":
        with about("--noise-sd"):
            return fmx.Gaussian(noise_sd)
    return {"bernoulli": fmx.Bernoulli(), "poisson": fmx.Poisson(), "binomial": fmx.Binomial(trials)}[name]


def fitting(x: Loaded, W: Loaded) -> Any:
    """Return the observations as (n,) or (N, n), or raise an error that names both files."""
    import forestmix as fmx
    from forestmix.cli.inputs import dense

    if W.values.ndim != 2:
        raise fmx.ArgumentError(f"{W.path} must hold a matrix; its shape is {W.values.shape}.")
    n = W.values.shape[0]
    values = dense(x.values)
    if values.ndim == 2 and 1 in values.shape and values.size == n:
        values = values.ravel()
    if values.shape[-1] != n:
        hint = " Its rows must be observations: transpose it." if values.shape[0] == n else ""
        raise fmx.ArgumentError(
            f"{x.path} must have {n:,} entries in an observation, one for each row of {W.path}; "
            f"its shape is {values.shape}.{hint}"
        )
    return values


def show(result: Result, level: float, out: str | None, json: bool) -> None:
    """Show how the run ended and the posterior to report; of a batch, how many converged."""
    import numpy as np

    from forestmix.cli.group import working
    from forestmix.cli.show import records, show_json, show_line, show_table

    single = result.data.single
    with working("posterior"):
        table = result.posterior().summary(level) if single else None
    if json:
        facts = {
            "command": "infer", "algorithm": result.algorithm, "objective_name": result.objective_name,
            "objective": result.objective, "converged": result.converged, "iterations": result.n_iter,
            "message": result.message, "out": out,
        }  # fmt: skip
        show_json(facts | ({} if table is None else {"summary": records(table)}))
        return
    if table is not None:
        show_table(table)
    show_line(f"{result.objective_name} {float(np.mean(result.objective)):,.6g}" + ("" if single else " on average"))
    show_line(result.message)
    if out is not None:
        show_line(f"Saved: {out}")
