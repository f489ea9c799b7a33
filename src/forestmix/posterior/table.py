"""Small tables for people: text in a terminal, HTML in a notebook, pandas on request."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.arrays import Array
from forestmix.checks import between_zero_and_one, whole_number
from forestmix.errors import ArgumentError, ForestmixError, optional
from forestmix.tables import label_text

if TYPE_CHECKING:
    from forestmix.model import DEF
    from forestmix.posterior.posterior import Posterior

#: Rows that are shown of a longer table, at its start and at its end.
SHOWN = 12


class Table:
    """Columns of numbers with a name for each row.

    Args:
        names: what each row is called.
        columns: the columns by their titles, each with one entry for a row.
        title: a line above the table.
        notes: lines under it.

    """

    def __init__(
        self, names: Sequence[str], columns: Mapping[str, Any], title: str = "", notes: Sequence[str] = ()
    ) -> None:
        self.names, self.title, self.notes = list(map(str, names)), title, list(notes)
        self.columns = {label: np.asarray(values) for label, values in columns.items()}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, label: str) -> Array:
        """Return a column by its title."""
        return self.columns[label]

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        return "\n".join([*([self.title] if self.title else []), *(line.rstrip() for line in lines), *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *body = ([html.escape(cell) for cell in row] for row in self._rows())
        lines = ["<table>", f"<caption>{html.escape(self.title)}</caption>" if self.title else ""]
        lines.append("<thead><tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr></thead><tbody>")
        for name, *cells in body:
            lines.append(f"<tr><th>{name}</th>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        lines.append("</tbody></table>")
        lines += [f"<p>{html.escape(note)}</p>" for note in self.notes]
        return "".join(lines)

    def to_pandas(self) -> Any:
        """Return a pandas data frame with the names as its index."""
        pandas = optional("pandas", "to_pandas needs pandas: pip install pandas.")
        return pandas.DataFrame(self.columns, index=self.names)

    def _rows(self) -> list[list[str]]:
        """Return title cells and rows as text, with dots for those in the middle of a long table."""
        count = len(self.names)
        shown = list(range(count)) if count <= 2 * SHOWN else [*range(SHOWN), -1, *range(count - SHOWN, count)]
        least = _decimals_of_sds(self.columns.get("sd"), count)
        columns = [formatted(values, least) for values in self.columns.values()]
        body = [
            [self.names[k], *(cells[k] for cells in columns)] if k >= 0 else ["..."] * (1 + len(columns)) for k in shown
        ]
        return [["", *self.columns], *body]


def _decimals_of_sds(sds: Array | None, count: int) -> Array:
    """Return the decimals that show two digits of each row's sd, so that effects on other scales can be read too."""
    if sds is None or sds.dtype.kind != "f":
        return np.zeros(count, int)
    known = np.isfinite(sds) & (sds > 0)
    return np.clip(1 - np.floor(np.log10(np.where(known, sds, 1e9))), 0, 6).astype(int)


def formatted(values: Array, least: Array | None = None) -> list[str]:
    """Return the entries of a column as text: with as many decimals as its typical size asks for, and the row at least.

    ``least``: decimals of each row.
    """
    if values.dtype.kind != "f":
        return [str(value) for value in values]
    size = np.abs(values[np.isfinite(values) & (values != 0)])
    typical = float(np.median(size)) if len(size) else 1.0
    if not 1e-4 <= typical < 1e7:
        return [f"{value:.3g}" for value in values]
    decimals = int(np.clip(2 - np.floor(np.log10(typical)), 0, 6))
    least = np.zeros(len(values), int) if least is None else least
    return [f"{value:,.{max(decimals, own)}f}" for value, own in zip(values, least.tolist(), strict=True)]


def summary(posterior: Posterior, level: float, names: Sequence[Any] | None, layer: int) -> Table:
    """Return the table of ``Posterior.summary``."""
    from forestmix.posterior.laplace import laplace_notes

    between_zero_and_one("level", level)
    layer = whole_number("layer", layer, 0, len(posterior.layers) - 1)
    if not posterior.data.single:
        raise ForestmixError("summary is for one observation; use posterior.take(k) for one of a batch.")
    part = posterior.layers[layer]
    low, high = part.interval(level)
    columns = {"mean": part.mean, "sd": part.sd, f"{50 * (1 - level):g} %": low, f"{50 * (1 + level):g} %": high}
    if part.sd_error is not None:
        columns["error of sd"] = part.sd_error
    title = f"{posterior.kind} posterior, {100 * level:g} % intervals"
    return Table(latent_names(posterior.model, layer, names), columns, title, laplace_notes(posterior))


def latent_labels(model: DEF, layer: int, names: Sequence[Any] | None) -> list[Any]:
    """Return what the latents of a layer are called: the names given, the labels of W's columns, or numbers."""
    m = model.latent_sizes[layer]
    chosen = model.layers[layer].labels if names is None else names
    if chosen is None:
        return [f"y[{j}]" for j in range(m)]
    if len(chosen) != m:
        raise ArgumentError(f"names must have one entry for each of the {m} latents; got {len(chosen)}.")
    return list(chosen)


def latent_names(model: DEF, layer: int, names: Sequence[Any] | None) -> list[str]:
    """Return what the latents of a layer are called, as texts."""
    return list(map(label_text, latent_labels(model, layer, names)))
