"""Damped parallel updates: every variable at once, a fraction of the way to its exact optimum."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as shown
from typing import ClassVar

from forestmix.checks import is_number
from forestmix.errors import ArgumentError
from forestmix.inference.base import Algorithm, Memory, Proposal
from forestmix.problem.gaussian import Point, Problem
from forestmix.inference.rules import damped, exact, mix, step_all


@dataclass(frozen=True)
class Damped(Algorithm):
    """All exact coordinate updates at once, ``mu <- mu + step (mu_exact - mu)``.

    Schedule: all variables. Rule: exact, scaled. ``step=1`` is the Jacobi iteration, which diverges when windows
    overlap; how small a step is small enough depends on W, which is what the forest mixture step does away with.

    Args:
        step: in (0, 1].

    """

    step: float = 0.5
    name: ClassVar[str] = "damped"
    monotone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not is_number(self.step) or not 0 < self.step <= 1:
            raise ArgumentError(f"step must be a number in (0, 1]; got {shown(self.step)}.")

    def start(self, problem: Problem, point: Point) -> Memory:
        """Nothing is carried along."""
        return Memory()

    def propose(self, problem: Problem, point: Point, memory: Memory) -> Proposal:
        """Update all variables, damped."""
        if problem.curvature_is_constant:
            return Proposal(step_all(problem, point, damped(self.step)), 1, problem.size)
        # The variances depend on the means here, so they go the same part of the way.
        return Proposal(mix(point.q, step_all(problem, point, exact), self.step), 1, problem.size)
