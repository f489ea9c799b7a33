"""Means and intervals of a posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.errors import ArgumentError
from forestmix.plots.style import BLACK, BLUE
from forestmix.posterior.table import summary

if TYPE_CHECKING:
    from forestmix.posterior.posterior import Posterior

#: Up to this many latents have a line each with its name; more are a band over their numbers.
NAMED = 60


def plot_posterior(
    posterior: Posterior, axes: Any = None, level: float = 0.9, names: Sequence[str] | None = None, layer: int = 0
) -> Any:
    """Plot the mean and the central interval of each latent of one observation.

    Args:
        posterior: a posterior of ``Result.posterior``.
        axes: matplotlib axes to draw on; a new figure when left out.
        level: probability of the intervals; a thicker line is the central half.
        names: what to call the latents; numbers when left out.
        layer: which latent layer of a deep model, 0 for the lowest.

    Returns:
        The axes; ``axes.figure.savefig("posterior.png")`` writes the picture.

    """
    table = summary(posterior, level, names, layer)
    part = posterior.layers[layer]
    axes = _axes(axes, len(table))
    wide, half = part.interval(level), part.interval(min(0.5, level))
    if len(table) <= NAMED:
        _lines(axes, table.names, part.mean, wide, half)
        axes.set_xlabel(f"mean, {100 * level:g} % interval, thick: central half")
    else:
        places = np.arange(len(table))
        axes.fill_between(places, *wide, color=BLUE, alpha=0.25, linewidth=0, label=f"{100 * level:g} % interval")
        axes.plot(places, part.mean, color=BLUE, linewidth=0.9, label="mean")
        axes.set_xlabel("number of the latent")
        axes.legend(frameon=False, fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{posterior.kind} posterior", loc="left", fontsize="medium")
    return axes


def _lines(axes: Any, names: list[str], mean: Any, wide: Any, half: Any) -> None:
    """Draw one line for each latent, the first on top, and a line at zero where intervals lie on both sides of it."""
    places = np.arange(len(names))[::-1]
    if wide[0].min() < 0 < wide[1].max():
        axes.axvline(0.0, color="#999999", linewidth=0.8, linestyle="--", zorder=1)
    axes.hlines(places, *wide, color=BLUE, linewidth=1.2)
    axes.hlines(places, *half, color=BLUE, linewidth=3.2)
    axes.plot(mean, places, "o", color="white", markeredgecolor=BLACK, markersize=4.5, markeredgewidth=1.0)
    axes.set_yticks(places, names)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.grid(True, axis="x", color="#E3E3E3", linewidth=0.7)
    axes.set_axisbelow(True)


def _axes(axes: Any, count: int) -> Any:
    if axes is None:
        from matplotlib import pyplot

        height = 1.0 + 0.22 * min(count, NAMED) if count <= NAMED else 3.4
        return pyplot.subplots(figsize=(6.5, max(height, 2.0)), layout="constrained")[1]
    if not hasattr(axes, "hlines"):
        raise ArgumentError(f"axes must be matplotlib axes; got {type(axes).__name__}.")
    return axes
