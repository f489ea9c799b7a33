"""Bernoulli and Poisson rows to 1e-4 of the best ELBO, beside Monte Carlo libraries and L-BFGS on the exact ELBO."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness.results import Section, Table, Target
from benchmarks.harness.rounds import PAUSE, Rounds, ratios, seconds_text, short, take_turns, times
from benchmarks.harness.worker import ContenderError, Worker, workers
from benchmarks.problems.judge import ElboJudge
from benchmarks.problems.regression import regression_problems
from benchmarks.problems.store import Problem, save
from benchmarks.sections.monte_carlo import Run, race_monte_carlo

TARGET_GAP = 1e-4
#: Seconds within which there are more rounds.
SPARE = 5.0
#: size: rounds, seconds a Monte Carlo contender has at least, seconds an exact one may use
EFFORT = {"small": (3, 2.0, 5.0), "default": (3, 2.5, 10.0), "large": (9, 120.0, 600.0)}
#: Seconds that it may use at most, whatever forestmix took.
LONGEST = 60.0
OURS, RIVAL, AS_IT_STOPS = "forestmix", "L-BFGS, exact ELBO", "forestmix, as it stops"
EXACT = {OURS: ("benchmarks.contenders.ours:Forestmix", {}), RIVAL: ("benchmarks.contenders.lbfgs:ExactElbo", {})}
COLUMNS = ["contender", "gap", "effort", "time to target", "relative to forestmix", "first call"]
NOTES = [
    f"To a gap of {TARGET_GAP:g} relative to the best ELBO, that of forestmix at a tolerance of 1e-12 or of L-BFGS, "
    "whichever is higher; the ELBO of every answer is evaluated in NumPy by a quadrature of its own. forestmix and "
    "L-BFGS make the least number of iterations that reaches the target, found beforehand; the line "
    f'"{AS_IT_STOPS}" is `infer` with its default tolerance. '
    "Their gaps are those of the timed runs. The first call makes three iterations.",
    "Monte Carlo contenders run in turns of many steps, and after each turn the clock stands still while the ELBO is "
    "evaluated; the time is that of all turns up to the first that reaches the target, without compilation. They start "
    "from the prior mean as forestmix does, take one draw for a step and use Adam: NumPyro with the learning rate that "
    "is the best of three after a quarter of the time, the others with that rate too. JAX runs in single precision, "
    "its default.",
]


@dataclass
class Exact:
    """forestmix or L-BFGS on one problem: the ELBO in the end, the least iterations to the target, the gap there."""

    count: int
    final_elbo: float
    first_seconds: float
    explored_seconds: float
    iterations: int | None = None
    gap: float = 0.0


def explore(worker: Worker, judge: ElboJudge, limit: float) -> Exact:
    """Run to the end, or the limit, keeping every iterate."""
    first = worker.call("run", 3 * limit, iterations=3)
    explored = worker.call("explore", 3 * limit, seconds=limit)
    last = worker.call("iterate", number=explored.value - 1).value
    return Exact(explored.value, judge.elbo(*last), first.seconds, explored.seconds)


def least_iterations(worker: Worker, judge: ElboJudge, count: int, optimum: float) -> tuple[int | None, float]:
    """Return the first iterate within the target, by bisection since the ELBO rises, and its gap."""

    def gap(number: int) -> float:
        return judge.gap(*worker.call("iterate", number=number).value, optimum)

    low, high = 0, count - 1
    if gap(high) > TARGET_GAP:
        return None, gap(high)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if gap(middle) <= TARGET_GAP else (middle + 1, high)
    return low, gap(low)


def exact_rounds(
    processes: dict[str, Worker], exact: dict[str, Exact], gap_of: Callable[..., float], repeats: int, allowance: float
) -> tuple[Rounds, dict[str, float]]:
    """Return the times of the exact methods, and of forestmix with its own stopping rule, taking turns.

    The gaps are those of the very runs that were timed, the largest of all rounds; who misses the target in one of
    them has no time.
    """
    gaps: dict[str, float] = {}

    def run(name: str, process: str, options: dict[str, int]) -> float:
        reply = processes[process].call("run", **options)
        gaps[name] = max(gaps.get(name, 0.0), gap_of(*reply.value))
        return reply.seconds

    runs = {
        name: partial(run, name, name, {"iterations": found.iterations})
        for name, found in exact.items()
        if found.iterations is not None
    }
    rounds = take_turns(runs | {AS_IT_STOPS: partial(run, AS_IT_STOPS, OURS, {})}, repeats, allowance, SPARE, PAUSE)
    for name, found in exact.items():
        found.gap = gaps.get(name, found.gap)
    return {name: seconds for name, seconds in rounds.items() if gaps[name] <= TARGET_GAP}, gaps


@dataclass
class Race:
    """One problem: its table, ratios to forestmix of those that got there, Monte Carlo runs, and seconds.

    ``seconds`` are those of forestmix; ``rival_seconds`` those that L-BFGS was given and did not get there in, and
    ``rival_gap`` how close it came.
    """

    table: Table
    relative: dict[str, float]
    runs: list[Run]
    seconds: float | None
    rival_seconds: float | None
    rival_gap: float | None


def race(problem: Problem, size: str, say: Callable[[str], None]) -> Race:
    """Let all contenders work on one problem."""
    repeats, seconds, limit = EFFORT[size]
    judge = ElboJudge(problem)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(problem, folder)
        with workers(EXACT, folder) as processes:
            say(f"{problem.title}: forestmix and L-BFGS to the end")
            exact = {name: explore(worker, judge, limit) for name, worker in processes.items()}
            optimum = max(found.final_elbo for found in exact.values())
            for name, found in exact.items():
                found.iterations, found.gap = least_iterations(processes[name], judge, found.count, optimum)
            say(f"{problem.title}: {repeats} rounds or more")
            gap_of = partial(judge.gap, optimum=optimum)
            rounds, gaps = exact_rounds(processes, exact, gap_of, repeats, limit / 2)
        if OURS in rounds:  # long enough to tell whether they are slower by the factor claimed
            seconds = min(max(seconds, 21 * times(rounds, OURS).middle), LONGEST)
        runs = race_monte_carlo(problem.title, folder, judge, optimum, TARGET_GAP, seconds, say)
    difference = (exact[OURS].final_elbo - exact[RIVAL].final_elbo) / abs(optimum)
    title = f"{problem.title}; best ELBO {optimum:,.1f}, forestmix above L-BFGS by {difference:.0e} of it"
    table, relative = tabulate(exact, rounds, gaps, runs)
    table.title = title
    ours = times(rounds, OURS).middle if OURS in rounds else None
    missed = (None, None) if RIVAL in rounds else (exact[RIVAL].explored_seconds, exact[RIVAL].gap)
    return Race(table, relative, runs, ours, *missed)


def tabulate(
    exact: dict[str, Exact], rounds: Rounds, gaps: dict[str, float], runs: list[Run]
) -> tuple[Table, dict[str, float]]:
    """Return the lines of a problem, and the ratios of those that got there."""
    table, relative = Table("", list(COLUMNS)), {}
    ours = times(rounds, OURS).middle if OURS in rounds else None
    for name, found in exact.items():
        if name not in rounds:
            never = f"not reached in {found.explored_seconds:.1f} s"
            slower = f"> {short(found.explored_seconds / ours)}x" if ours else "-"
            cells = [name, f"{found.gap:.0e}", f"{found.count - 1:,} iterations", never, slower]
            table.rows.append([*cells, seconds_text(found.first_seconds)])
    for name in rounds:
        ratio = ratios(rounds, name, OURS) if ours else None
        line = [seconds_text(times(rounds, name).middle), ratio.text("x") if ratio else "-"]
        if name == AS_IT_STOPS:
            table.rows.append([name, f"{gaps[name]:.0e}", "tol = 1e-6", *line, "-"])
            continue
        found = exact[name]
        cells = [name, f"{max(found.gap, 0):.0e}", f"{found.iterations} iterations", *line]
        table.rows.append([*cells, seconds_text(found.first_seconds)])
        if ratio:
            relative[name] = ratio.middle
    for run in runs:
        ratio = run.seconds / ours if ours and run.seconds else None
        if ratio and run.reached:
            relative[run.name] = ratio
        text = "-" if ratio is None else f"{'' if run.reached else '> '}{short(ratio)}x"
        spent = seconds_text(run.seconds) if run.reached else f"not reached in {run.seconds:.1f} s"
        if run.given_up:
            text, spent = "-", f"another rate is better after {run.seconds:.1f} s"
        table.rows.append(
            [run.name, run.verdict(), f"{run.steps:,} steps", spent, text, seconds_text(run.first_seconds)]
        )
    return table, relative


def monte_carlo_target(title: str, found: Race) -> Target:
    """Return the claim beside Monte Carlo; where none got there, the time they were given has to be enough to tell."""
    claim = f"{title}: the fastest Monte Carlo contender that gets there"
    there = {run.name: found.relative[run.name] for run in found.runs if run.name in found.relative}
    if there:
        best = min(there, key=there.__getitem__)
        return Target(claim, ">= 20x", f"{short(there[best])}x ({best})", there[best] >= 20)
    given = [run.seconds for run in found.runs if not (run.failure or run.given_up) and run.seconds]
    if not given or found.seconds is None:
        return Target(claim, ">= 20x", "not measured", None)
    least = min(given) / found.seconds
    return Target(claim, ">= 20x", f"none gets there in {short(least)}x the time", True if least >= 20 else None)


def rival_target(title: str, found: Race) -> Target:
    """Return the claim beside L-BFGS; where it did not get there, the time that it was given has to be enough."""
    claim, ratio = f"{title}: L-BFGS on the exact ELBO", found.relative.get(RIVAL)
    if ratio is not None:
        return Target(claim, ">= 3x", f"{short(ratio)}x", ratio >= 3)
    if found.seconds is None or found.rival_seconds is None:
        return Target(claim, ">= 3x", "not measured", None)
    least = found.rival_seconds / found.seconds
    return Target(claim, ">= 3x", f"does not get there in {short(least)}x the time", True if least >= 3 else None)


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run every problem."""
    section = Section("elbo", "Bernoulli and Poisson: time to the optimum ELBO", list(NOTES))
    section.series["relative"] = {}
    for build in regression_problems(size).values():
        problem = build()
        if problem.note:
            section.notes.append(problem.note)
        try:
            found = race(problem, size, say)
        except ContenderError as error:
            section.notes.append(f"{problem.title} was not measured: {error}.")
            continue
        section.tables.append(found.table)
        section.targets += [monte_carlo_target(problem.title, found), rival_target(problem.title, found)]
        tried = [run for run in found.runs if not (run.reached or run.given_up)]
        never = {run.name: run.gap for run in tried if run.gap is not None}
        if found.rival_gap is not None:
            never[RIVAL] = found.rival_gap
        section.series["relative"][problem.title] = {"reached": found.relative, "never": never}
    return section
