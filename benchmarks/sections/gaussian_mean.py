"""The posterior mean of Gaussian models, a ridge regression, beside the solvers that people use for it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.contenders.linear import LARGEST_DIRECT
from benchmarks.harness.ladder import Outcome, loosest
from benchmarks.harness.results import Section, Table, Target
from benchmarks.harness.rounds import PAUSE, Rounds, ratios, seconds_text, take_turns, times, typical
from benchmarks.harness.worker import ContenderError, Reply, workers
from benchmarks.problems.gaussian import gaussian_problems
from benchmarks.problems.judge import RidgeJudge
from benchmarks.problems.store import Problem, save

TARGET_GAP = 1e-8
#: Tolerances in quarter decades, from the loosest.
LADDER = tuple(10 ** (-quarter / 4) for quarter in range(6, 54))
#: Where the search begins, as earlier runs ended: a wrong guess costs time only.
START, STARTS = LADDER[14], {"SciPy lsmr": LADDER[21], "Ridge lsqr": LADDER[18]}
STARTS |= dict.fromkeys(("SciPy cg", "SciPy cg, Jacobi", "Ridge sparse_cg"), LADDER[16])
#: Gaps fall as the square of the tolerance.
RUNGS_PER_DECADE = 2.0
#: size: rounds, seconds a run may take
EFFORT = {"small": (3, 3.0), "default": (4, 10.0), "large": (5, 60.0)}
#: Seconds within which there are more rounds.
SPARE = 5.0
#: A contender whose run takes longer than this many of forestmix's, and some seconds, is stopped.
SLOWER, GRACE = 3.0, 2.0

OURS, AS_IT_STOPS, SOLVERS = "forestmix", "forestmix, as it stops", "SciPy and scikit-learn"
#: Iterations of forestmix, 2 % more at each rung, where the search begins, and its own tolerance.
ITERATIONS = tuple(sorted({round(1.02**rung) for rung in range(400)}))
FIRST_ITERATIONS, DEFAULT = next(count for count in ITERATIONS if count >= 150), 1e-6
#: As many rungs cut the gap to a tenth. A bisection would try more iterations than a slow machine has time for.
ITERATION_RUNGS_PER_DECADE = 8.0
PROCESSES = {
    OURS: ("benchmarks.contenders.ours:Forestmix", {}),
    "forestmix CAVI": ("benchmarks.contenders.ours:Forestmix", {"algorithm": "cavi"}),
    SOLVERS: ("benchmarks.contenders.linear:RidgeSolvers", {}),
}
#: Each contender's process, and what its runs are given beside the tolerance.
CONTENDERS = {
    OURS: (OURS, {}),
    AS_IT_STOPS: (OURS, {}),
    "SciPy lsmr": (SOLVERS, {"solver": "lsmr"}),
    "SciPy cg": (SOLVERS, {"solver": "cg"}),
    "SciPy cg, Jacobi": (SOLVERS, {"solver": "cg:jacobi"}),
    "Ridge lsqr": (SOLVERS, {"solver": "ridge:lsqr"}),
    "Ridge sparse_cg": (SOLVERS, {"solver": "ridge:sparse_cg"}),
    "Ridge sag": (SOLVERS, {"solver": "ridge:sag"}),
    "Ridge saga": (SOLVERS, {"solver": "ridge:saga"}),
    "Ridge cholesky": (SOLVERS, {"solver": "ridge:cholesky"}),
    "Ridge svd": (SOLVERS, {"solver": "ridge:svd"}),
    "Cholesky": (SOLVERS, {"solver": "cholesky"}),
    "forestmix CAVI": ("forestmix CAVI", {}),
}
DIRECT = ("Ridge cholesky", "Ridge svd", "Cholesky")
NOTE = (
    f"Every solver runs to a relative gap of {TARGET_GAP:g} in the ridge objective, at the loosest tolerance from a "
    "ladder of quarter decades that reaches it. forestmix calls no result converged that may be 0.002 posterior "
    "standard deviations off, whatever its tolerance, so it makes the least number of iterations that reaches the gap, "
    f"in steps of 2 %, found beforehand; the line '{AS_IT_STOPS}' is `infer` with its default tolerance. forestmix "
    "returns the variances and the ELBO as well, and its time includes them; its first call makes two iterations. The "
    "least value of the objective comes from conjugate gradients in SciPy, with a bound on what is still missing. A "
    f"run that takes {SLOWER:g} times as long as forestmix, and {GRACE:g} seconds, is stopped, and at this size one "
    "that takes {limit:g} seconds."
)
WHEN_DIRECT = (
    "A direct solution takes of the order of n m min(n, m) operations, an iterative one n m for each iteration; a "
    "table's title says where a direct one won in this run."
)


def refusal(name: str, problem: Problem) -> str | None:
    """Return why a contender does not apply, or None."""
    if name in DIRECT and min(problem.shape) > LARGEST_DIRECT:
        return f"does not apply: a dense matrix of {min(problem.shape):,} squared does not fit into memory"
    if name == "Ridge svd" and problem.is_sparse:
        return "does not apply: dense W only"
    return None


Call = Callable[..., Reply]


def search(call: Call, name: str, judge: RidgeJudge, limit: float) -> Outcome[float]:
    """Return the contender's loosest tolerance that is enough."""

    def attempt(setting: float) -> tuple[float, float]:
        reply = call(limit, **effort(name, setting))
        return judge.gap(mean_of(reply.value)), reply.seconds

    if name == OURS:
        return loosest(ITERATIONS, attempt, TARGET_GAP, 4 * limit, FIRST_ITERATIONS, ITERATION_RUNGS_PER_DECADE)
    if name in (AS_IT_STOPS, *DIRECT):
        return loosest((DEFAULT if name == AS_IT_STOPS else LADDER[-1],), attempt, TARGET_GAP, limit)
    return loosest(LADDER, attempt, TARGET_GAP, 4 * limit, STARTS.get(name, START), RUNGS_PER_DECADE)


