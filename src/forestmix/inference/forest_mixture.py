"""The forest mixture algorithm: every latent at once, with an objective that never falls (paper, section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from forestmix.errors import ArgumentError
from forestmix.inference.accelerate import ConjugateGradients
from forestmix.inference.base import Algorithm, Memory, Proposal, choose_objective
from forestmix.inference.cavi import SweepMemory
from forestmix.inference.problem import Point, Problem
from forestmix.inference.rules import forest_mixture, step_all, step_groups
from forestmix.inference.schedule import Cursor, GroupAfterGroup
from forestmix.model import DEF, Observations
from forestmix.partition import Partition


@dataclass(frozen=True)
class ForestMixture(Algorithm):
    """Parallel updates from the forest mixture bound, with no blocks to choose and no step size.

    Schedule: all latents, or one group after another. Rule: the maximiser of the surrogate (Theorem 2)::

        D_j         = sum_i kappa_i w_ij^2 / epsilon_ij  =  (1 / sigma_j) sum_i |w_ij| s_i kappa_i
        mu_j        <- mu_j + gradient_j / (1 / sigma0_j^2 + D_j)
        1/sigma_j^2 <- 1 / sigma0_j^2 + (D_j for "fm", sum_i w_ij^2 kappa_i for "elbo")

    Args:
        objective: "fm", the paper's bound; "elbo", the same parallel step climbing the ELBO itself, which ends where
            coordinate ascent ends; "auto" is "elbo".
        accelerate: solve for the variances once, then take conjugate gradient steps in the means. ``None`` means yes,
            unless groups are given, for which there is no accelerated step.
        groups: use the bound inside these groups of latents only, one group after another. Groups of one are
            coordinate ascent, one group is the forest mixture step.

    """

    objective: str = "auto"
    accelerate: bool | None = None
    groups: Any = None
    name: ClassVar[str] = "fm"

    def __post_init__(self) -> None:
        choose_objective(self.objective)
        if self.accelerate not in (None, True, False):
            raise ArgumentError(f"accelerate must be True, False or None; got {self.accelerate!r}.")
        if self.accelerate and self.groups is not None:
            raise ArgumentError("accelerate must be False or None when groups are given: group steps are sequential.")

    @property
    def accelerated(self) -> bool:
        """Whether conjugate gradient steps are taken."""
        return self.groups is None if self.accelerate is None else self.accelerate

    def problem(self, model: DEF, data: Observations) -> Problem:
        """Return the problem with this objective and these groups."""
        groups = None if self.groups is None else Partition.of("groups", self.groups, model.n_latent)
        return Problem(model, data, choose_objective(self.objective), groups)

    def start(self, problem: Problem, point: Point) -> Memory:
        """Return the accelerator's memory, or the place among the groups."""
        if self.accelerated:
            return ConjugateGradients.at(problem, point)
        if problem.site.groups is not None:
            return SweepMemory(Cursor(GroupAfterGroup(problem.site.groups), np.random.default_rng(0)))
        return Memory()

    def propose(self, problem: Problem, point: Point, memory: Memory) -> Proposal:
        """Make one parallel step over all latents, or one for each group."""
        if isinstance(memory, ConjugateGradients):
            return memory.propose(problem, point)
        if isinstance(memory, SweepMemory):
            groups = memory.cursor.take(None)
            return Proposal(step_groups(problem, point, forest_mixture, groups), len(groups.starts) - 1, problem.size)
        return Proposal(step_all(problem, point, forest_mixture), 1, problem.size)

    def plain_proposal(self, problem: Problem, point: Point) -> Proposal | None:
        """Return the plain forest mixture step, which cannot lower the objective."""
        return Proposal(step_all(problem, point, forest_mixture), 1, problem.size) if self.accelerated else None
