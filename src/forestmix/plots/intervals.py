"""Posteriors: a line for each effect or latent, or a band where there are many; levels of groups; unknown scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.plots.style import BLACK, BLUE, GREEN, GREY, MANY, ORANGE, SKY, VERMILION, look, one_axes
from forestmix.posterior.table import Table, summary

if TYPE_CHECKING:
    from forestmix.posterior.posterior import Posterior

#: Up to this many have a line each with its name; more are a band over their numbers.
NAMED = 60
#: Names are cut to this many letters in a picture.
LETTERS = 28


def plot_posterior(
    posterior: Posterior, axes: Any = None, level: float = 0.9, names: Sequence[str] | None = None, layer: int = 0
) -> Any:
    """Plot the mean and the central interval of each latent of one observation.

    Args:
        posterior: a posterior of ``Result.posterior``.
        axes: matplotlib axes to draw on; a new figure when left out.
        level: probability of the intervals; a thicker line is the interval of half of it.
        names: what to call the latents; numbers when left out.
        layer: which latent layer of a deep model, 0 for the lowest.

    Returns:
        The axes; ``axes.figure.savefig("posterior.png")`` writes the picture.

    """
    wide, narrow = (summary(posterior, part, names, layer) for part in (level, level / 2))
    axes = plot_intervals(wide, narrow, axes)
    axes.set_title(f"{posterior.kind} posterior", loc="left", fontsize="medium")
    return axes


def plot_intervals(
    wide: Table, narrow: Table, axes: Any = None, without: Sequence[str] = (), units: Array | None = None
) -> Any:
    """Plot means with two intervals, and return the axes: up to 60 a line each with its name, more as a band.

    Args:
        wide: a table with the mean and, in the two columns whose titles end with "%", the ends of the wide interval.
        narrow: likewise the narrow one.
        axes: matplotlib axes; a new figure when left out.
        without: names that are not drawn.
        units: what each is multiplied by; one that is not 1 stands behind its name. A new figure then has the numbers
            that are drawn at the right, for intervals so narrow that they are dots.

    """
    rows = [row for row, name in enumerate(wide.names) if name not in without]
    unit = np.ones(len(rows)) if units is None else units[rows]
    mean = unit * wide["mean"][rows]
    short = _short([wide.names[row] for row in rows])
    names = [name + _times(own) for name, own in zip(short, unit, strict=True)]
    ends = [[unit * column[rows] for column in ends_of(table)] for table in (wide, narrow)]
    few = len(rows) <= NAMED
    with look():
        numbers = few and units is not None and axes is None
        axes = one_axes(axes, (6.2 if units is None else 7.6, 0.9 + 0.26 * max(len(rows), 2)) if few else (6.2, 3.4))
        (_lines if few else _band)(axes, names, mean, ends)
        what = "" if few else f"{len(rows):,} latents in their order: "
        if numbers:
            _numbers(axes, mean, *ends[0])
        what += "effect of one sd of its column (×), " if (unit != 1).any() else ""
        axes.set_xlabel(f"{what}mean,\n{ends_named(narrow)} ({'thick' if few else 'dark'}) and {ends_named(wide)}")
    return axes


def ends_of(table: Table) -> list[Array]:
    """Return the columns with the ends of the intervals."""
    return [table.columns[name] for name in _ends(table)]


def ends_named(table: Table) -> str:
    """Return what the ends of the intervals are: such as "5 to 95 %"."""
    low, high = _ends(table)
    return f"{low.removesuffix(' %')} to {high}"


def _ends(table: Table) -> list[str]:
    return [name for name in table.columns if name.endswith("%")]


def _lines(axes: Any, names: Sequence[str], mean: Array, ends: Sequence[Sequence[Array]]) -> None:
    """Draw one line for each, the first on top, and a line at zero where intervals come near it."""
    places = np.arange(len(names))[::-1]
    low, high = (np.min(ends[0][0]), np.max(ends[0][1])) if len(names) else (0.0, 0.0)
    if low <= 0.2 * high or high >= 0.2 * low:
        axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    for (lower, upper), width, colour in zip(ends, (1.4, 3.6), (SKY, BLUE), strict=True):
        axes.hlines(places, lower, upper, color=colour, linewidth=width)
    axes.plot(mean, places, "o", color="white", markeredgecolor=BLUE, markersize=4.5)
    axes.set_yticks(places, names)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.grid(visible=False, axis="y")


def _numbers(axes: Any, mean: Array, low: Array, high: Array) -> None:
    """Write means and ends of wide intervals at the right, with as many digits as tell the ends apart."""
    for place, one in enumerate(zip(mean, low, high, strict=True)):
        width = one[2] - one[1]
        digits = int(np.clip(1 - np.floor(np.log10(width)), 0, 8)) if np.isfinite(width) and width > 0 else 3
        # Adding 0 makes a 0 of minus 0.
        middle, *ends = (f"{round(float(value), digits) + 0.0:,.{digits}f}" for value in one)
        axes.annotate(
            f"{middle}  ({ends[0]} to {ends[1]})", (1.01, len(mean) - 1 - place), xycoords=("axes fraction", "data"),
            va="center", fontsize="small", color=BLACK, annotation_clip=False,
        )  # fmt: skip


def _times(unit: float) -> str:
    """Return what stands behind a name: three digits of its unit, nothing where it is 1."""
    return "" if unit == 1 else f" × {float(f'{unit:.3g}'):,.10g}"


def _band(axes: Any, names: Sequence[str], mean: Array, ends: Sequence[Sequence[Array]]) -> None:
    places = np.arange(len(names))
    for (lower, upper), alpha in zip(ends, (0.35, 0.6), strict=True):
        axes.fill_between(places, lower, upper, color=SKY, alpha=alpha, linewidth=0)
    axes.plot(places, mean, color=BLUE, linewidth=0.9)
    axes.set_xlim(0, len(names) - 1)


def _short(names: Sequence[str]) -> list[str]:
    """Return names that fit beside a picture; dollars stand for themselves, not for formulas.

    They are cut in the middle, since those of one term differ at their ends, in the level; later, if they would look
    the same.
    """
    for letters in (LETTERS, 2 * LETTERS, 4 * LETTERS):
        start = (letters - 1) // 2
        short = [name if len(name) <= letters else f"{name[:start]}…{name[start + 1 - letters :]}" for name in names]
        if len(set(short)) == len(set(names)):
            break
    return [name.replace("$", r"\$") for name in short]


#: Up to this many levels have their names below.
NAMED_LEVELS = 30


def plot_groups(table: Table, axes: Any = None) -> Any:
    """Plot the effects of levels sorted by their means, with intervals, and return the axes.

    Args:
        table: such as ``Fit.groups`` returns.
        axes: matplotlib axes; a new figure when left out.

    """
    with look():
        order = np.argsort(table["mean"])
        names = _short([table.names[row] for row in order]) if len(order) <= NAMED_LEVELS else []
        axes = one_axes(axes, (6.2, 2.9 + max([0.5, *(0.085 * len(name) for name in names)])))
        low, high = (values[order] for values in ends_of(table))
        place, many = np.arange(len(order)), len(order) > MANY
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.vlines(place, low, high, color=SKY, linewidth=0.4 if many else 1.2, rasterized=many)
        axes.plot(place, table["mean"][order], "," if many else ".", color=BLUE, markersize=4, rasterized=many)
        axes.set_ylabel(f"{_short([table.title])[0]}:\nmean, {ends_named(table)}")
        axes.grid(visible=False, axis="x")
        if names:
            axes.set_xticks(place, names, rotation=90)
        else:
            axes.set_xticks([])
            axes.set_xlabel(f"{len(order):,} levels, from the least to the greatest")
    return axes


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
