"""The forest mixture algorithm: every latent at once, with an objective that never falls (paper, section 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from reprlib import repr as shown
from typing import Any, ClassVar

import numpy as np

from forestmix.engines.protocol import Capability, Engine, require
from forestmix.errors import ArgumentError
from forestmix.inference.accelerate import ConjugateSteps
from forestmix.inference.backtracking import plain_retreats, step_sets
from forestmix.inference.base import Accelerator, Algorithm, Memory, Proposal, choose_objective
from forestmix.inference.latent_newton import LatentNewton
from forestmix.inference.newton import newton
from forestmix.inference.schedule import Cursor, GroupAfterGroup, SweepMemory
from forestmix.model import DEF, Observations
from forestmix.partition import Partition, check_groups
from forestmix.problem.base import Acceleration, Problem
from forestmix.problem.make import make_problem
from forestmix.problem.schedules import check_schedule

#: The accelerator for each kind of steps that a problem allows, from a start and by a method.
ACCELERATORS: dict[Acceleration, Callable[[Any, Any, str], Memory]] = {
    Acceleration.CONJUGATE: ConjugateSteps.at,
    Acceleration.NEWTON: newton,
    Acceleration.TILTED: lambda problem, point, method: LatentNewton(len(point.objective)),
    Acceleration.NONE: lambda problem, point, method: Memory(),
}


@dataclass(frozen=True)
class ForestMixture(Algorithm):
    """Parallel updates from the forest mixture bound, with no blocks to choose and no step size.

    Schedule: all latents, or one group after another. Rule: the maximiser of the surrogate (Theorem 2), see
    ``problem.updates.forest_mixture_update``.

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

    @property
    def sweeps(self) -> bool:
        """Whether it updates one group after another."""
        return self.groups is not None

    def problem(self, model: DEF, data: Observations, engine: Engine) -> Problem:
        """Return the problem with this objective and these groups."""
        groups = None if self.groups is None else Partition.of("groups", self.groups, model.n_latent)
        if groups is not None:
            require(engine, Capability.SWEEP, "groups")
        # Plain steps climb the ELBO with D for the means and H for the variances; Newton's steps on the paper's bound
        # precondition with H. Both come from the one pass.
        both = groups is None and (self.accelerated == (choose_objective(self.objective) == "fm"))
        return make_problem(model, data, engine, self.objective, groups, both=both)

    def start(self, problem: Problem, point: Any) -> Memory:
        """Return the accelerator's memory, or the place among the groups."""
        if self.groups is not None:
            groups = Partition.of("groups", self.groups, problem.size)
            return SweepMemory(Cursor(GroupAfterGroup(groups), np.random.default_rng(0)))
        if not self.accelerated:
            return Memory()
        method = self.accelerate if isinstance(self.accelerate, str) else "auto"
        return ACCELERATORS[problem.acceleration](problem, point, method)

    def propose(self, problem: Problem, point: Any, memory: Memory) -> Proposal:
        """Make one parallel step over all latents, or one for each group (paper, Algorithm 1)."""
        if isinstance(memory, Accelerator):
            return memory.propose(problem, point)
        if isinstance(memory, SweepMemory):
            groups = memory.cursor.take(None)
            return Proposal(problem.sweep(point, groups, surrogate=True), len(groups.sizes), problem.size)
        q, steps = step_sets(problem, point, self.schedule)
        return Proposal(q, steps, problem.size)

    def retreats(self, problem: Problem, point: Any, refused: Any, memory: Memory) -> Iterator[Any]:
        """Yield what the accelerator holds safer, or shorter plain steps; a plain one of Gaussian rows needs none."""
        if isinstance(memory, Accelerator):
            yield from memory.retreats(problem, point, refused)
        elif problem.acceleration is Acceleration.NEWTON:
            yield from plain_retreats(problem, point)
