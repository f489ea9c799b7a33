"""``forestmix report``: one HTML page on anything that was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What infer, regress or forest saved.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; FILE with the ending .html without it.")
    ] = None,
) -> None:
    """Write a report: a verdict, summary, pictures, checks, settings, on one page that needs nothing else.

    Example: [bold]forestmix report fit.nc --out report.html[/bold]
    """
    from forestmix.cli.frames import check_out
    from forestmix.cli.regress import loaded_as
    from forestmix.cli.show import show_line
    from forestmix.cli.watch import working
    from forestmix.report import write_saved

    page = out or file.with_suffix(".html")
    check_out(page, files=False)
    loaded = loaded_as(file, object, "anything that was saved")
    with working("Writing the report"):
        write_saved(page, loaded)
    show_line(f"Report: {page}")
