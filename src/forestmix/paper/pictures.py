"""The numbers of a run as pictures."""

from __future__ import annotations

from collections.abc import Sequence

from forestmix.paper.beyond import Race
from forestmix.paper.curves import labels, pooled, thinned
from forestmix.paper.figure2 import Panel
from forestmix.plots.figure2 import Axis, Line, draw_panels


def draw_figure2(panels: Sequence[Panel]) -> dict[str, bytes]:
    """Draw the panels in a row, as in the paper: the raw loss on a log scale."""
    return draw_panels([[_panel(panel, first=place == 0) for place, panel in enumerate(panels)]])


def draw_races(races: Sequence[Race]) -> dict[str, bytes]:
    """Draw a row for each problem: the relative gap against parallel steps, sweeps and seconds."""
    letters = iter("abcdefghi")
    rows = []
    for race in races:
        images = len(race.curves[0].images)
        costs = {
            "step": "parallel steps",
            "sweeps": "sweeps over W (equal work)",
            "seconds": f"seconds ({images} image{'s' if images > 1 else ''} at once)",
        }
        rows.append([_race(race, next(letters), cost, words, cost == "step") for cost, words in costs.items()])
    return draw_panels(rows, shared_legend=True)


def _panel(panel: Panel, first: bool) -> Axis:
    lines = []
    for label in labels(panel.curves):
        loss = pooled(panel.curves, label, "loss")
        lines.append(Line(label, range(len(loss)), loss))
    y_label = "ridge regression loss" if first else ""
    return Axis(panel.name[-1], panel.title, "iterations", y_label, lines)


def _race(race: Race, letter: str, cost: str, words: str, first: bool) -> Axis:
    curves = [thinned(curve) for curve in race.curves]
    lines = [Line(curve.label, getattr(curve, cost), curve.gap) for curve in curves]
    y_label = "relative gap to the optimum" if first else ""
    return Axis(letter, race.title, words, y_label, lines, log_x=True)
