"""``infer``: the one loop that every algorithm runs in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from forestmix import memory
from forestmix.arrays import Array
from forestmix.checks import between_zero_and_one, flag, one_of, whole_number
from forestmix.clock import WorkClock
from forestmix.errors import ArgumentError
from forestmix.inference import ALGORITHMS, Algorithm, ForestMixture, Point, Problem
from forestmix.inference.base import choose_objective
from forestmix.inference.batches import DEFAULT_MEMORY_BUDGET, merged, parts_of_batch
from forestmix.inference.progress import NoProgress, ProgressBar
from forestmix.inference.stopping import Stopping
from forestmix.model import DEF, Observations, observations
from forestmix.posterior.full_result import joint_result
from forestmix.posterior.result import LayerPosterior, Result, Status, Trace
from forestmix.small import chosen_engine

#: Iterations when ``max_iter`` is left out.
DEFAULT_MAX_ITER = 10_000


@dataclass(frozen=True)
class Iteration:
    """What a callback sees after each iteration, and once before the first; arrays have (N, ...) for a batch.

    ``mean`` and ``sd`` are those of all latents; the layers of a deep model are stacked, the lowest first.
    """

    iteration: int
    step: int
    sweeps: float
    objective: Any
    gradient_norm: Any
    seconds: float
    mean: Array
    sd: Array


def infer(
    model: DEF,
    x: npt.ArrayLike,
    algorithm: str | Algorithm = "fm",
    objective: str = "auto",
    accelerate: bool | str = True,
    covariance: str = "factorised",
    engine: str = "auto",
    init: Any = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    progress: bool = False,
    callback: Callable[[Iteration], object] | None = None,
    memory_budget: float = DEFAULT_MEMORY_BUDGET,
) -> Result:
    """Infer the mean-field posterior of the latents given observations.

    Args:
        model: the model.
        x: one observation (n,) or a batch (N, n), an array or a data frame; NaN, and what a masked array masks, marks
            a missing entry.
        algorithm: "fm", "cavi", "block", "hogwild", "damped", or an object such as ``CAVI(order="random")``.
        objective: "elbo", or "fm" for the paper's bound, which only the forest mixture algorithm climbs; "auto" is the
            ELBO. An algorithm object brings its own.
        accelerate: for "fm": conjugate gradients on the means or a factor of their matrix, whichever is faster, with
            the variances solved once for the whole batch; "cg" or "direct" for one of the two. Newton steps for rows
            that are not Gaussian.
        covariance: "factorised", or "full" for the best Gaussian q with all its correlations, for one layer under a
            Gaussian prior with up to 6,000 latents besides one-hot columns (docs/groups.md). Models with unknown scales
            have it anyway (docs/scales.md); with more latents, their scales are at their mode.
        engine: "reference" for NumPy's and SciPy's products, which compile nothing, "compiled" for Numba's kernels;
            "auto" takes the former where W is small (``forestmix.small``). W in an array of another library has the
            reference engine, on its own device.
        init: where to start: a ``Result``, or a pair ``(mean, sd)``, e.g. from an encoder; the prior when left out.
        tol: the run has converged when the relative gradient norm is at most ``tol`` and the optimum is near (see
            ``forestmix.inference.stopping``); each observation stops by itself. 0 runs to ``max_iter``.
        max_iter: iterations at most; 10,000 when left out. 0 evaluates the bounds at the start.
        progress: show a progress bar.
        callback: called with an ``Iteration`` before the first and after every iteration; the run stops if it
            returns True.
        memory_budget: bytes of work arrays that a batch may take. A larger batch is run in parts, one after another,
            and under Gaussian rows so are observations that miss different entries, each with the result that it has
            alone; a batch with a ``callback``, which sees all observations, is run whole.

    Returns:
        A ``Result``; a run that diverges or hits its limit returns one too, and its ``message`` says what to try.

    """
    data = observations(model, x)
    chosen = _algorithm(algorithm, objective, accelerate)
    _check_options(tol, max_iter, progress, callback)
    if one_of("covariance", covariance, ("factorised", "full")) == "full" or model.unknown_scales:
        if chosen.name != ForestMixture.name or init is not None:
            raise ArgumentError("algorithm and init must be left out with covariance='full' and with unknown scales.")
        return joint_result(model, data, max_iter, lambda known, last: infer(known, x, chosen, init=last))
    if engine == "compiled" and model.layers[0].weights.on_device:
        raise ArgumentError(
            "engine must be 'auto' or 'reference' for W in an array of another library; got 'compiled'."
        )
    limit = DEFAULT_MAX_ITER if max_iter is None else int(max_iter)
    parts = parts_of_batch(model, data, memory_budget)
    if callback is not None:
        parts = [np.arange(len(data.x))]
    results = []
    # Overflow is a status of the result, not a warning on the way.
    with (
        chosen_engine(engine),
        memory.reused(),
        np.errstate(all="ignore"),
        ProgressBar(chosen.name, tol) if progress else NoProgress() as meter,
    ):
        problem = chosen.problem(model, data)
        start = problem.default_start() if init is None else problem.start(init)
        for part in parts:
            one = len(parts) == 1
            run = _Run(chosen, problem if one else problem.take(part), start.take(part), tol, callback)
            run.loop(limit, meter)
            results.append(run.result(model, data if one else data.take(part)))
    return results[0] if len(results) == 1 else merged(results, data, parts)


class _Run:
    """A run under way. Observations that have finished leave the batch; ``active`` says which are still in it."""

    def __init__(
        self, algorithm: Algorithm, problem: Problem, start: Any, tol: float,
        callback: Callable[[Iteration], object] | None,
    ) -> None:  # fmt: skip
        self.clock = WorkClock()
        self.algorithm, self.problem, self.callback = algorithm, problem, callback
        self.single = problem.single
        self.point = problem.evaluate(start)
        problem.check_range(self.point)
        self.memory = algorithm.start(problem, self.point)
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

    def loop(self, max_iter: int, meter: NoProgress) -> None:
        """Iterate until every observation has ended."""
        stop = self._record(meter)
        while len(self.active) and not stop and self.iteration < max_iter:
            self._iterate()
            stop = self._record(meter)
        if stop:
            self.status[self.active] = Status.STOPPED
        if not len(self.active):
            return
        if self.point.tracked:
            self._look_at_rows()
        self._keep(np.ones(len(self.active), bool), self.point)

    def result(self, model: DEF, data: Observations) -> Result:
        """Return the outcome, in the shape that x was given in."""
        first: Callable[[Array], Any] = (lambda values: values[0]) if self.single else (lambda values: values)
        number: Callable[[Array], Any] = (lambda values: values[0].item()) if self.single else (lambda values: values)
        layers = tuple(LayerPosterior(q, self.single, model.dtype) for q in self.problem.split(self.kept))
        columns = [np.array(column) for column in zip(*self.records, strict=True)]
        columns[3:5] = [column[:, 0] if self.single else column for column in columns[3:5]]
        return Result(
            layers=layers,
            algorithm=self.algorithm.name,
            objective_name=self.problem.objective_name,
            objective=number(self.objective),
            climbed=self.problem.climbed,
            converged=number(self.status == Status.CONVERGED),
            status=first(self.status),
            n_iter=number(self.n_iter),
            trace=Trace(*columns),
            model=model,
            data=data,
        )

    def _iterate(self) -> None:
        old = self.point
        proposal = self.algorithm.propose(self.problem, old, self.memory)
        new = proposal.point
        if new is None:
            new = self.problem.evaluate(proposal.q, known=old)
        new, tries = self._safeguard(old, new)
        sweeps = proposal.updates / self.problem.size + tries
        self.iteration, self.step, self.sweeps = (
            self.iteration + 1, self.step + proposal.parallel_steps + tries, self.sweeps + sweeps,
        )  # fmt: skip
        norm = self.problem.gradient_norm(new)
        ends = self.stopping.check(self.problem, old, new, norm, sweeps)
        if new.tracked and all(end is not None for end in ends):
            # The end is declared on what the rows say, not on what was carried on from step to step.
            new = self.problem.evaluate(new.q, known=old)
            norm = self.problem.gradient_norm(new)
            ends = self.stopping.check(self.problem, old, new, norm, 0.0)
        elif new.tracked and any(end is not None for end in ends):
            new = self._with_exact_objective(new, np.flatnonzero([end is not None for end in ends]))
        self.objective[self.active], self.norm[self.active] = new.objective, norm
        self.n_iter[self.active] = self.iteration
        self.point = new
        self._remember_best()
        if any(end is not None for end in ends):
            self._finish(np.array(ends, dtype=object), old)

    def _with_exact_objective(self, point: Point, which: Array) -> Point:
        """Return the point with the objective of some observations computed anew; the others go on."""
        exact = self.problem.take(which).evaluate(point.q.take(which), known=point.take(which))
        objective = point.objective.copy()
        objective[which] = exact.objective
        return replace(point, objective=objective)

    def _look_at_rows(self) -> None:
        """Put what the rows say in the place of what was carried on from step to step, at the end of a run."""
        self.point = self.problem.evaluate(self.point.q, known=self.point)
        self.objective[self.active], self.norm[self.active] = (
            self.point.objective,
            self.problem.gradient_norm(self.point),
        )
        *before, _, _, seconds = self.records[-1]
        self.records[-1] = (*before, self.objective.copy(), self.norm.copy(), seconds)  # type: ignore[assignment]

    def _safeguard(self, old: Point, new: Point) -> tuple[Point, int]:
        """Put a safer step in place of one that lowered the objective; return how many were tried, too."""
        tries = 0
        fell = _fell(old, new)
        if fell.any():
            self.memory.forget(fell)
            for q in self.algorithm.retreats(self.problem, old, new.q, self.memory):
                tries += 1
                new = self.problem.evaluate(q.where(fell, new.q))
                fell = _fell(old, new)
                if not fell.any():
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

    def _finish(self, ends: Array, old: Point) -> None:
        """Store the observations that have ended, each at the point that its status calls for, and go on without."""
        ended = np.array([end is not None for end in ends])
        back = np.array([end in (Status.NON_FINITE, Status.DECREASED) for end in ends])
        self.status[self.active[ended]] = ends[ended]
        diverged = ends == Status.DIVERGED
        for which, point in ((back, old), (diverged, self.best), (ended & ~back & ~diverged, self.point)):
            self._keep(which, point)
        keep = np.flatnonzero(~ended)
        self.active = self.active[keep]
        if not len(keep):
            return
        self.problem, self.point = self.problem.take(keep), self.point.take(keep)
        self.memory = self.memory.take(keep)
        self.best = self.point if self.algorithm.monotone else self.best.take(keep)
        self.stopping.take(keep)

    def _keep(self, which: Array, point: Point) -> None:
        if not which.any():
            return
        rows = self.active[which]
        self.kept = self.kept.with_rows(rows, point.q.take(np.flatnonzero(which)))
        self.objective[rows] = point.objective[which]

    def _record(self, meter: NoProgress) -> bool:
        """Write the trace, move the meter, call back; return whether the callback asked to stop."""
        seconds = self.clock.seconds()
        record = (self.iteration, self.step, self.sweeps, self.objective.copy(), self.norm.copy(), seconds)
        self.records.append(record)
        meter.update(self.iteration, self.objective, self.norm, self.active)
        if self.callback is None:
            return False
        self._keep(np.ones(len(self.active), bool), self.point)
        shaped = [
            part[0] if self.single else part.copy()
            for part in (self.objective, self.norm, self.kept.mean, self.kept.sd)
        ]
        info = Iteration(
            self.iteration,
            self.step,
            self.sweeps,
            shaped[0],
            shaped[1],
            seconds,
            shaped[2].copy(),
            shaped[3].copy(),
        )
        return self.callback(info) is True


def _fell(old: Point, new: Point) -> Array:
    """Return where the objective fell by more than rounding; one that rounding may have made is no gain either."""
    return ~(new.objective - np.maximum(new.rounding, old.rounding) >= old.objective - 2 * old.rounding)


def _algorithm(algorithm: str | Algorithm, objective: str, accelerate: bool | str) -> Algorithm:
    """Return the algorithm object; options that it would have to ignore are refused."""
    choose_objective(objective)
    if isinstance(algorithm, Algorithm):
        if objective != "auto" or accelerate is not True:
            raise ArgumentError(
                "objective and accelerate go with an algorithm given by name; set them on the object instead, "
                f"e.g. ForestMixture(objective={objective!r}, accelerate={accelerate!r})."
            )
        return algorithm
    if one_of("algorithm", algorithm, ALGORITHMS) == ForestMixture.name:
        return ForestMixture(objective=objective, accelerate=accelerate)
    if objective == "fm":
        raise ArgumentError(f"objective must be 'auto' or 'elbo' for algorithm {algorithm!r}; got 'fm'.")
    return ALGORITHMS[algorithm]()


def _check_options(tol: float, max_iter: int | None, progress: bool, callback: object) -> None:
    between_zero_and_one("tol", tol, or_zero=True)
    whole_number("max_iter", max_iter, least=0, optional=True)
    flag("progress", progress)
    if callback is not None and not callable(callback):
        raise ArgumentError(f"callback must be callable; got {type(callback).__name__}.")
