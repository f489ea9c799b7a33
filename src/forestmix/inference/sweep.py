"""Sweeps for rows whose curvature varies with q: compiled where the kernels know the rows, and else in NumPy.

Rows of constant curvature need none of this: their rule is fixed before the sweep (``inference.rules``).
"""

from __future__ import annotations

from typing import Protocol

from forestmix.inference import compiled, interpreted
from forestmix.problem.gaussian import Point, Problem
from forestmix.partition import Partition
from forestmix.problem.given import GaussianFactors


class Sweeps(Protocol):
    """The sweeps, which two modules offer."""

    def sweep_groups(
        self, problem: Problem, point: Point, groups: Partition, *, surrogate: bool, safe: bool
    ) -> GaussianFactors:
        """Update the groups one after another, the members of each at once.

        ``surrogate``: step with the forest mixture precision of the group rather than the exact one of each variable;
        ``safe``: halve steps that lower the objective, which is what makes a sweep monotone.
        """

    def sweep_blocks(self, problem: Problem, point: Point, blocks: Partition, synchronous: bool) -> GaussianFactors:
        """Sweep the blocks on threads, each as the others were at the start or, unsynchronised, as they are."""

    def sweep_greedy(self, problem: Problem, point: Point, steps: int) -> GaussianFactors:
        """Update ``steps`` times, for each observation, the variable with the largest predicted gain."""


def sweeps(problem: Problem) -> Sweeps:
    """Return the sweeps for the rows of a problem."""
    return interpreted if problem.site.row_table is None else compiled
