"""Coordinate ascent variational inference: one variable at a time, each to its exact optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from forestmix.arrays import Array, generator, plain
from forestmix.checks import whole_number
from forestmix.errors import ArgumentError
from forestmix.inference.base import Algorithm, Memory, Proposal, check_order
from forestmix.inference.compiled import by_observations, plain_rows
from forestmix.problem.latent_problem import LatentProblem
from forestmix.inference.latent_steps import sweep_latents
from forestmix.problem.gaussian import Point, Problem
from forestmix.inference.rules import exact, step_groups
from forestmix.inference.schedule import Cursor, OneOfEveryBlock
from forestmix.inference.sweep import sweeps
from forestmix.partition import Partition
from forestmix.problem.given import GaussianFactors


class SweepMemory(Memory):
    """A place in a row of sweeps, the same for every observation of a batch."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor


class GreedyMemory(Memory):
    """Which variables have been visited, for each observation, so that their variance gains are spent."""

    def __init__(self, visited: Array) -> None:
        self.visited = visited

    def take(self, keep: Array) -> GreedyMemory:
        """Return the memory of the chosen observations."""
        return GreedyMemory(self.visited[keep])


class LayersMemory(Memory):
    """The generator of random orders, or ``None`` for cyclic ones, where sweeps go layer by layer."""

    def __init__(self, rng: np.random.Generator | None) -> None:
        self.rng = rng


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
        check_order(self.order, ("cyclic", "random", "greedy"))
        whole_number("steps_per_iteration", self.steps_per_iteration, optional=True)
        generator(self.seed, "seed")

    def start(self, problem: Any, point: Any) -> Memory:
        """Return the first sweep, or for greedy order which variables were visited: none."""
        if isinstance(problem, LatentProblem):
            return self._layers_memory(problem)
        if self.order == "greedy":
            return GreedyMemory(np.zeros((problem.n_observations, problem.size), bool))
        everything = Partition.from_lists([np.arange(problem.size)])
        schedule = OneOfEveryBlock(everything, shuffle=self.order == "random")
        return SweepMemory(Cursor(schedule, generator(self.seed, "seed")))

    def propose(self, problem: Any, point: Any, memory: SweepMemory | GreedyMemory | LayersMemory) -> Proposal:
        """Update the next variables."""
        if isinstance(memory, LayersMemory):
            q = sweep_latents(problem, point, memory.rng)
            return Proposal(q, problem.size, problem.size)
        if isinstance(memory, GreedyMemory):
            return self._greedy_step(problem, point, memory)
        groups = memory.cursor.take(self.steps_per_iteration)
        return Proposal(step_groups(problem, point, exact, groups), len(groups.starts) - 1, len(groups.members))

    def _layers_memory(self, problem: LatentProblem) -> LayersMemory:
        if self.order == "greedy" or self.steps_per_iteration is not None:
            raise ArgumentError(
                "order must be 'cyclic' or 'random', and steps_per_iteration None, for latents that are not Gaussian; "
                f"got {self.order!r} and {self.steps_per_iteration!r}."
            )
        return LayersMemory(generator(self.seed, "seed") if self.order == "random" else None)

    def _greedy_step(self, problem: Problem, point: Point, memory: GreedyMemory) -> Proposal:
        steps = problem.size if self.steps_per_iteration is None else self.steps_per_iteration
        if not problem.curvature_is_constant:
            return Proposal(sweeps(problem).sweep_greedy(problem, point, steps), steps, steps)
        from forestmix.engines.compiled import greedy

        precision, sd = exact(problem, point)
        ratio = point.q.sd**2 * precision
        gain = 0.5 * (ratio - 1 - np.log(ratio))
        mean, error, gradient = point.q.mean.copy(), point.site.error.copy(), point.gradient.copy()
        site, prior_precision = problem.site, plain(problem.prior_precision)

        def run(part: slice) -> None:
            greedy.relax_greedy(
                site.column_arrays, site.row_arrays, steps, memory.visited[part], gradient[part],
                plain_rows(gain, part), mean[part], error[part],
                plain_rows(point.site.kappa, part), plain_rows(precision, part), prior_precision,
            )  # fmt: skip

        by_observations(problem, run)
        if memory.visited.all():
            return Proposal(GaussianFactors(mean, sd), steps, steps)
        return Proposal(GaussianFactors(mean, np.where(memory.visited, sd, point.q.sd)), steps, steps)
