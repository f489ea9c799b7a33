"""Coordinate ascent variational inference: one variable at a time, each to its exact optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from forestmix.arrays import generator
from forestmix.checks import one_of, whole_number
from forestmix.errors import ArgumentError
from forestmix.inference.base import Algorithm, Memory, Proposal
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

    def start(self, problem: Any, point: Any) -> Memory:
        """Return the first sweep; greedy order keeps nothing."""
        if not problem.gaussian and (self.order == "greedy" or self.steps_per_iteration is not None):
            raise ArgumentError(
                "order must be 'cyclic' or 'random', and steps_per_iteration None, for latents that are not Gaussian; "
                f"got {self.order!r} and {self.steps_per_iteration!r}."
            )
        if self.order == "greedy":
            return Memory()
        everything = Partition.from_lists([np.arange(problem.size)])
        return Sweeps(everything, generator(self.seed, "seed") if self.order == "random" else None)

    def propose(self, problem: Any, point: Any, memory: Any) -> Proposal:
        """Update the next variables."""
        if self.order == "greedy":
            steps = problem.size if self.steps_per_iteration is None else self.steps_per_iteration
            rows = problem.rows
            found = rows.engine.sweep_greedy(rows.sweep_start(point.rows), steps)
            return Proposal(point.q.moved(*found), steps, steps)
        groups = memory.next_steps(self.steps_per_iteration)
        return Proposal(problem.sweep(point, groups, surrogate=False), len(groups.sizes), len(groups.members))
