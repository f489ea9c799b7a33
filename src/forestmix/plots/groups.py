"""Effects of groups, sorted."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.plots.intervals import ends_named, ends_of
from forestmix.plots.style import BLUE, GREY, MANY, SKY, look, one_axes
from forestmix.posterior.table import Table

#: Up to this many levels have their names below.
NAMED = 30


def plot_groups(table: Table, axes: Any = None) -> Any:
    """Plot the effects of levels sorted by their means, with intervals, and return the axes.

    Args:
        table: such as ``Fit.groups`` returns.
        axes: matplotlib axes; a new figure when left out.

    """
    with look():
        axes = one_axes(axes, (6.2, 3.4))
        order = np.argsort(table["mean"])
        low, high = (values[order] for values in ends_of(table))
        place, many = np.arange(len(order)), len(order) > MANY
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.vlines(place, low, high, color=SKY, linewidth=0.4 if many else 1.2, rasterized=many)
        axes.plot(place, table["mean"][order], "," if many else ".", color=BLUE, markersize=4, rasterized=many)
        axes.set_ylabel(f"{table.title}: mean, {ends_named(table)}")
        axes.grid(visible=False, axis="x")
        if len(order) <= NAMED:
            axes.set_xticks(place, [table.names[row].replace("$", r"\$") for row in order], rotation=90)
        else:
            axes.set_xticks([])
            axes.set_xlabel(f"{len(order):,} levels, from the least to the greatest")
    return axes
