"""``forestmix forest``: groups of variables, each with a latent of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from forestmix.cli.options import ForestFamily, Json, SaveTo, Seed


def forest(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="Observations, one in a row; the first line of a csv has the names.")
    ],
    trees: Annotated[int, typer.Option("--trees", min=1, help="Number of trees.")] = 2,
    family: Annotated[ForestFamily, typer.Option(help="Family of the variables.")] = ForestFamily.gaussian,
    max_iter: Annotated[int, typer.Option(min=1, help="Sweeps of each start at most.")] = 300,
    seed: Seed = 0,
    out: SaveTo = None,
    json: Json = False,
) -> None:
    """Learn a forest: which variables belong together, each group as the children of one latent.

    Ctrl-C stops the search, saves the best forest so far, and ends with the
    code 130; one that does not converge ends with 1.

    Example: [bold]forestmix forest data.csv --trees 8 --out forest.nc[/bold]
    and then [bold]forestmix report forest.nc[/bold].
    """
    import numpy as np

    import forestmix as fmx
    from forestmix.cli.group import ended, watched
    from forestmix.cli.inputs import about, check_out, dense, read_array
    from forestmix.cli.show import show_json, show_line, show_rows
    from forestmix.report.saved import forest_table

    check_out(out)
    loaded = read_array(table)
    X = dense(loaded.values)
    names = loaded.names or [f"x{i}" for i in range(X.shape[-1])]
    model = fmx.ForestMixtureModel(trees, family=family.value, max_iter=max_iter, random_state=seed)
    with watched() as watch, about(loaded.path):
        model.fit(X, callback=watch)
    if loaded.names is not None:
        model.feature_names_in_ = np.array(names, object)
    if out is not None:
        model.save(out)
    rows = forest_table(model, names)
    if json:
        keys = ("variable", "tree", "probability", "strength")
        parents = [dict(zip(keys, (row[0], int(row[1]), *map(float, row[2:])), strict=True)) for row in rows]
        facts = {"command": "forest", "trees": trees, "elbo": model.elbo_, "converged": model.converged_}
        show_json(facts | {"parents": parents, "out": None if out is None else str(out)})
    else:
        show_rows("Parents of the variables, tree by tree", ["variable", "tree", "probability", "strength"], rows)
        show_line(f"ELBO {model.elbo_:,.6g}; {'converged' if model.converged_ else 'not converged'}.")
        if out is not None:
            show_line(f"Saved: {out}")
    ended(watch, out, model.converged_)
