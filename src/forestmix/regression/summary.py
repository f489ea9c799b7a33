"""A small table of results: plain text in a terminal, HTML in a notebook, a pandas frame for anything else."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.regression.frames import libraries

#: Rows that a display shows; the rest is counted.
SHOWN = 60


class Summary:
    """Numbers by row and column, with a title above and notes below.

    Args:
        index: the name of each row.
        columns: the numbers of each column by its name.
        title: what the table is of.
        notes: sentences below it.

    """

    def __init__(
        self, index: Sequence[str], columns: Mapping[str, Any], title: str = "", notes: Sequence[str] = ()
    ) -> None:
        self.index = list(index)
        self.columns = {name: np.asarray(values, np.float64) for name, values in columns.items()}
        self.title, self.notes = title, [note for note in notes if note]

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, name: str) -> dict[str, float]:
        """Return the numbers of a row by its name."""
        place = self.index.index(name)
        return {column: float(values[place]) for column, values in self.columns.items()}

    def take(self, rows: Sequence[int]) -> Summary:
        """Return the chosen rows as a table."""
        columns = {name: values[list(rows)] for name, values in self.columns.items()}
        return Summary([self.index[row] for row in rows], columns, self.title, self.notes)

    def to_pandas(self) -> Any:
        """Return a pandas frame with the names as its index."""
        pandas, _, _ = libraries()
        return pandas.DataFrame(self.columns, index=self.index)

    def __repr__(self) -> str:
        width = max([len(name) for name in self.index[:SHOWN]], default=0)
        texts = {name: _formatted(values[:SHOWN]) for name, values in self.columns.items()}
        widths = {name: max(len(name), *map(len, column)) if column else len(name) for name, column in texts.items()}
        head = " " * width + "".join(f"  {name:>{widths[name]}}" for name in texts)
        lines = [
            f"{name:<{width}}" + "".join(f"  {texts[column][row]:>{widths[column]}}" for column in texts)
            for row, name in enumerate(self.index[:SHOWN])
        ]
        return "\n".join([*([self.title, ""] if self.title else []), head, *lines, *self._below()])

    def _repr_html_(self) -> str:
        texts = [_formatted(values[:SHOWN]) for values in self.columns.values()]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in ("", *self.columns))
        body = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            + "".join(f"<td style='text-align:right'>{column[row]}</td>" for column in texts)
            + "</tr>"
            for row, name in enumerate(self.index[:SHOWN])
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._below())
        title = f"<p><b>{html.escape(self.title)}</b></p>" if self.title else ""
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def _below(self) -> list[str]:
        more = len(self.index) - SHOWN
        return [*([f"... and {more} more rows; to_pandas() has all."] if more > 0 else []), *self.notes]


def _formatted(values: Array) -> list[str]:
    """Return numbers of one column with four digits of the one of middle size, so that they line up."""
    finite = np.abs(values[np.isfinite(values) & (values != 0)])
    if not len(finite):
        return [f"{value:g}" for value in values]
    size = float(np.median(finite))
    if size >= 1e6 or finite.max() >= 1e8 or size < 1e-4:
        return [f"{value:.4g}" for value in values]
    digits = int(np.clip(3 - np.floor(np.log10(size)), 0, 7))
    return [f"{value:.{digits}f}" for value in values]


def interval_columns(mean: Array, sd: Array, low: Array, high: Array, level: float) -> dict[str, Array]:
    """Return the columns of a table of effects, the ends named by their percentages: ``5%`` and ``95%``."""
    ends = [f"{50 * (1 - level):.4g}%", f"{50 * (1 + level):.4g}%"]
    return {"mean": mean, "sd": sd, ends[0]: low, ends[1]: high}
