"""The curves of a run as pictures: a log scale, a median line with the full range around it, legends below.

Each picture is drawn twice, as rows of panels and as one column of them for a narrow screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.paper.claims import COSTS
from forestmix.paper.curves import Panel, labels, pooled, thinned
from forestmix.plots.style import BLACK, look, look_of, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Width and height of a panel with its legend, in inches.
PANEL = (3.9, 3.9)
_LEGEND: dict[str, Any] = {"handlelength": 2.4, "columnspacing": 1.3, "handletextpad": 0.5}


def draw_figure2(panels: Sequence[Panel]) -> dict[str, bytes]:
    """Draw the panels in a row, as in the paper: the loss itself, with the optimum of each problem."""
    draws = [partial(_draw_losses, panel=panel) for panel in panels]
    return _pictures("figure2", draws, columns=len(draws), shared_legend=False)


def draw_races(races: Sequence[Panel]) -> dict[str, bytes]:
    """Draw a row for each problem: the relative gap against parallel steps, sweeps and seconds."""
    letters = iter("abcdefghi")
    places = ((race, cost) for race in races for cost in COSTS)
    draws = [partial(_draw_gaps, race=race, cost=cost, letter=next(letters)) for race, cost in places]
    return _pictures("beyond", draws, columns=len(COSTS), shared_legend=True)


def _draw_losses(axes: Axes, panel: Panel) -> None:
    """Draw losses over iterations, and dotted lines at the median optimum: one for all curves if they share it."""
    from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

    optima = {}
    for place, label in enumerate(labels(panel.curves)):
        loss = pooled(panel.curves, label, "loss")
        colour = _draw_line(axes, label, place, np.arange(len(loss)), loss)
        optima[float(np.median(pooled(panel.curves, label, "optimum")))] = colour
    for optimum, colour in optima.items():
        axes.axhline(optimum, color=BLACK if len(optima) == 1 else colour, linestyle=":", linewidth=1.3)
    axes.plot([], [], color=BLACK, linestyle=":", linewidth=1.3, label="optimum")
    axes.set_yscale("log")
    axes.set_xlim(0, len(loss) - 1)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    # Losses span about one decade, of which powers of ten alone would label a single point.
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.minorticks_off()
    axes.set_title(f"({panel.name[-1]}) {panel.title}", loc="left")
    axes.set_xlabel("iterations")
    axes.set_ylabel("ridge regression loss")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3, **_LEGEND)


def _draw_gaps(axes: Axes, race: Panel, cost: str, letter: str) -> None:
    """Draw the relative gap over one cost, both on log scales."""
    for place, curve in enumerate(map(thinned, race.curves)):
        spent = getattr(curve, cost)
        _draw_line(axes, curve.label, place, spent[spent > 0], curve.gap[spent > 0])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    images = len(race.curves[0].images)
    more = {"sweeps": " over W (equal work)", "seconds": f" ({images} image{'s' if images > 1 else ''} at once)"}
    axes.set_title(f"({letter}) {race.title}", loc="left")
    axes.set_xlabel(COSTS[cost] + more.get(cost, ""))
    axes.set_ylabel("relative gap to the optimum")


def _draw_line(axes: Axes, label: str, place: int, x: Any, values: Any) -> str:
    """Draw the median of ``values``, (points, runs), with their range as a band; return the colour."""
    colour, dashes = look_of(label, place)
    # What is not positive has no place on a log scale.
    low, middle, high = np.quantile(np.where(values > 0, values, np.nan), [0.0, 0.5, 1.0], axis=1)
    axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
    axes.plot(x, middle, color=colour, linestyle=dashes, label=label)
    return colour


def _pictures(
    name: str, draws: Sequence[Callable[[Axes], None]], columns: int, shared_legend: bool
) -> dict[str, bytes]:
    """Return the files of a picture: PNG and SVG as rows of panels, and SVG as one column."""
    wide = _figure(draws, columns, shared_legend)
    narrow = _figure(draws, 1, shared_legend)
    return {
        f"{name}.png": saved(wide, "png"),
        f"{name}.svg": saved(wide),
        f"{name}-narrow.svg": saved(narrow),
    }


def _figure(draws: Sequence[Callable[[Axes], None]], columns: int, shared_legend: bool) -> Figure:
    """Return a figure of its own, not pyplot's: nothing is left behind, and no display is needed."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = -(-len(draws) // columns)
    with look():
        engine = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
        figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout=engine)
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, draw in zip(grid.flat, draws, strict=True):
            draw(axes)
        for axes in grid[:, 1:].flat:
            axes.set_ylabel("")
        if shared_legend:
            _legend_below_all(figure, grid.flat, min(columns + 1, 4))
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once is enough for all formats
    return figure


def _legend_below_all(figure: Figure, grid: Iterable[Axes], columns: int) -> None:
    """Put one legend below the figure, with every label of any panel once."""
    entries: dict[str, Any] = {}
    for axes in grid:
        handles, names = axes.get_legend_handles_labels()
        entries = dict(zip(names, handles, strict=True)) | entries
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns, **_LEGEND)
