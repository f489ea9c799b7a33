"""How a run ended, and how it went."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from forestmix.arrays import Array


class Status(enum.Enum):
    """How a run ended. Each value is a sentence for the user: what happened, why, and what to try."""

    CONVERGED = "Converged: the gradient is within tol, or within what rounding leaves of it, and the optimum is near."
    STALLED = (
        "Stopped at the limit of rounding: neither the objective nor the gradient improves any more in this precision, "
        "and the optimum may be some way off in directions the data say little of. Use float64 weights, a narrower "
        "prior, or scales of W, x and sd that differ less."
    )
    MAX_ITER = (
        "Stopped at max_iter before reaching tol. Raise max_iter, warm-start from this result with init=, or use the "
        "accelerated default, algorithm='fm' with accelerate=True."
    )
    DIVERGED = (
        "Diverged: the objective fell far below its start, so the parallel updates overshoot for these weights. The "
        "best point seen is returned. Use algorithm='fm', which cannot diverge, or a smaller step, or blocks that "
        "share no rows."
    )
    NON_FINITE = (
        "Stopped on a value that is not finite. The last finite point is returned. The scales of x, W or sd are likely "
        "beyond the range of this precision: rescale them, or use float64."
    )
    DECREASED = (
        "Stopped because the objective fell by more than rounding explains, which this algorithm must never do. The "
        "last point before the fall is returned. The model is likely too badly scaled for this precision."
    )
    STOPPED = "Stopped by the callback, or by Ctrl-C, before it had converged. The last point is returned."


@dataclass(frozen=True)
class Trace:
    """One entry for the start and for each iteration.

    ``iteration``: 0, 1, ...; ``step``: parallel steps so far, as the paper counts them; ``sweeps``: variable updates
    so far, divided by the number of latents; ``objective`` and ``gradient_norm`` (relative, see ``infer``): (T,), or
    (T, N) for a batch; ``seconds``: since the start, without those in which Numba compiled kernels or loaded them from
    its cache, as it does at their first use.
    """

    iteration: Array
    step: Array
    sweeps: Array
    objective: Array
    gradient_norm: Array
    seconds: Array

    def __len__(self) -> int:
        return len(self.iteration)
