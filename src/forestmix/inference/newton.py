"""Newton's method: one accelerator, whatever solves Newton's equations, and one safeguard.

A strategy solves the equations and gives the whole step, and then shorter and shorter parts of it. The whole is
proposed; where it would lower the objective the loop tries the parts, then the plain step and halves of that, and then
none. What differs is how the equations are solved, and what the part of a step is:

- ``JointNewton``: means and standard deviations together (``problem.newton_system``), by a factor for small W, or by
  conjugate gradients for arrays of other libraries;
- ``MetricNewton`` (``inference.metric``): the means by a quasi-Newton metric and truncated conjugate gradients, the
  variances by their fixed point, for large W; it goes over to joint steps where the rows tie the two together;
- ``TiltedNewton``: latents of any family under Gaussian rows (``problem.interfaces.gaussian_rows``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Literal

import array_api_compat
import numpy as np

from forestmix.arrays import Array, host
from forestmix.engines.products import Three
from forestmix.inference.base import Proposal, Steps
from forestmix.inference.plain import plain_retreats, step_sets
from forestmix.partition import Partition
from forestmix.problem.newton_system import NewtonStep, newton_step

#: Shorter joint steps that are tried, and what each is of the last.
SHORTER, SHRINK = 25, 0.25
#: The factor by which a joint step raises a precision at most: from far away its goal may be beyond all numbers.
MOST_NARROWED = 1e6

#: Plain steps before the first tilted step: they choose the basin, and Newton's method the way down it.
PLAIN = 10
#: Shorter tilted steps that are tried before the plain one.
SHORTER_TILTED = 4
#: A count that needs no long table.
SMALL_COUNT = 8.0
#: By what the damping goes down after a step that was taken, and up after one that was refused.
EASE, DAMP = 0.1, 8.0
#: A damping below this is less than rounding.
LEAST_DAMPING = 1e-16


def newton_proposal(problem: Any, point: Any, steps: Iterator[Any], passes: int = 0) -> Proposal:
    """Return the first of Newton's steps; then the others, the plain step and shorter parts of that, and no step.

    ``steps``: the factors after the whole step, and after shorter and shorter parts of it; ``passes``: those over W
    that it took to solve for the step.
    """
    whole, retreats = next(steps), chain(steps, plain_retreats(problem, point))
    return Proposal(whole, 1 + passes, (1 + passes) * problem.size, retreats=retreats)


class JointNewton(Steps):
    """Steps in the means and the standard deviations together.

    ``stretch`` is how many times longer than the safe part the last shortened step could be: from far below a count the
    safe part is too short by orders of magnitude.
    """

    def __init__(self) -> None:
        self.stretch = 1.0

    def propose(self, problem: Any, point: Any) -> Proposal:
        """Return the whole step; then its parts."""
        return newton_proposal(problem, point, self._steps(problem, point))

    def _steps(self, problem: Any, point: Any) -> Iterator[Any]:
        """Yield the whole step with straight precisions, then with straight variances, and shorter ones of these."""
        rows, at = problem.rows, point.rows
        step, whole = newton_step(rows, at), np.ones((len(point.objective), 1))
        yield moved(rows, point.q, step, whole, straight="precision")
        yield moved(rows, point.q, step, whole, straight="variance")
        share = np.minimum(self.stretch * safe_share(rows, step.mean), 0.5)
        self.stretch /= SHRINK
        for k in range(SHORTER):
            yield moved(rows, point.q, step, SHRINK**k * share, straight="variance")
            self.stretch *= SHRINK


def moved(rows: Any, q: Any, step: NewtonStep, share: Array, *, straight: Literal["precision", "variance"]) -> Any:
    """Return the factors that go the fraction ``share``, (N, 1), of a step.

    Where the precisions ``1 / sigma^2`` go straight, a step without coupling ends at the variances' fixed point. Where
    growing variances go straight, ``m_i + v_i / 2`` does too, which is what the rate of a Poisson row depends on. No
    variance exceeds the prior's at the optimum, so none does on the way.
    """
    xp = array_api_compat.array_namespace(q.mean)
    far = xp.asarray(share, dtype=step.mean.dtype, device=array_api_compat.device(q.mean))
    mean = xp.astype(q.mean + far * step.mean, q.mean.dtype)
    prior, change = rows.prior.precision, 2 * far * step.log_sd
    precision = xp.astype(q.sd, change.dtype) ** -2.0
    least = xp.maximum(prior + 0 * precision, 1e-2 * precision * xp.astype(prior == 0, precision.dtype))
    factor = xp.minimum(1 - change, xp.full_like(change, MOST_NARROWED))
    if straight == "variance":
        factor = xp.where(change > 0, 1 / (1 + xp.abs(change)), factor)
    return q.moved(mean, xp.astype(xp.maximum(precision * factor, least) ** -0.5, q.sd.dtype))


def safe_share(rows: Any, step: Any) -> Array:
    """Return the part ``log(1 + d) / d`` of a step of the means that is safe, d the most that it moves a row, (N, 1).

    Where the third derivative of ``a`` is at most the second, as for Poisson and logistic rows, that part of a Newton
    step cannot lower the objective (Sun and Tran-Dinh, *Generalized self-concordant functions*, Math. Program. 178,
    2019). It is short for the sake of the worst case, so the whole step is tried first.
    """
    shift = rows.engine.products(rows.weights, step.shape[0]).project(Three(step, None, None)).plain
    xp = array_api_compat.array_namespace(shift)
    largest = np.maximum(host(xp.max(xp.abs(shift), axis=1)).astype(np.float64), 1e-300)[:, None]
    return np.log1p(largest) / largest


class TiltedNewton(Steps):
    """Damped steps for latents of any family under Gaussian rows, each followed by a plain one.

    Newton's step in the means may lead where no factors are, to a negative mean of a latent that is none, and takes the
    factors' own curvature for constant. The rows' part of the ELBO is quadratic, though, and can be followed anywhere.
    So from where Newton's step leads a plain step is taken, which knows the factors exactly and brings them back: what
    is proposed is the maximiser of the surrogate around ``mu + d mu``. At an optimum it is that of Newton's method, and
    where ``d mu`` is 0 it is the plain step, so that shorter and shorter parts of it end in one that cannot lower the
    ELBO. ``damping H`` is added to the curvature, (N, 1); the damping goes down after a step that was taken, and up
    after one that the loop refused.
    """

    def __init__(self, count: int) -> None:
        self.made = 0
        self.damping = np.ones((count, 1))
        self.objective = np.full(count, -np.inf)

    def forget(self, which: Array) -> None:
        """Damp the next steps of the observations whose step was refused."""
        if self.made > PLAIN:
            self.damping[which] *= DAMP / EASE

    def propose(self, problem: Any, point: Any) -> Proposal:
        """Return plain steps first, and Newton steps then; a sweep for observations that these do not move.

        Counts can be trapped: certain of a value from which the surrogate, narrower than the ELBO, leads nowhere. And
        latents that are alike can stay alike where one of them should go: a saddle, which a sweep leaves.
        """
        self.made += 1
        if self.made <= PLAIN:
            return newton_proposal(problem, point, iter([step_sets(problem, point, "red-black")[0]]))
        rows, place = problem.rows, problem.place(point.q, 0)
        q = place.parents
        of_rows = rows.slope(place.seen, q)
        slope = rows.gradient(of_rows, place)
        step, inner = rows.solve(slope, q.sd, self.damping * rows.information[0])
        if rows.kind.discrete:
            # Tables of counts are as long as their means are large: these at most double, beyond what is small.
            step = np.minimum(step, q.mean + SMALL_COUNT)
        self.damping = np.maximum(EASE * self.damping, LEAST_DAMPING)
        trapped = rows.kind.several_optima & (point.objective <= self.objective + point.rounding)
        self.objective = point.objective

        def parts() -> Iterator[Any]:
            fall = rows.image(step)
            for share in SHRINK ** np.arange(SHORTER_TILTED + 1):
                new = point.q.replace(0, rows.step_from(q.mean + share * step, of_rows - share * fall, place.eta))
                if share == 1 and trapped.any():
                    one_by_one = Partition(np.arange(problem.size + 1), np.arange(problem.size))
                    new = problem.sweep(point, one_by_one, surrogate=False).where(trapped, new)
                yield new

        return newton_proposal(problem, point, parts(), inner)
