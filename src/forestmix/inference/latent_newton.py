"""Acceleration for latents of any family under Gaussian rows: damped Newton steps, each followed by a plain one.

Newton's step in the means (``latent_curvature``) may lead where no factors are, to a negative mean of a latent that is
none, and takes the factors' own curvature for constant. The rows' part of the ELBO is quadratic, though, and can be
followed anywhere. So from where Newton's step leads a plain step is taken, which knows the factors exactly and brings
them back: what is proposed is the maximiser of the surrogate around ``mu + d mu``. At an optimum it is that of Newton's
method, and where ``d mu`` is 0 it is the plain step, so that shorter and shorter parts of it end in one that cannot
lower the ELBO.

``damping H`` is added to the curvature; the damping goes down after a step that was taken, and up after one that the
loop refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from forestmix.arrays import Array
from forestmix.inference.backtracking import step_sets
from forestmix.inference.base import Accelerator, Proposal
from forestmix.partition import Partition
from forestmix.problem import latent_curvature
from forestmix.problem.interfaces import Above, GaussianRows, LayeredFactors
from forestmix.problem.latent import LatentPoint, LatentProblem

#: Plain steps before the first Newton step: they choose the basin, and Newton's method the way down it.
PLAIN = 10
#: Shorter steps that are tried before the plain one.
SHORTER = 4
#: A count that needs no long table.
SMALL_COUNT = 8.0
#: By what the damping goes down after a step that was taken, and up after one that was refused.
EASE, DAMP = 0.1, 8.0
#: A damping below this is less than rounding.
LEAST_DAMPING = 1e-16


class LatentNewton(Accelerator):
    """The damping of each observation, (N, 1), its last objective, and the last step, to try shorter parts of it."""

    def __init__(self, count: int) -> None:
        self.steps = 0
        self.damping = np.ones((count, 1))
        self.objective = np.full(count, -np.inf)
        self.last: tuple[Array, ...] | None = None

    def take(self, keep: Array) -> LatentNewton:
        """Return the memory of the chosen observations; a step is looked at only in the iteration that made it."""
        chosen = LatentNewton(0)
        chosen.steps, chosen.damping, chosen.objective = self.steps, self.damping[keep], self.objective[keep]
        return chosen

    def forget(self, which: Array) -> None:
        """Damp the next steps of the observations whose step was refused."""
        if self.last is not None:
            self.damping[which] *= DAMP / EASE

    def propose(self, problem: LatentProblem, point: LatentPoint) -> Proposal:
        """Return plain steps first, and Newton steps then; a sweep for observations that these do not move.

        Counts can be trapped: certain of a value from which the surrogate, narrower than the ELBO, leads nowhere. And
        latents that are alike can stay alike where one of them should go: a saddle, which a sweep leaves.
        """
        self.steps += 1
        self.last = None
        if self.steps <= PLAIN:
            return Proposal(step_sets(problem, point, "red-black")[0], 1, problem.size)
        rows, q = problem.stack.interfaces[0], point.q.layers[0]
        above, seen = problem.stack.above(point.q, 0), problem.stack.seen(point.q, 0)
        of_rows = rows.slope(seen, q)
        slope = latent_curvature.gradient(rows, of_rows, q, above)
        step, inner = latent_curvature.solve(rows, slope, q.sd, self.damping * rows.information[0])
        if rows.kind.discrete:
            # Tables of counts are as long as their means are large: these at most double, beyond what is small.
            step = np.minimum(step, q.mean + SMALL_COUNT)
        self.last = (q.mean, of_rows, step, latent_curvature.image(rows, step))
        self.damping = np.maximum(EASE * self.damping, LEAST_DAMPING)
        proposed = self._at(problem, point, 1.0)
        trapped = rows.kind.several_optima & (point.objective <= self.objective + point.rounding)
        self.objective = point.objective
        if trapped.any():
            one_by_one = Partition(np.arange(problem.size + 1), np.arange(problem.size))
            proposed = problem.sweep(point, one_by_one, surrogate=False).where(trapped, proposed)
        return Proposal(proposed, 1 + inner, (1 + inner) * problem.size)

    def retreats(self, problem: LatentProblem, point: LatentPoint, refused: LayeredFactors) -> Iterator[LayeredFactors]:
        """Yield shorter parts of the last step, then the plain step, then none."""
        if self.last is not None:
            for k in range(1, SHORTER + 1):
                yield self._at(problem, point, 0.25**k)
            yield step_sets(problem, point, "red-black")[0]
        yield point.q

    def _at(self, problem: LatentProblem, point: LatentPoint, share: float) -> LayeredFactors:
        assert self.last is not None
        rows: GaussianRows = problem.stack.interfaces[0]
        above: Above = problem.stack.above(point.q, 0)
        mean, slope, step, fall = self.last
        return point.q.replace(0, rows.step_from(mean + share * step, slope - share * fall, above))
