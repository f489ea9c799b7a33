"""Run an algorithm on a ridge problem and record the objective on the way."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import forestmix as fmx
from forestmix.paper.problems import Floats, RidgeProblem
from forestmix.paper.settings import Meter

#: So tight that nothing stops before its last iteration, unless it cannot move any more.
TOLERANCE = 1e-15
#: About how many points of a long run are drawn and tabulated: all of the beginning, then ever fewer.
THINNED_ROWS = 120


@dataclass(frozen=True, eq=False)
class Curve:
    """The objective of each image of a seed over a run; row 0 is the start.

    ``step``, ``sweeps``, ``seconds``: parallel steps, updates divided by latents, and time so far, (T + 1,); ``loss``
    and ``gap``: the ridge objective and its relative distance from the optimum, (T + 1, N); ``optimum``: (N,).
    """

    label: str
    seed: int
    images: tuple[str, ...]
    step: Any
    sweeps: Floats
    seconds: Floats
    loss: Floats
    gap: Floats
    optimum: Floats


@dataclass(frozen=True, eq=False)
class Panel:
    """One experiment: a curve for each label and seed, each with all images of the seed."""

    name: str
    title: str
    curves: tuple[Curve, ...]


class Recorder:
    """A callback that records the objective. Its own time is taken off the run's."""

    def __init__(self, problem: RidgeProblem, meter: Meter, target: float = 0.0) -> None:
        self.problem, self.meter, self.target = problem, meter, target
        self.rows: list[tuple[int, float, float, Floats]] = []
        self.spent = 0.0

    def __call__(self, now: fmx.Iteration) -> bool:
        """Record one iteration; stop once every image is within the target gap."""
        began = time.perf_counter()
        loss = self.problem.loss(now.mean)
        advance = now.sweeps if not self.rows else now.sweeps - self.rows[-1][1]
        self.rows.append((now.step, now.sweeps, now.seconds - self.spent, loss))
        self.meter.advance(advance if self.target else float(bool(now.iteration)))
        done = bool(self.target) and bool(np.all(self.problem.gap(loss) <= self.target))
        self.spent += time.perf_counter() - began
        return done

    def curve(self, label: str) -> Curve:
        """Return what was recorded."""
        step, sweeps, seconds, loss = (np.array(column) for column in zip(*self.rows, strict=True))
        draw = self.problem.draw
        gap = self.problem.gap(loss)
        return Curve(label, draw.seed, draw.names, step, sweeps, seconds, loss, gap, self.problem.optimum)


def run_steps(problem: RidgeProblem, label: str, algorithm: Any, steps: int, meter: Meter) -> Curve:
    """Run an algorithm whose iteration is one parallel step, and record every step.

    A run that converges before its last step keeps its last value.
    """
    recorder = Recorder(problem, meter)
    fmx.infer(problem.model, problem.draw.x, algorithm, tol=TOLERANCE, max_iter=steps, callback=recorder)
    missing = steps + 1 - len(recorder.rows)
    meter.advance(missing)
    last = recorder.rows[-1]
    recorder.rows += [(last[0] + extra + 1, *last[1:]) for extra in range(missing)]
    return recorder.curve(label)


def run_race(problem: RidgeProblem, label: str, algorithm: Any, sweeps: int, target: float, meter: Meter) -> Curve:
    """Run an algorithm whose iteration is one sweep, to a target gap or for so many sweeps, with honest times."""
    # Once before the clock starts, so that compiling the kernels is not counted.
    fmx.infer(problem.model, problem.draw.x, algorithm, tol=TOLERANCE, max_iter=1)
    recorder = Recorder(problem, meter, target)
    fmx.infer(problem.model, problem.draw.x, algorithm, tol=TOLERANCE, max_iter=sweeps, callback=recorder)
    meter.advance(sweeps - recorder.rows[-1][1])
    return recorder.curve(label)


def labels(curves: Iterable[Curve]) -> list[str]:
    """Return the labels of the curves, each once, in order."""
    return list(dict.fromkeys(curve.label for curve in curves))


def pooled(curves: Sequence[Curve], label: str, column: str = "gap") -> Floats:
    """Return the losses or gaps of one label over all seeds and images, (T + 1, images)."""
    return np.concatenate([getattr(curve, column) for curve in curves if curve.label == label], axis=-1)


def thinned(curve: Curve) -> Curve:
    """Return a long curve at points that are even on a log scale, the first and the last among them."""
    last = len(curve.loss) - 1
    even = np.geomspace(1, max(last, 1), THINNED_ROWS).round().astype(int)
    rows = np.unique(np.concatenate([[0], np.minimum(even, last)]))
    columns = ("step", "sweeps", "seconds", "loss", "gap")
    return replace(curve, **{name: getattr(curve, name)[rows] for name in columns})
