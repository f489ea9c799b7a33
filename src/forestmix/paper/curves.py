"""Run an algorithm on a ridge problem and record the objective on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import forestmix as fmx
from forestmix.paper.problems import Floats, RidgeProblem

#: So tight that nothing stops before its last iteration, unless it cannot move any more.
TOLERANCE = 1e-15
#: About how many points of a long run are drawn and tabulated: all of the beginning, then ever fewer.
THINNED_ROWS = 120

Advance = Callable[[float], object]


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


def run_steps(problem: RidgeProblem, label: str, algorithm: Any, steps: int, advance: Advance) -> Curve:
    """Run an algorithm whose iteration is one parallel step, and record every step.

    A run that converges before its last step keeps its last value.
    """
    rows = _recorded(problem, algorithm, steps, advance)
    last, missing = rows[-1], steps + 1 - len(rows)
    return _curve(problem, label, rows + [(last[0] + extra + 1, *last[1:]) for extra in range(missing)])


def run_race(problem: RidgeProblem, label: str, algorithm: Any, sweeps: int, target: float, advance: Advance) -> Curve:
    """Run an algorithm whose iteration is one sweep, to a target gap or for so many sweeps, with honest times."""
    # Once before the clock starts, so that compiling the kernels is not counted.
    fmx.infer(problem.model, problem.draw.x, algorithm, tol=TOLERANCE, max_iter=1)
    return _curve(problem, label, _recorded(problem, algorithm, sweeps, advance, target))


def _recorded(
    problem: RidgeProblem, algorithm: Any, iterations: int, advance: Advance, target: float = -1.0
) -> list[tuple[int, float, float, Floats]]:
    """Return step, sweeps, seconds and losses from the start on, until every image is within the target gap."""
    rows: list[tuple[int, float, float, Floats]] = []
    spent = 0.0  # by this function itself, which is taken off the time of the run

    def record(now: fmx.Iteration) -> bool:
        nonlocal spent
        began = time.perf_counter()
        loss = problem.loss(now.mean)
        rows.append((now.step, now.sweeps, now.seconds - spent, loss))
        advance(1 if now.iteration else 0)
        done = bool(np.all(problem.gap(loss) <= target))
        spent += time.perf_counter() - began
        return done

    fmx.infer(problem.model, problem.draw.x, algorithm, tol=TOLERANCE, max_iter=iterations, callback=record)
    advance(iterations + 1 - len(rows))
    return rows


def _curve(problem: RidgeProblem, label: str, rows: Sequence[tuple[int, float, float, Floats]]) -> Curve:
    step, sweeps, seconds, loss = (np.array(column) for column in zip(*rows, strict=True))
    draw = problem.draw
    return Curve(label, draw.seed, draw.names, step, sweeps, seconds, loss, problem.gap(loss), problem.optimum)


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
