"""Monte Carlo contenders run in turns, judged by the exact ELBO while their clocks stand still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.harness.worker import ContenderError, Worker, workers
from benchmarks.problems.judge import ElboJudge

RATES = (0.05, 0.01, 0.002)
NUMPYRO = "benchmarks.contenders.numpyro_svi:NumpyroSvi"
OTHERS = {
    "blackjax meanfield_vi": ("benchmarks.contenders.blackjax_vi:BlackjaxVi", {}),
    "PyMC ADVI": ("benchmarks.contenders.pymc_advi:PymcAdvi", {}),
    "viabel": ("benchmarks.contenders.viabel_vi:ViabelVi", {}),
}
#: The part of its seconds that NumPyro has at each rate; the best rate then has the rest.
PILOT = 0.25
#: Steps of the first turn, and of any turn at least; averages of iterates need a few.
FEWEST = 10
#: Turns that a contender's seconds are divided into; more would find the time to target more finely.
TURNS = 10


@dataclass
class Run:
    """A contender under way: steps and seconds so far without compilation, and the least gap seen.

    ``given_up``: whether another learning rate was so much better that this one has not had all of its seconds.
    """

    name: str
    worker: Worker
    rate: float
    steps: int = 0
    seconds: float = 0.0
    gap: float | None = None
    reached: bool = False
    failure: str = ""
    first_seconds: float | None = None
    given_up: bool = False
    chunk: int = FEWEST
    history: list[tuple[float, float]] = field(default_factory=list)

    def verdict(self) -> str:
        """Return the accuracy in words for a table."""
        if self.failure:
            return f"failed: {self.failure}"
        return f"{self.gap:.0e}" if self.gap is not None and np.isfinite(self.gap) else "diverged"

    def turn(self, judge: ElboJudge, optimum: float, target: float, budget: float) -> None:
        """Make a chunk of steps, then look at the ELBO."""
        try:
            reply = self.worker.call("advance", 4 * budget, rate=self.rate, steps=self.chunk)
        except ContenderError as error:
            self.failure = str(error)
            return
        self.steps += self.chunk
        if self.first_seconds is None:
            self.first_seconds = reply.seconds  # mostly compilation, so its few steps are not charged
        else:
            self.seconds += reply.seconds
            self.chunk = self._next_chunk(reply.seconds, budget)
        gap = judge.gap(*reply.value, optimum)
        self.history.append((self.seconds, gap))
        self.gap = gap if self.gap is None else min(gap, self.gap)
        self.reached = gap <= target

    def _next_chunk(self, seconds: float, budget: float) -> int:
        """Return how many steps take one turn's share of the budget, at most ten times as many as last time."""
        wanted = budget / TURNS / max(seconds / self.chunk, 1e-9)
        return max(FEWEST, int(min(wanted, 10 * self.chunk)))


def race_monte_carlo(
    title: str, folder: Path, judge: ElboJudge, optimum: float, target: float, budget: float,
    say: Callable[[str], None],
) -> list[Run]:  # fmt: skip
    """Return NumPyro's runs and one of every other contender, each to the target or its last second.

    Of NumPyro's learning rates only the best goes on after a part of the time.
    """

    def finish(runs: list[Run], share: float = 1.0) -> list[Run]:
        active = list(runs)
        while active:
            for run in active:
                run.turn(judge, optimum, target, budget)
            active = [run for run in active if not (run.reached or run.failure or run.seconds >= share * budget)]
        return runs

    say(f"{title}: NumPyro SVI at {len(RATES)} learning rates")
    with Worker(NUMPYRO, folder) as worker:
        runs = finish([Run(f"NumPyro SVI, rate {rate:g}", worker, rate) for rate in RATES], PILOT)
        best = min(runs, key=merit)
        for run in runs:
            run.given_up = run is not best and not run.reached
        if not (best.reached or best.failure):
            finish([best])
    say(f"{title}: {', '.join(OTHERS)}")
    with workers(OTHERS, folder) as others:
        return [*runs, *finish([Run(name, worker, best.rate) for name, worker in others.items()])]


def merit(run: Run) -> tuple[bool, float]:
    """Return what sorts the best run first: the fastest to reach the target, or else the closest to it."""
    return (not run.reached, run.seconds if run.reached else np.nan_to_num(run.gap or np.inf, nan=np.inf))
