"""The plots of docs/benchmarks.md, drawn from the stored results alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.harness.results import Results
from benchmarks.harness.rounds import short
from forestmix.plots import style

RACES, SCALING = "benchmarks_races.png", "benchmarks_scaling.png"
GREY = "#999999"
#: Entries of W from which on it does not fit into the last cache; see ``sections.scaling``.
CACHE = 4e6


def draw(results: Results, folder: Path) -> dict[str, str]:
    """Draw what there are numbers for; return file names with the text that stands in for each."""
    figures = {}
    with plt.rc_context(style.RC):
        if draw_races(results, folder / RACES):
            figures[RACES] = "Time to the same accuracy relative to forestmix, for each problem and contender"
        if draw_scaling(results, folder / SCALING):
            figures[SCALING] = "Time of an iteration and memory beyond W against the number of entries of W"
    return figures


def panels(results: Results) -> dict[str, tuple[dict[str, float], dict[str, float]]]:
    """Return, for each problem, the ratios of those that reached the target, and the gaps of those that never did."""
    found: dict[str, tuple[dict[str, float], dict[str, float]]] = {}
    if "gaussian_mean" in results.sections:
        for title, relative in results.sections["gaussian_mean"].series["relative"].items():
            found[title] = (relative, {})
    if "elbo" in results.sections:
        for title, parts in results.sections["elbo"].series["relative"].items():
            found[title] = (parts["reached"], parts["never"])
    return {title: parts for title, parts in found.items() if any(parts)}


def draw_races(results: Results, path: Path) -> bool:
    """Draw one panel of dots for each problem; to the right is slower."""
    chosen = panels(results)
    if not chosen:
        return False
    columns = min(3, len(chosen))
    rows = -(-len(chosen) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(4.3 * columns, 3.2 * rows), squeeze=False, layout="constrained"
    )  # fmt: skip
    for axes, (title, (reached, never)) in zip(grid.flat, chosen.items(), strict=False):
        race_panel(axes, title, reached, never)
    for axes in grid.flat[len(chosen) :]:
        axes.set_visible(False)
    figure.supxlabel("time to the same accuracy, relative to forestmix", fontsize=10)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True


def race_panel(axes: Any, title: str, reached: dict[str, float], never: dict[str, float]) -> None:
    """Draw the contenders of a problem, fastest first, those that never got there below."""
    order = sorted(reached, key=reached.__getitem__)
    largest = max([*reached.values(), 10.0])
    for place, name in enumerate(order):
        ours = name.startswith("forestmix")
        colour = style.BLUE if ours else style.VERMILION
        value = reached[name]
        axes.plot([1, value], [place, place], color=colour, linewidth=1.2, alpha=0.5)
        axes.plot(value, place, "o", color=colour, markersize=5)
        # On the side away from the line of forestmix, where nothing is drawn.
        side, shift = ("left", 6) if value >= 1 else ("right", -6)
        where = {"textcoords": "offset points", "va": "center", "ha": side, "fontsize": 8}
        axes.annotate(f"{short(value)}x", (value, place), (shift, 0), **where)
    for offset, gap in enumerate(never.values()):
        text = f"not reached; gap {gap:.0e}" if gap == gap and gap < 1e300 else "never; diverged"
        axes.annotate(text, (1.15, len(order) + offset), va="center", fontsize=8, color=GREY, style="italic")
    labels = [*order, *never]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlim(min(0.7, 0.25 * min(reached.values(), default=1)), largest * 8)
    axes.axvline(1, color=style.BLACK, linewidth=0.8)
    axes.set_title(title, loc="left", fontsize="small")
    axes.grid(axis="y", visible=False)


def draw_scaling(results: Results, path: Path) -> bool:
    """Draw time and memory against entries, both on logarithmic axes."""
    if "scaling" not in results.sections:
        return False
    series = results.sections["scaling"].series
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for kind, colour in (("dense", style.BLUE), ("sparse", style.VERMILION)):
        points = series[kind]
        entries = [point["entries"] for point in points]
        seconds = [point["seconds"] for point in points]
        vectors = [point["bytes"] / 8 / (point["n"] + point["m"]) for point in points]
        left.plot(entries, seconds, "o-", color=colour, markersize=4)
        right.plot(entries, vectors, "o-", color=colour, markersize=4)
        for axes, value in ((left, seconds[-1]), (right, vectors[-1])):
            axes.annotate(kind, (entries[-1], value), (7, 0), textcoords="offset points", color=colour, va="center")
        line = [seconds[-1] * entry / entries[-1] for entry in entries]
        left.plot(entries, line, color=GREY, linewidth=0.8, linestyle=":")
    left.set_title("Seconds per iteration; dotted: proportional to entries", loc="left", fontsize="small")
    right.set_title("Peak memory beyond W and x, in vectors of n + m", loc="left", fontsize="small")
    left.set_yscale("log")
    right.set_ylim(bottom=0)
    right.margins(y=0.15)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("entries of W that are not zero")
        if max(point["entries"] for points in series.values() for point in points) > CACHE:
            axes.axvline(CACHE, color=GREY, linewidth=0.8)
            axes.annotate("W beyond the cache", (CACHE, 0), (4, 6), xycoords=("data", "axes fraction"),
                          textcoords="offset points", fontsize=8, color=GREY)  # fmt: skip
        axes.margins(x=0.14)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True
