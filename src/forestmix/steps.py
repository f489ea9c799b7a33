"""Forest mixture steps over all latents of one observation, made together with the pass before them.

What stands here goes with a W that is read by rows; ``column_passes`` has the mirror image.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from forestmix import memory
from forestmix.arrays import Array
from forestmix.passes import Parts
from forestmix.weights import SparseWeights, Weights


class Latents(NamedTuple):
    """Where a step begins: mean and sd of q, and mean and precision of the prior, each (m,)."""

    mean: Array
    sd: Array
    prior_mean: Array
    prior_precision: Array


class Step(NamedTuple):
    """What the rows say about each latent, where it moves, and what the next pass begins with.

    ``gradient``: of the rows, and ``slope``: that of the objective where the step began, (m,); ``curvature``: ``D``,
    and ``exact``: ``H``, or ``None``; ``mean`` and ``sd``: where the step leads; ``settled``: whether no spread
    changes; ``spread_form``: ``sum_j sigma_j^2 information_j``, and ``prior_form``:
    ``sum_j (mu_j - prior_mean_j)^2 precision_j``, where the step began; ``prepared``: mean and sd side by side, (m, 2),
    for a sparse W by rows, the row sums for a W by columns.
    """

    gradient: Array
    slope: Array
    curvature: Array
    exact: Array | None
    mean: Array
    sd: Array
    settled: bool
    spread_form: float
    prior_form: float
    prepared: Any


class StepArrays:
    """The arrays that a step writes to, and those that it takes as they are, as its kernel is given them.

    ``absolute`` and ``squared`` say whether D and H are to be computed.

    Args:
        weights: W.
        latents: where the step begins.
        curvature: ``D``, or ``None`` if it is to be computed.
        exact: ``H``, or ``None`` if it is to be computed; the paper's bound does not need it.
        paper: whether the objective is the paper's bound.
        unit: by how much, relatively, a spread may change and count as the same.

    """

    def __init__(
        self, weights: Weights, latents: Latents, curvature: Array | None, exact: Array | None, paper: bool,
        unit: float,
    ) -> None:  # fmt: skip
        dtype, m = weights.dtype, weights.shape[1]
        self.absolute, self.squared = curvature is None, exact is None and not paper
        # Two blocks: where the step leads is kept with the next point, all else with this one.
        self.mean, self.sd = memory.empty((2, m), dtype)
        self.gradient, self.slope, *found = memory.empty((2 + self.absolute + self.squared, m), dtype)
        none = np.empty(0, dtype)
        self.D = found[0] if curvature is None else np.ascontiguousarray(curvature)
        self.H = found[-1] if self.squared else (none if exact is None else np.ascontiguousarray(exact))
        self.without_exact = paper and exact is None
        vectors = (np.ascontiguousarray(part, dtype) for part in latents)
        self.begin: tuple[Any, ...] = (*vectors, unit, paper, self.absolute, self.squared)
        self.end = (self.gradient, self.slope, self.D, self.H, self.mean, self.sd)

    def step(self, totals: Array, prepared: Any) -> Step:
        """Return the step, once its kernel has run."""
        changed, spread_form, prior_form = totals.tolist()
        return Step(
            self.gradient, self.slope, self.D, None if self.without_exact else self.H, self.mean, self.sd,
            changed == 0, spread_form, prior_form, prepared,
        )  # fmt: skip


def row_step(weights: Weights, parts: Parts, arrays: StepArrays) -> Step:
    """Make the step that follows a pass over rows, see ``passes.pass_parts``."""
    from forestmix.kernels import row_steps, threaded

    m, sparse = weights.shape[1], isinstance(weights, SparseWeights)
    pairs = memory.empty((m if sparse else 0, 2), weights.dtype)
    totals = threaded.summed(
        row_steps.step_rows, (1, m), 3, parts.sums, sparse, parts.reach, *arrays.begin, *arrays.end, pairs
    )  # fmt: skip
    return arrays.step(totals[0], pairs if sparse else None)
