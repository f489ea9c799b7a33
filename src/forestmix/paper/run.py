"""Run the experiments that are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forestmix.paper.claims import Claim, check_claims
from forestmix.paper.curves import Panel
from forestmix.paper.figure2 import run_panel, run_races
from forestmix.paper.pictures import draw_figure2, draw_races
from forestmix.paper.settings import Bar, Settings, no_bar


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that a run found. ``pictures``: file names and contents."""

    settings: Settings
    panels: tuple[Panel, ...]
    races: tuple[Panel, ...]
    claims: tuple[Claim, ...]
    pictures: Mapping[str, bytes]

    @property
    def held(self) -> bool:
        """Whether every claim held."""
        return all(claim.held for claim in self.claims)


def run_experiments(settings: Settings, bar: Bar = no_bar) -> Outcome:
    """Run the experiments and draw them."""
    panels = tuple(run_panel(name, settings, bar) for name in settings.figures)
    races = run_races(settings, bar) if settings.beyond else ()
    pictures = draw_figure2(panels) | (draw_races(races) if races else {})
    return Outcome(settings, panels, races, tuple(check_claims(panels)), pictures)
