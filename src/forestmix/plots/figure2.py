"""Rows of panels as in the paper's Figure 2: a log scale, a median line with the range around it, legends below."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.plots.style import RC, look_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Width and height of a panel with its legend, in inches.
PANEL = (3.9, 3.9)
_LEGEND: dict[str, Any] = {"handlelength": 2.4, "columnspacing": 1.3, "handletextpad": 0.5}


@dataclass(frozen=True, eq=False)
class Line:
    """A curve over several runs: ``values`` is (points, runs), drawn as the median with the range around it."""

    label: str
    x: Any
    values: Any


@dataclass(frozen=True, eq=False)
class Axis:
    """What one panel shows. ``letter`` stands before the title; ``log_x`` for costs that span several decades."""

    letter: str
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False


def draw_panels(
    rows: Sequence[Sequence[Axis]], shared_legend: bool = False, formats: Sequence[str] = ("png", "svg")
) -> dict[str, bytes]:
    """Draw rows of panels, with a legend below each or one below all, and return the picture in each format."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = max(map(len, rows))
    with matplotlib.rc_context(RC):
        # A figure of its own, not pyplot's: nothing is left behind, and no display is needed.
        figure = Figure(
            figsize=(PANEL[0] * columns, PANEL[1] * len(rows)), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
        )
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for places, panels in zip(grid, rows, strict=True):
            for place, panel in zip(places, panels, strict=False):
                _draw(place, panel)
                if not shared_legend:
                    _legend_below(place, len(panel.lines))
            for unused in places[len(panels) :]:
                unused.set_axis_off()
        if shared_legend:
            _legend_below_all(figure, grid)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once is enough for all formats
        return {kind: _render(figure, kind) for kind in formats}


def _draw(axes: Axes, panel: Axis) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

    for place, line in enumerate(panel.lines):
        look = look_of(line.label, place)
        x, values = np.asarray(line.x), np.asarray(line.values)
        shown = x > 0 if panel.log_x else x >= 0
        low, middle, high = (_positive(row) for row in np.quantile(values[shown], [0.0, 0.5, 1.0], axis=1))
        axes.fill_between(x[shown], low, high, color=look.colour, alpha=0.13, linewidth=0)
        axes.plot(x[shown], middle, color=look.colour, linestyle=look.dashes, label=line.label)
    axes.set_yscale("log")
    if panel.log_x:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        # Losses span about one decade, of which powers of ten alone would label a single point.
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_xlim(0, max(np.max(line.x) for line in panel.lines))
    axes.minorticks_off()
    axes.set_title(f"({panel.letter}) {panel.title}", loc="left")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)


def _legend_below(axes: Axes, lines: int) -> None:
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=4 if lines == 4 else 3, **_LEGEND)


def _legend_below_all(figure: Any, grid: Any) -> None:
    """Put one legend below the figure, with every label of any panel once."""
    entries: dict[str, Any] = {}
    for axes in grid.flat:
        handles, names = axes.get_legend_handles_labels()
        entries |= {name: handle for name, handle in zip(names, handles, strict=True) if name not in entries}
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=4, **_LEGEND)


def _positive(values: Any) -> Any:
    """Return the values with what has no place on a log scale left out."""
    return np.where(values > 0, values, np.nan)


def _render(figure: Any, kind: str) -> bytes:
    stream = io.BytesIO()
    # Without the date, the same numbers give the same file.
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    figure.savefig(stream, format=kind, dpi=160, metadata=metadata)
    return stream.getvalue()
