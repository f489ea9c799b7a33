"""Block coordinate ascent: one variable of every block in each parallel step (paper, section 7, last experiment)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy

from forestmix.arrays import generator
from forestmix.checks import one_of, whole_number
from forestmix.inference.base import Algorithm
from forestmix.inference.schedule import Sweeps
from forestmix.partition import Partition, check_groups
from forestmix.weights import Weights


@dataclass(frozen=True)
class BlockCoordinate(Algorithm):
    """Exact coordinate updates of one variable of every block at once.

    Stable when the blocks are conditionally independent given x, that is, when no row of W has parents in two blocks.
    Otherwise it may diverge, which the loop detects and reports.

    Args:
        blocks: sequences of indices that partition the latents. When left out, the connected components of the model,
            which are the finest blocks that are conditionally independent.
        order: "cyclic" or "random" inside each block.
        steps_per_iteration: how many parallel steps an iteration of the loop makes; a whole sweep when left out.
        seed: of the random orders.

    """

    blocks: Any = None
    order: str = "cyclic"
    steps_per_iteration: int | None = None
    seed: int = 0
    name: ClassVar[str] = "block"
    monotone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        one_of("order", self.order, ("cyclic", "random"))
        whole_number("steps_per_iteration", self.steps_per_iteration, optional=True)
        generator(self.seed, "seed")
        if self.blocks is not None:
            check_groups("blocks", self.blocks)

    def start(self, problem: Any, point: Any) -> Sweeps:
        """Return sweeps over the blocks."""
        if self.blocks is None:
            blocks = independent_blocks(problem.rows.weights)
        else:
            blocks = Partition.of("blocks", self.blocks, problem.size)
        rng = generator(self.seed, "seed") if self.order == "random" else None
        return Sweeps(blocks, rng, self.steps_per_iteration)


def independent_blocks(weights: Weights) -> Partition:
    """Return the connected components of the latents, two being connected when a row of W has both as parents."""
    (n, m), (row, latent, _) = weights.shape, weights.entries()
    # The graph of rows and latents together has nnz edges, where that of latents alone could have m^2.
    graph = scipy.sparse.coo_array((np.ones(len(row), bool), (row, n + latent)), shape=(n + m, n + m))
    _, label = scipy.sparse.csgraph.connected_components(graph, directed=False)
    order = np.argsort(label[n:], kind="stable")
    cuts = np.flatnonzero(np.diff(label[n:][order])) + 1
    return Partition.from_lists(np.split(order, cuts))
