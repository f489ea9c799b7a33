"""The second half of the demo: a regression from a CSV file by a formula, with its summary and its report."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

FORMULA = "visits ~ age + smoker + C(ward) + (1 | subject) + offset(log(months))"


def demo_regression(folder: Path) -> None:
    """Fit doctor visits of 150 people, write the fit and its report, and show the summary and the same as commands.

    An installation without the extras that this needs shows how to get them.
    """
    from forestmix.cli.options import RowFamily
    from forestmix.cli.regress import regress
    from forestmix.cli.report import report
    from forestmix.cli.show import show_line
    from forestmix.errors import MissingExtraError
    from forestmix.paper.output import write_bytes

    table, fit, page = (folder / name for name in ("clinic.csv", "regression.nc", "regression.html"))
    write_bytes(table, (resources.files("forestmix.data") / "tables" / "clinic.csv").read_bytes())
    show_line(f'\n$ forestmix regress {table} "{FORMULA}" --family poisson --out {fit}', "bold")
    try:
        regress(table, FORMULA, RowFamily.poisson, out=fit)
    except MissingExtraError as error:
        show_line(f"The regression is left out. {error}")
        return
    show_line(f"\n$ forestmix report {fit}", "bold")
    report(fit, page)
