"""The forest mixture algorithm: every latent at once, with an objective that never falls (paper, section 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from reprlib import repr as shown
from typing import Any, ClassVar

import numpy as np

from forestmix.checks import one_of
from forestmix.engines.protocol import Capability, Engine, require
from forestmix.errors import ArgumentError
from forestmix.inference.accelerate import ConjugateSteps
from forestmix.inference.base import Algorithm, Rule, Steps, choose_objective
from forestmix.inference.metric import newton
from forestmix.inference.newton import TiltedNewton
from forestmix.inference.plain import PlainSteps, group_steps
from forestmix.inference.workers import MODES, WorkerSteps
from forestmix.model import DEF, Observations
from forestmix.partition import Partition, check_groups
from forestmix.problem.interfaces.base import Acceleration
from forestmix.problem.make import make_problem
from forestmix.problem.problem import SCHEDULES, Problem

#: The accelerator for each kind of steps that a problem allows, from a start and by a method.
ACCELERATORS: dict[Acceleration, Callable[[Any, Any, str], Steps]] = {
    Acceleration.CONJUGATE: ConjugateSteps,
    Acceleration.NEWTON: newton,
    Acceleration.TILTED: lambda problem, point, method: TiltedNewton(len(point.objective)),
}


@dataclass(frozen=True)
class ForestMixture(Algorithm):
    """Parallel updates from the forest mixture bound, with no blocks to choose and no step size.

    Schedule: all latents, or one group after another. Rule: ``problem.updates.forest_mixture_update``, Theorem 2.

    Args:
        objective: "fm", the paper's bound; "elbo", as "auto", the same step to where coordinate ascent ends.
        accelerate: for Gaussian rows, solve for the variances once, then take conjugate gradient steps in the means, or
            solve for them where that is faster (``inference.direct``; "cg" and "direct" name one of the two); for
            other rows, Newton steps (``inference.newton``). ``None`` means yes, unless groups or workers are given.
        groups: use the bound inside these groups only, one after another; groups of one are coordinate ascent.
        workers: for W in chunks of columns, each updated by its worker, "synchronous" or "stale"; docs/scaling.md.
        schedule: of the layers of deep models without acceleration: "red-black", every second one and then the others;
            "bottom-up" or "top-down", one after another.

    """

    objective: str = "auto"
    accelerate: bool | str | None = None
    groups: Any = None
    schedule: str = "red-black"
    workers: str | None = None
    name: ClassVar[str] = "fm"
    any_latents: ClassVar[bool] = True

    def __post_init__(self) -> None:
        choose_objective(self.objective)
        one_of("schedule", self.schedule, SCHEDULES)
        if self.workers is not None and one_of("workers", self.workers, MODES) and self.groups is not None:
            raise ArgumentError("groups must be None when workers are given: each worker has a group of its own.")
        given, alone = self.accelerate, self.groups is None and self.workers is None
        if not isinstance(given, bool | np.bool_ | None) and not (isinstance(given, str) and given in ("cg", "direct")):
            raise ArgumentError(f"accelerate must be True, False, None, 'cg' or 'direct'; got {shown(given)}.")
        if self.groups is not None:
            check_groups("groups", self.groups)
        if given and not alone:
            raise ArgumentError("accelerate must be False or None when groups or workers are given.")

    @property
    def accelerated(self) -> bool:
        """Whether accelerated steps are taken."""
        return self.groups is None and self.workers is None if self.accelerate is None else bool(self.accelerate)

    @property
    def sweeps(self) -> bool:
        """Whether it updates one group after another."""
        return self.groups is not None

    def problem(self, model: DEF, data: Observations, engine: Engine) -> Problem:
        """Return the problem with this objective and these groups."""
        groups = None if self.groups is None else Partition.of("groups", self.groups, model.n_latent)
        if groups is not None:
            require(engine, Capability.SWEEP, "groups")
        # Plain steps climb the ELBO with D and H, Newton's on the paper's bound have H as metric: both from one pass.
        both = groups is None and (self.accelerated == (choose_objective(self.objective) == "fm"))
        return make_problem(model, data, engine, self.objective, groups, both=both)

    def start(self, problem: Problem, point: Any) -> Steps:
        """Return the steps of the workers, of the groups, plain ones, or those of an accelerator."""
        if self.workers is not None:
            return WorkerSteps(problem, self.workers)
        if self.groups is not None:
            return Rule(partial(group_steps, Partition.of("groups", self.groups, problem.size)))
        if not self.accelerated or problem.acceleration is Acceleration.NONE:
            return PlainSteps(self.schedule)
        method = self.accelerate if isinstance(self.accelerate, str) else "auto"
        return ACCELERATORS[problem.acceleration](problem, point, method)
