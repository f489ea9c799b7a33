"""The paper's experiments on real data, and what lies beyond them; ``forestmix reproduce`` runs them."""

from forestmix.paper.claims import Claim, check_claims
from forestmix.paper.figure2 import Panel, run_panel
from forestmix.paper.meter import Meter
from forestmix.paper.problems import RidgeProblem, kernel_problem, region_problem, window_problem
from forestmix.paper.run import Outcome, run_experiments, write_outcome
from forestmix.paper.settings import FIGURES, Settings

__all__ = [
    "FIGURES",
    "Claim",
    "Meter",
    "Outcome",
    "Panel",
    "RidgeProblem",
    "Settings",
    "check_claims",
    "kernel_problem",
    "region_problem",
    "run_experiments",
    "run_panel",
    "window_problem",
    "write_outcome",
]
