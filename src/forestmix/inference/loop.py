"""The one loop that every algorithm runs in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forestmix.arrays import Array, host
from forestmix.clock import WorkClock
from forestmix.inference.base import Algorithm
from forestmix.inference.checkpoint import NoCheckpoint
from forestmix.inference.progress import NoProgress
from forestmix.inference.status import Status, Trace
from forestmix.inference.stopping import Stopping
from forestmix.problem.problem import Problem


@dataclass(frozen=True)
class Iteration:
    """What a callback sees after each iteration, and once before the first; arrays have (N, ...) for a batch.

    ``mean`` and ``sd`` are those of all latents; the layers of a deep model are stacked, the lowest first. ``share``:
    how much of the work is done, from 0 to 1, of a run with a full covariance, which has no gradient norm.
    """

    iteration: int
    step: int
    sweeps: float
    objective: Any
    gradient_norm: Any
    seconds: float
    mean: Array
    sd: Array
    share: float | None = None


Callback = Callable[[Iteration], object]


@dataclass(frozen=True)
class Outcome:
    """What a run came to, for each observation of its batch: the factors of each layer, and how they were found."""

    factors: tuple[Any, ...]
    objective: Array
    status: Array
    n_iter: Array
    trace: Trace
    note: str = ""


class Run:
    """A run under way. Observations that have finished leave the batch; ``active`` says which are still in it."""

    #: What a checkpoint keeps as it is; the rest has a form of its own there.
    KEPT = ("active", "objective", "norm", "status", "n_iter", "iteration", "step", "sweeps", "kept", "point")

    def __init__(
        self, algorithm: Algorithm, problem: Problem, start: Any, tol: float, callback: Callback | None,
        checkpoint: NoCheckpoint | None = None,
    ) -> None:  # fmt: skip
        self.clock = WorkClock()
        self.algorithm, self.problem, self.callback = algorithm, problem, callback
        self.single = problem.data.single
        self.point: Any = problem.evaluate(start)
        problem.check_range(self.point)
        self.rule = algorithm.start(problem, self.point)
        self.stopping = Stopping(problem, self.point, tol, algorithm.monotone)
        count = problem.n_observations
        self.active = np.arange(count)
        self.kept: Any = start.expanded(count)
        self.best = self.point
        self.objective = self.point.objective.copy()
        self.norm = problem.gradient_norm(self.point)
        self.status = np.full(count, Status.MAX_ITER, dtype=object)
        self.n_iter = np.zeros(count, int)
        self.iteration, self.step, self.sweeps = 0, 0, 0.0
        self.records: list[tuple[int, int, float, Array, Array, float]] = []
        self.checkpoint = checkpoint or NoCheckpoint()

    def loop(self, max_iter: int, meter: NoProgress) -> None:
        """Iterate until every observation has ended, or somebody presses Ctrl-C."""
        stop = False if self.checkpoint.restore(self) else self._record(meter)
        while len(self.active) and not stop and self.iteration < max_iter:
            before = self._snapshot()
            try:
                self._iterate()
            except KeyboardInterrupt:
                vars(self).update(before)
                stop = True
                continue
            # The iteration is whole: one that ends while it is told of, or written, is kept.
            try:
                stop = self._record(meter)
                self.checkpoint.save(self)
            except KeyboardInterrupt:
                stop = True
        self.checkpoint.save(self, at_end=not stop)
        if stop:
            self.status[self.active] = Status.STOPPED
        if len(self.active):
            self._look_at_rows()
            self._keep(np.ones(len(self.active), bool), self.point)

    def _snapshot(self) -> dict[str, Any]:
        """Return the run as it is, to go back to from the middle of an iteration."""
        changed = {name: getattr(self, name).copy() for name in ("objective", "norm", "status", "n_iter")}
        return {**vars(self), **changed}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        kept = {name: getattr(self, name) for name in self.KEPT}
        if not self.algorithm.monotone:
            kept["best"] = self.best
        columns = [np.array(column) for column in zip(*self.records, strict=True)]
        return {"run": kept, "records": columns, "stopping": self.stopping.state(), "rule": self.rule.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what a checkpoint has kept."""
        vars(self).update(state["run"])
        self.records = list(zip(*state["records"], strict=True))
        self.clock = WorkClock(float(self.records[-1][-1]))
        if not len(self.active):
            return
        if len(self.active) < self.problem.n_observations:
            self.problem = self.problem.take(self.active)
        self.stopping.restore(state["stopping"])
        self.rule = self.algorithm.start(self.problem, self.point)
        self.rule.restore(state["rule"])

    def outcome(self) -> Outcome:
        """Return what the run came to."""
        trace = Trace(*(np.array(column) for column in zip(*self.records, strict=True)))
        factors = self.problem.split(self.kept)
        return Outcome(factors, self.objective, self.status, self.n_iter, trace, self.rule.note)

    def _iterate(self) -> None:
        old = self.point
        proposal = self.rule.propose(self.problem, old)
        new = proposal.point
        if new is None:
            new = self.problem.evaluate(proposal.q, known=old)
        new, tries = self._safeguard(old, new, proposal.retreats)
        sweeps = proposal.updates / self.problem.size + tries
        self.iteration += 1
        self.step, self.sweeps = self.step + proposal.parallel_steps + tries, self.sweeps + sweeps
        norm, ends, ended = self._ends(old, new, sweeps)
        if new.carried and ended.all():
            # The end is declared on what the rows say, not on what was carried on from step to step.
            new = self.problem.evaluate(new.q, known=old)
            norm, ends, ended = self._ends(old, new, 0.0)
        elif new.carried and ended.any():
            new = self._with_exact_objective(new, np.flatnonzero(ended))
        self.objective[self.active], self.norm[self.active] = new.objective, norm
        self.n_iter[self.active] = self.iteration
        self.point = new
        self._remember_best()
        if ended.any():
            self._finish(ends, ended, old)

    def _ends(self, old: Any, new: Any, sweeps: float) -> tuple[Array, Array, Array]:
        """Return the gradient norm, how each observation ended, and whether it did."""
        norm = self.problem.gradient_norm(new)
        ends = self.stopping.check(self.problem, old, new, norm, sweeps)
        return norm, ends, np.array([end is not None for end in ends])

    def _with_exact_objective(self, point: Any, which: Array) -> Any:
        """Return the point with the objective of some observations computed anew; the others go on."""
        exact = self.problem.take(which).evaluate(point.q.take(which))
        objective = point.objective.copy()
        objective[which] = exact.objective
        return replace(point, objective=objective)

    def _look_at_rows(self) -> None:
        """Put what the rows say in the place of what was carried on from step to step, at the end of a run."""
        if self.point.carried:
            self.point = self.problem.evaluate(self.point.q, known=self.point)
            self.objective[self.active] = self.point.objective
            self.norm[self.active] = self.problem.gradient_norm(self.point)
            self.records[-1] = self._entry(self.records[-1][-1])

    def _safeguard(self, old: Any, new: Any, retreats: Iterable[Any]) -> tuple[Any, int]:
        """Put a safer step in place of one that lowered the objective; return how many were tried, too."""
        tries, lower = 0, fell(old, new)
        if not lower.any():
            return new, tries
        self.rule.forget(lower)
        for q in retreats:
            tries += 1
            new = self.problem.evaluate(q.where(lower, new.q), known=old)
            lower = fell(old, new)
            if not lower.any():
                break
        return new, tries

    def _remember_best(self) -> None:
        """Keep the best point of an algorithm that may lose it; the others are at their best already."""
        if self.algorithm.monotone:
            return
        better = self.point.objective >= self.best.objective
        if better.all():
            self.best = self.point
        elif better.any():
            self.best = self.problem.evaluate(self.point.q.where(better, self.best.q))

    def _finish(self, ends: Array, ended: Array, old: Any) -> None:
        """Store the observations that have ended, each at the point that its status calls for, and go on without."""
        self.status[self.active[ended]] = ends[ended]
        back, diverged = (ends == Status.NON_FINITE) | (ends == Status.DECREASED), ends == Status.DIVERGED
        for which, point in ((back, old), (diverged, self.best), (ended & ~back & ~diverged, self.point)):
            self._keep(which, point)
        keep = np.flatnonzero(~ended)
        self.active = self.active[keep]
        if not len(keep):
            return
        self.problem, self.point = self.problem.take(keep), self.point.take(keep)
        self.rule = self.rule.take(keep)
        self.best = self.point if self.algorithm.monotone else self.best.take(keep)
        self.stopping = self.stopping.take(keep)

    def _keep(self, which: Array, point: Any) -> None:
        if not which.any():
            return
        rows = self.active[which]
        self.kept = self.kept.with_rows(rows, point.q.take(np.flatnonzero(which)))
        self.objective[rows] = point.objective[which]

    def _entry(self, seconds: float) -> tuple[int, int, float, Array, Array, float]:
        """Return an entry of the trace."""
        return self.iteration, self.step, self.sweeps, self.objective.copy(), self.norm.copy(), seconds

    def _record(self, meter: NoProgress) -> bool:
        """Write the trace, move the meter, call back; return whether the callback asked to stop."""
        seconds = self.clock.seconds()
        self.records.append(self._entry(seconds))
        meter.update(self.iteration, self.objective, self.norm, self.active)
        if self.callback is None:
            return False
        self._keep(np.ones(len(self.active), bool), self.point)
        parts = (self.objective, self.norm, host(self.kept.mean), host(self.kept.sd))
        objective, norm, mean, sd = (part[0].copy() if self.single else part.copy() for part in parts)
        info = Iteration(self.iteration, self.step, self.sweeps, objective, norm, seconds, mean, sd)
        return self.callback(info) is True


def fell(old: Any, new: Any) -> Array:
    """Return where the objective fell by more than rounding, (N,); NaN is a fall.

    A rise that rounding may have made is no gain either, so the larger rounding of the two counts.
    """
    return ~(new.objective - np.maximum(new.rounding, old.rounding) >= old.objective - 2 * old.rounding)
