"""The paper's experiments on real data, and what lies beyond them; ``forestmix reproduce`` runs them."""

from forestmix.paper.claims import Claim, check_claims
from forestmix.paper.curves import Panel
from forestmix.paper.figure2 import run_panel
from forestmix.paper.output import write_outcome
from forestmix.paper.problems import RidgeProblem, kernel_problem, region_problem, window_problem
from forestmix.paper.run import Outcome, run_experiments
from forestmix.paper.settings import FIGURES, Meter, Settings

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
