"""What commands show of results: a table and a few lines, or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from forestmix.posterior.table import SHOWN, formatted
from forestmix.posterior.table import Table as Numbers


def show_json(content: dict[str, Any]) -> None:
    """Write JSON; numbers that are not finite, which JSON does not know, are null."""
    typer.echo(json.dumps(_finite(content), indent=2, ensure_ascii=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def records(table: Numbers) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries."""
    columns = {name: values.tolist() for name, values in table.columns.items()}
    return [
        {"name": name} | {label: values[row] for label, values in columns.items()}
        for row, name in enumerate(table.names)
    ]


def show_table(table: Numbers) -> None:
    """Show a table of numbers with its title and notes; the middle of a long one is left out."""
    cells = [formatted(values) for values in table.columns.values()]
    rows = [[name, *(column[row] for column in cells)] for row, name in enumerate(table.names)]
    if len(rows) > 2 * SHOWN:
        dots = ["..."] * (1 + len(cells))
        rows = [*rows[:SHOWN], dots, *rows[-SHOWN:]]
    show_rows(table.title, ["", *table.columns], rows)
    for note in table.notes:
        show_line(note)


def show_rows(title: str, header: Sequence[str], rows: Iterable[Sequence[str | Text]], text_columns: int = 1) -> None:
    """Show a table: its first columns hold text, which folds where the terminal is narrow; numbers never do."""
    if title:
        show_line(title, "bold")
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for label in header[:text_columns]:
        shown.add_column(label, overflow="fold", min_width=8)
    rows = list(rows)
    for place, label in enumerate(header[text_columns:], text_columns):
        # What rich takes for the least width of a column is its longest word.
        longest = max(len(cell) for cell in (label, *(row[place] for row in rows)))
        shown.add_column(label, justify="right", no_wrap=True, min_width=longest)
    for row in rows:
        shown.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    console = Console()
    least = shown.__rich_measure__(console, console.options.update(width=1000)).minimum
    if least > console.width:  # the terminal may break lines, but no number is cut
        console = Console(width=least)
        console.print(shown, soft_wrap=True)
    else:
        console.print(shown)


def show_line(text: str, style: str | None = None) -> None:
    """Show a line as it is: without markup, and without breaks inside a path."""
    Console().print(text, style=style, soft_wrap=True, highlight=False, markup=False)
