"""Coordinate ascent variational inference: one variable at a time, each to its exact optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from forestmix.arrays import generator
from forestmix.checks import one_of, whole_number
from forestmix.errors import ArgumentError
from forestmix.inference.base import Algorithm, Proposal, Rule, Steps
from forestmix.inference.schedule import Sweeps
from forestmix.partition import Partition


@dataclass(frozen=True)
class CAVI(Algorithm):
    """Coordinate ascent on the ELBO.

    Schedule: one variable after another. Rule: ``mu_j += gradient_j sigma_j^2`` with
    ``1 / sigma_j^2 = 1 / sigma0_j^2 + sum_i w_ij^2 kappa_i``, the exact optimum for Gaussian rows and otherwise a step
    towards it, halved where it would lower the ELBO.

    Args:
        order: "cyclic"; "random", a new order for every sweep; or "greedy", always the variable whose update raises
            the ELBO most.
        steps_per_iteration: how many variables an iteration of the loop updates; a whole sweep when left out.
        seed: of the random orders.

    """

    order: str = "cyclic"
    steps_per_iteration: int | None = None
    seed: int = 0
    name: ClassVar[str] = "cavi"
    any_latents: ClassVar[bool] = True

    def __post_init__(self) -> None:
        one_of("order", self.order, ("cyclic", "random", "greedy"))
        whole_number("steps_per_iteration", self.steps_per_iteration, optional=True)
        generator(self.seed, "seed")

    def start(self, problem: Any, point: Any) -> Steps:
        """Return sweeps, or greedy updates."""
        if not problem.gaussian and (self.order == "greedy" or self.steps_per_iteration is not None):
            raise ArgumentError(
                "order must be 'cyclic' or 'random', and steps_per_iteration None, for latents that are not Gaussian; "
                f"got {self.order!r} and {self.steps_per_iteration!r}."
            )
        if self.order == "greedy":
            return Rule(self._update_greedily)
        everything = Partition.from_lists([np.arange(problem.size)])
        rng = generator(self.seed, "seed") if self.order == "random" else None
        return Sweeps(everything, rng, self.steps_per_iteration)

    def _update_greedily(self, problem: Any, point: Any) -> Proposal:
        """Update one variable after another, always the one that raises the ELBO most."""
        rows, steps = problem.rows, self.steps_per_iteration or problem.size
        found = rows.engine.sweep_greedy(rows.sweep_start(point.rows), steps)
        return Proposal(point.q.moved(*found), steps, steps)
