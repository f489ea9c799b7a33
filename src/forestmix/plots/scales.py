"""Posterior densities of unknown scales."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forestmix.errors import ArgumentError
from forestmix.plots.style import BLUE, GREEN, ORANGE, SKY, VERMILION, look, one_axes

COLOURS = (BLUE, VERMILION, GREEN, ORANGE, SKY)
#: The densities are drawn over this central share of each posterior.
SHARE = 0.995
#: Scales whose sds differ by more than this factor are drawn on a logarithmic axis, or the narrow ones would be spikes.
APART = 10.0


def plot_scales(scales: Mapping[str, Any], axes: Any = None) -> Any:
    """Plot the posterior density of each unknown scale, its central 90 % shaded, and return the axes.

    Scales of different size have a logarithmic axis, and densities of their logarithms.

    Args:
        scales: posteriors of scales by name, such as ``Posterior.scales``.
        axes: matplotlib axes; a new figure when left out.

    """
    if not scales:
        raise ArgumentError("scales must have at least one entry; this model has no unknown scale.")
    sds = [one.sd for one in scales.values()]
    logarithmic = max(sds) > APART * min(sds)
    with look():
        axes = one_axes(axes, (6.2, 3.0))
        for place, (name, one) in enumerate(scales.items()):
            colour, (low, high) = COLOURS[place % len(COLOURS)], one.interval(0.9)
            first, last = one.interval(SHARE)
            grid = np.geomspace(first, last, 400) if logarithmic else np.linspace(first, last, 400)
            density = one.density(grid) * (grid if logarithmic else 1.0)
            inside = (grid >= low) & (grid <= high)
            axes.fill_between(grid, density, where=inside, color=colour, alpha=0.18, linewidth=0)
            axes.plot(grid, density, color=colour, label=name.replace("$", r"\$"))
        if logarithmic:
            axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_yticks([])
        axes.set_xlabel("scale; shaded: the central 90 %")
        axes.set_ylabel("density of the logarithm" if logarithmic else "posterior density")
        axes.legend()
    return axes
