"""Run the experiments and write all of their output but the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from forestmix.paper import output
from forestmix.paper.beyond import Race, run_races
from forestmix.paper.claims import Claim, check_claims
from forestmix.paper.figure2 import Panel, run_panel
from forestmix.paper.meter import Meter
from forestmix.paper.pictures import draw_figure2, draw_races
from forestmix.paper.settings import Settings


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that a run found. ``pictures``: file names and contents."""

    settings: Settings
    panels: tuple[Panel, ...]
    races: tuple[Race, ...]
    claims: tuple[Claim, ...]
    pictures: Mapping[str, bytes]

    @property
    def held(self) -> bool:
        """Whether every claim held."""
        return all(claim.held for claim in self.claims)


def run_experiments(settings: Settings, meter: Meter | None = None) -> Outcome:
    """Run the experiments that ``settings`` asks for."""
    panels = tuple(run_panel(name, settings, meter) for name in settings.figures)
    races = run_races(settings, meter) if settings.beyond else ()
    pictures = {f"figure2.{kind}": content for kind, content in draw_figure2(panels).items()}
    if races:
        pictures |= {f"beyond.{kind}": content for kind, content in draw_races(races).items()}
    return Outcome(settings, panels, races, tuple(check_claims(panels)), pictures)


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write tables, settings, claims and pictures into a folder."""
    output.prepare_folder(folder)
    for panel in outcome.panels:
        output.write_panel(folder, panel)
    if outcome.races:
        output.write_races(folder, outcome.races)
    output.write_summary(folder, outcome.panels)
    output.write_claims(folder, outcome.claims)
    output.write_settings(folder, outcome.settings)
    for name, content in outcome.pictures.items():
        output.write_bytes(folder / name, content)
