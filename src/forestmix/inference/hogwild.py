"""Hogwild: every block is swept on its own, with what the others do seen late or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from forestmix.checks import flag, whole_number
from forestmix.inference.base import Algorithm, Proposal, Rule
from forestmix.partition import Partition, check_groups


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

    def start(self, problem: Any, point: Any) -> Rule:
        """Return sweeps of the blocks."""
        if isinstance(self.blocks, int | np.integer):
            count = min(int(self.blocks), problem.size)
            blocks = Partition.from_lists(np.array_split(np.arange(problem.size), count))
        else:
            blocks = Partition.of("blocks", self.blocks, problem.size)
        return Rule(partial(self._update, blocks))

    def _update(self, blocks: Partition, problem: Any, point: Any) -> Proposal:
        """Sweep every block once, side by side."""
        rows = problem.rows
        found = rows.engine.sweep_blocks(rows.sweep_start(point.rows), blocks, synchronous=bool(self.synchronous))
        return Proposal(point.q.moved(*found), int(blocks.sizes.max()), problem.size)
