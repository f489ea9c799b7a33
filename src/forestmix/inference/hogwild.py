"""Hogwild: every block is swept on its own, with what the others do seen late or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from forestmix.arrays import Array, plain
from forestmix.checks import flag, whole_number
from forestmix.inference.base import Algorithm, Memory, Proposal
from forestmix.inference.compiled import by_blocks
from forestmix.problem.gaussian import Point, Problem
from forestmix.inference.rules import exact
from forestmix.inference.sweep import sweeps
from forestmix.partition import Partition, check_groups
from forestmix.problem.given import GaussianFactors


class BlocksMemory(Memory):
    """The blocks of a run."""

    def __init__(self, blocks: Partition) -> None:
        self.blocks = blocks


@dataclass(frozen=True)
class Hogwild(Algorithm):
    """Exact coordinate updates inside every block, the blocks side by side on threads.

    An iteration sweeps each block once. It may diverge where blocks share rows (paper, section 2), which the loop
    detects and reports.

    Args:
        blocks: sequences of indices that partition the latents, or a number of blocks of neighbouring latents.
        synchronous: when True a block sees the others as they were at the start of the iteration (block Jacobi; blocks
            of one variable are the undamped parallel update), and the answer does not depend on timing. When False the
            threads share the row errors with no lock, and two runs may differ.

    """

    blocks: Any = 2
    synchronous: bool = False
    name: ClassVar[str] = "hogwild"
    monotone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.blocks, int | np.integer):
            whole_number("blocks", self.blocks)
        else:
            check_groups("blocks", self.blocks)
        flag("synchronous", self.synchronous)

    def start(self, problem: Problem, point: Point) -> BlocksMemory:
        """Return the blocks."""
        if isinstance(self.blocks, int | np.integer):
            lists = np.array_split(np.arange(problem.size), min(int(self.blocks), problem.size))
            return BlocksMemory(Partition.from_lists(lists))
        return BlocksMemory(Partition.of("blocks", self.blocks, problem.size))

    def propose(self, problem: Problem, point: Point, memory: BlocksMemory) -> Proposal:
        """Sweep every block once."""
        parallel_steps = int(memory.blocks.sizes.max())
        if not problem.curvature_is_constant:
            q = sweeps(problem).sweep_blocks(problem, point, memory.blocks, bool(self.synchronous))
            return Proposal(q, parallel_steps, problem.size)
        from forestmix.engines.compiled import coordinate

        precision, sd = exact(problem, point)
        mean, error, blocks = point.q.mean.copy(), point.site.error.copy(), memory.blocks
        prior = plain(problem.prior_mean), plain(problem.prior_precision)
        shared = plain(point.site.kappa), plain(precision)

        def run(which: Array) -> None:
            coordinate.relax_blocks(
                problem.site.column_arrays, blocks.starts, blocks.members, which, bool(self.synchronous),
                mean, error, *shared, prior,
            )  # fmt: skip

        by_blocks(blocks, run)
        return Proposal(GaussianFactors(mean, sd), parallel_steps, problem.size)
