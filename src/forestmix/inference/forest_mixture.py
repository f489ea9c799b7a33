"""The forest mixture algorithm: every latent at once, with an objective that never falls (paper, section 5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any, ClassVar

import numpy as np

from forestmix.errors import ArgumentError
from forestmix.inference.accelerate import ConjugateGradients
from forestmix.inference.base import Algorithm, Memory, Proposal, choose_objective
from forestmix.inference.cavi import SweepMemory
from forestmix.inference.dense_newton import CHEAP, cost
from forestmix.problem.flat_problem import FlatProblem
from forestmix.inference.joint_newton import JointNewton
from forestmix.inference.latent_newton import LatentNewton
from forestmix.problem.latent_problem import LatentProblem
from forestmix.inference.latent_steps import step_latents
from forestmix.inference.layers import check_schedule, sets_of_layers, step_layers
from forestmix.problem.make import make_problem
from forestmix.inference.newton import NewtonSteps, safe_share
from forestmix.inference.rules import forest_mixture, mix, plain_step, step_forest, step_groups
from forestmix.inference.schedule import Cursor, GroupAfterGroup
from forestmix.model import DEF, Observations
from forestmix.partition import Partition, check_groups
from forestmix.problem.given import GaussianFactors

#: How often a refused step is halved before the plain step takes its place, and how often that is.
SHORTER_STEPS = 4
LONGEST_RETREAT = 40


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
        accelerate: for Gaussian rows, solve for the variances once, then take conjugate gradient steps in the means,
            and solve for them at once where that is faster (see ``inference.direct``; "cg" and "direct" name one of
            the two); for other rows, Newton steps (see ``inference.newton``). ``None`` means yes, unless groups are
            given, for which there is no accelerated step.
        groups: use the bound inside these groups of latents only, one group after another. Groups of one are
            coordinate ascent, one group is the forest mixture step.
        schedule: for deep models without acceleration, which layers are updated at once: "red-black", every second
            layer and then the others; "bottom-up" or "top-down", one layer after another.

    """

    objective: str = "auto"
    accelerate: bool | str | None = None
    groups: Any = None
    schedule: str = "red-black"
    name: ClassVar[str] = "fm"
    any_latents: ClassVar[bool] = True

    def __post_init__(self) -> None:
        choose_objective(self.objective)
        check_schedule(self.schedule)
        named = isinstance(self.accelerate, str) and self.accelerate in ("cg", "direct")
        if not named and self.accelerate is not None and not isinstance(self.accelerate, bool | np.bool_):
            raise ArgumentError(
                f"accelerate must be True, False, None, 'cg' or 'direct'; got {shown(self.accelerate)}."
            )
        if self.groups is not None:
            check_groups("groups", self.groups)
        if self.accelerate and self.groups is not None:
            raise ArgumentError("accelerate must be False or None when groups are given: group steps are sequential.")

    @property
    def accelerated(self) -> bool:
        """Whether accelerated steps are taken."""
        return self.groups is None if self.accelerate is None else bool(self.accelerate)

    def problem(self, model: DEF, data: Observations) -> Any:
        """Return the problem with this objective and these groups."""
        groups = None if self.groups is None else Partition.of("groups", self.groups, model.n_latent)
        # Plain steps climb the ELBO with D for the means and H for the variances; Newton's steps on the paper's bound
        # precondition with H. Both come from the one pass.
        both = groups is None and (self.accelerated == (choose_objective(self.objective) == "fm"))
        return make_problem(model, data, self.objective, groups, both=both)

    def start(self, problem: Any, point: Any) -> Memory:
        """Return the accelerator's memory, or the place among the groups."""
        if isinstance(problem, LatentProblem):
            newton = self.accelerated and problem.has_curvature
            return LatentNewton(len(point.objective)) if newton else Memory()
        if self.accelerated:
            if not problem.curvature_is_constant:
                jointly = problem.on_device or (problem.joins_deviations and cost(problem) <= CHEAP)
                return JointNewton() if jointly else NewtonSteps(len(point.objective))
            method = self.accelerate if isinstance(self.accelerate, str) else "auto"
            return ConjugateGradients.at(problem, point, method)
        if not problem.on_device and problem.site.groups is not None and not isinstance(problem, FlatProblem):
            return SweepMemory(Cursor(GroupAfterGroup(problem.site.groups), np.random.default_rng(0)))
        return Memory()

    def propose(self, problem: Any, point: Any, memory: Memory) -> Proposal:
        """Make one parallel step over all latents, or one for each group."""
        if isinstance(memory, LatentNewton):
            return memory.propose(problem, point)
        if isinstance(problem, LatentProblem):
            sets = len(sets_of_layers(self.schedule, problem.stack.depth))
            return Proposal(step_latents(problem, point, self.schedule), sets, problem.size)
        if isinstance(memory, ConjugateGradients | NewtonSteps | JointNewton):
            return memory.propose(problem, point)
        if isinstance(memory, SweepMemory):
            groups = memory.cursor.take(None)
            return Proposal(step_groups(problem, point, forest_mixture, groups), len(groups.starts) - 1, problem.size)
        if isinstance(problem, FlatProblem):
            sets = len(sets_of_layers(self.schedule, len(problem.layers)))
            return Proposal(step_layers(problem, point, self.schedule), sets, problem.size)
        if problem.on_device:
            return Proposal(plain_step(problem, point), 1, problem.size)
        return Proposal(step_forest(problem, point), 1, problem.size)

    def retreats(self, problem: Any, point: Any, refused: GaussianFactors, memory: Memory) -> Iterator[Any]:
        """Yield shorter parts of a refused step, the plain forest mixture step, shorter parts of that, and no step.

        For Gaussian rows the plain step cannot lower the objective, so there it comes first and last; a plain step that
        did is an alarm. For other rows some part of it does not: it is a natural gradient step (docs/regression.md).
        """
        if isinstance(problem, LatentProblem):
            if isinstance(memory, LatentNewton):
                yield from memory.retreats(problem, point)
            return
        if problem.on_device:
            for halvings in range(LONGEST_RETREAT):
                yield mix(point.q, plain_step(problem, point), 0.5**halvings)
            yield point.q
            return
        if problem.curvature_is_constant:
            if self.accelerated:
                yield step_forest(problem, point)
            return
        shorter = refused
        if isinstance(memory, NewtonSteps) and not problem.site.layer.family.curvature_is_bounded:
            # Where a grows like an exponential, a step too long by far is the rule, and halving it would take long.
            shorter = mix(point.q, refused, safe_share(problem, point.q, refused))
            yield shorter
        for _ in range(SHORTER_STEPS):
            shorter = mix(point.q, shorter, 0.5)
            yield shorter
        plain = step_forest(problem, point)
        for halvings in range(LONGEST_RETREAT):
            yield mix(point.q, plain, 0.5**halvings)
        yield point.q
