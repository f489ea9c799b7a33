"""Pictures of a regression: intervals of effects, effects of groups, and what the fit predicts beside what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.plots.style import BLACK, BLUE, RC, SKY


def plot_intervals(wide: Any, narrow: Any, axes: Any = None, without: Sequence[str] = ()) -> Any:
    """Plot means with two intervals, a row for each effect, and return the axes.

    Args:
        wide: a table with the mean and, in its last two columns, the ends of the wide interval.
        narrow: likewise the narrow one.
        axes: matplotlib axes; a new figure when left out.
        without: names that are not drawn.

    """
    rows = [row for row, name in enumerate(wide.names) if name not in without]
    with _look():
        axes = _axes(axes, (6.2, 0.8 + 0.28 * len(rows)))
        y = np.arange(len(rows))[::-1]
        for table, width, colour in ((wide, 1.4, SKY), (narrow, 3.6, BLUE)):
            low, high = list(table.columns.values())[-2:]
            axes.hlines(y, low[rows], high[rows], color=colour, linewidth=width)
        axes.plot(wide["mean"][rows], y, "o", color="white", markeredgecolor=BLUE, markersize=4.5)
        axes.axvline(0, color=BLACK, linewidth=0.7)
        axes.set_yticks(y, [wide.names[row] for row in rows])
        axes.set_xlabel(f"effect: mean, {_range(narrow)} and {_range(wide)}")
        axes.set_ylim(-0.7, len(rows) - 0.3)
    return axes


def plot_groups(table: Any, axes: Any = None) -> Any:
    """Plot the effects of levels sorted by their means, with intervals, and return the axes."""
    with _look():
        axes = _axes(axes, (6.2, 3.4))
        order = np.argsort(table.columns["mean"])
        low, high = (values[order] for values in list(table.columns.values())[-2:])
        place = np.arange(len(order))
        axes.vlines(place, low, high, color=SKY, linewidth=1.2 if len(order) <= 300 else 0.4)
        axes.plot(place, table.columns["mean"][order], "." if len(order) <= 300 else ",", color=BLUE, markersize=4)
        axes.axhline(0, color=BLACK, linewidth=0.7)
        axes.set_ylabel(f"{table.title}: mean and {_range(table)}")
        if len(order) <= 30:
            axes.set_xticks(place, [table.names[row] for row in order], rotation=90)
        else:
            axes.set_xlabel(f"{len(order)} levels, sorted")
    return axes


def plot_predictive(observed: Array, drawn: Array, counts: bool, axes: Any = None) -> Any:
    """Plot the cumulative distribution of the response beside those of drawn data sets, and return the axes.

    Args:
        observed: the response, (n,).
        drawn: data sets that the fit predicts, (size, n).
        counts: whether responses are whole numbers, so that lines are steps.
        axes: matplotlib axes; a new figure when left out.

    """
    with _look():
        axes = _axes(axes, (6.2, 3.4))
        share = np.arange(1, len(observed) + 1) / len(observed)
        style: Any = {"drawstyle": "steps-post"} if counts else {}
        for row, one in enumerate(np.sort(drawn, axis=1)):
            axes.plot(
                one,
                share,
                **style,
                color=SKY,
                linewidth=0.6,
                alpha=0.5,
                label="drawn from the fit" if row == 0 else None,
            )
        axes.plot(np.sort(observed), share, **style, color=BLACK, linewidth=1.8, label="observed")
        low, high = np.quantile(np.concatenate([observed, drawn.ravel()]), [0.001, 0.999])
        axes.set_xlim(min(low, observed.min()), max(high, observed.max()))
        axes.set_xlabel("response")
        axes.set_ylabel("share of rows up to it")
        axes.legend(loc="lower right")
    return axes


def _look() -> Any:
    from matplotlib import rc_context

    return rc_context(RC)


def _axes(axes: Any, size: tuple[float, float]) -> Any:
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _range(table: Any) -> str:
    low, high = list(table.columns)[-2:]
    return f"{low} to {high}"
