"""The paper's experiments on real data, and what lies beyond them; ``forestmix reproduce`` runs them."""

from forestmix.paper.claims import Claim, check_claims
from forestmix.paper.output import write_outcome
from forestmix.paper.run import Outcome, run_experiments
from forestmix.paper.settings import FIGURES, Settings

__all__ = ["FIGURES", "Claim", "Outcome", "Settings", "check_claims", "run_experiments", "write_outcome"]
