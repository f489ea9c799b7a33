"""A number for each row: how well it is predicted by the others, and what the forest mixture bound loses on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.arrays import Array
from forestmix.plots.style import BLUE, MANY, ORANGE, VERMILION, look, one_axes

if TYPE_CHECKING:
    from forestmix.posterior.loo import LeaveOneOut


def plot_loo(loo: LeaveOneOut, axes: Any = None) -> Any:
    """Plot the log predictive density of each row without it; rows that are not to be trusted have a cross.

    Args:
        loo: what ``Posterior.loo`` or ``Fit.loo`` returns.
        axes: matplotlib axes; a new figure when left out.

    Returns:
        The axes.

    """
    with look():
        axes = one_axes(axes, (6.2, 3.2))
        _points(axes, loo.pointwise, BLUE)
        if len(loo.untrusted):
            doubtful = loo.pointwise[loo.untrusted]
            axes.plot(loo.untrusted, doubtful, "x", color=VERMILION, label=f"{len(doubtful)} not to be trusted")
            axes.legend()
        axes.set_xlabel("row")
        axes.set_ylabel("log predictive density without it")
    return axes


def plot_gap(gap: Array, axes: Any = None) -> Any:
    """Plot ``gap_i``, by how much the forest mixture bound is below the ELBO, for each row, and return the axes.

    Args:
        gap: of each row, such as ``fmx.gap`` returns for one observation.
        axes: matplotlib axes; a new figure when left out.

    """
    with look():
        axes = one_axes(axes, (6.2, 3.0))
        _points(axes, np.asarray(gap), ORANGE)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("row")
        axes.set_ylabel("ELBO − forest mixture bound (nats)")
    return axes


def _points(axes: Any, values: Array, colour: str) -> None:
    """Draw a point for each row, smaller and as pixels where there are many."""
    from matplotlib.ticker import MaxNLocator

    many = len(values) > MANY
    axes.plot(np.arange(len(values)), values, ".", color=colour, markersize=2 if many else 4.5, rasterized=many)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