def effort(name: str, setting: float) -> dict[str, float]:
    """Return how long a contender is to run: so many iterations of forestmix, a tolerance of the others."""
    return {"tolerance": 0.0, "iterations": int(setting)} if name == OURS else {"tolerance": setting}


def mean_of(answer: object) -> object:
    """Return the means; forestmix returns standard deviations beside them."""
    return answer[0] if isinstance(answer, tuple) else answer


def race(problem: Problem, repeats: int, limit: float, say: Callable[[str], None]) -> Table:
    """Return the table of one problem."""
    columns = ["contender", "gap", "tolerance or effort", "time", "relative to forestmix", "first call"]
    table = Table(problem.title, columns)
    say(f"{problem.title}: the optimum, for the judge")
    judge = RidgeJudge(problem)
    failures = {name: reason for name in CONTENDERS if (reason := refusal(name, problem))}
    outcomes: dict[str, Outcome[float]] = {}
    first: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        save(problem, Path(folder))
        with workers(PROCESSES, Path(folder)) as processes:
            calls: dict[str, Call] = {
                name: partial(processes[process].call, "run", **options)
                for name, (process, options) in CONTENDERS.items()
                if name not in failures
            }
            for name, call in calls.items():
                say(f"{problem.title}: {name}")
                try:
                    if name in PROCESSES:
                        first[name] = call(limit, iterations=2).seconds
                    outcomes[name] = search(call, name, judge, limit)
                    if name == OURS and outcomes[name].best is not None:
                        limit = min(limit, GRACE + SLOWER * outcomes[name].best.seconds)
                except ContenderError as error:
                    failures[name] = f"failed: {error}"
            rounds = timed_rounds(calls, outcomes, repeats, limit, say)
    for name in CONTENDERS:
        table.rows.append(row(name, outcomes.get(name), failures.get(name), rounds, first.get(name)))
    return table


def timed_rounds(
    calls: dict[str, Call], outcomes: dict[str, Outcome[float]], repeats: int, limit: float, say: Callable[[str], None]
) -> Rounds:
    """Return the times of those that reached the target, taking turns."""
    ready = {name: outcome.best for name, outcome in outcomes.items() if outcome.reached and outcome.best}
    say(f"{repeats} rounds or more of {len(ready)} contenders")
    runs = {
        name: typical(lambda name=name, best=best: calls[name](**effort(name, best.setting)).seconds, best.seconds)
        for name, best in ready.items()
    }
    return take_turns(runs, repeats, limit, SPARE, PAUSE)


def row(
    name: str, outcome: Outcome[float] | None, failure: str | None, rounds: Rounds, first: float | None
) -> list[str]:
    """Return a contender's line."""
    if outcome is None:
        return [name, str(failure), "-", "-", "-", "-"]
    setting = "-" if name in DIRECT or outcome.best is None else f"{outcome.best.setting:.0e}"
    if name == OURS and outcome.best is not None:
        setting = f"{outcome.best.setting} iterations"
    cells = [name, outcome.verdict(TARGET_GAP), setting]
    begun = seconds_text(outcome.first_seconds if first is None else first)
    if name not in rounds:
        return [*cells, "-", "-", begun]
    relative = ratios(rounds, name, OURS).text("x") if OURS in rounds else "-"
    return [*cells, seconds_text(times(rounds, name).middle), relative, begun]


def targets(tables: dict[str, Table]) -> list[Target]:
    """Return the claims: against the best iterative contender on the large problems, and against Cholesky."""
    found = []
    for key, table in tables.items():
        relative = {line[0]: leading_number(line[4]) for line in table.rows if line[0] not in (OURS, AS_IT_STOPS)}
        rivals = {name: value for name, value in relative.items() if value and name not in (*DIRECT, "forestmix CAVI")}
        direct = {name: value for name, value in relative.items() if value and name in DIRECT}
        if key != "mnist":
            best = min(rivals, key=rivals.__getitem__, default=None)
            measured = f"{rivals[best]:.3g}x ({best})" if best else "no contender got there"
            claim = f"Gaussian mean, {table.title}: beside the best iterative contender"
            found.append(Target(claim, ">= 1.5x", measured, rivals[best] >= 1.5 if best else None))
        winners = {name: value for name, value in direct.items() if value < 1}
        if winners:
            best = min(winners, key=winners.__getitem__)
            table.title += f"; {best} wins here by {1 / winners[best]:.3g}x"
    return found


def leading_number(text: str) -> float | None:
    """Return the number that a cell begins with, or None."""
    try:
        return float(text.split("x")[0].replace(",", ""))
    except ValueError:
        return None


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run every problem."""
    repeats, limit = EFFORT[size]
    tables = {name: race(build(), repeats, limit, say) for name, build in gaussian_problems(size).items()}
    claims = targets(tables)
    speedups = {
        table.title.split(";")[0]: {line[0]: leading_number(line[4]) for line in table.rows}
        for table in tables.values()
    }
    finite = {
        title: {name: value for name, value in line.items() if value and math.isfinite(value)}
        for title, line in speedups.items()
    }
    return Section(
        "gaussian_mean", "Gaussian posterior mean", [NOTE.format(limit=limit), WHEN_DIRECT], list(tables.values()),
        claims, {"relative": finite},
    )  # fmt: skip
