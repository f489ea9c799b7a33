"""The whole mean-field posterior of a Gaussian model, beside BayesPy's variational message passing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.harness.ladder import loosest
from benchmarks.harness.results import Section, Table, Target
from benchmarks.harness.rounds import PAUSE, ratios, seconds_text, take_turns, times, typical
from benchmarks.harness.worker import ContenderError, Worker
from benchmarks.problems.store import Problem, save

#: The largest difference from the optimum, in posterior standard deviations for means and relative for these.
ACCURACY = 1e-5
#: size: rows and latents, rounds, seconds for BayesPy to find how many sweeps it needs
SIZES = {
    "small": ((100, 20), 3, 10.0),
    "default": ((150, 50), 3, 20.0),
    "large": ((400, 150), 5, 300.0),
}
SWEEPS = tuple(sorted({round(2 ** (power / 3)) for power in range(22)}))
TOLERANCES = tuple(10 ** (-half / 2) for half in range(4, 28))


def build(shape: tuple[int, int]) -> Problem:
    """Return a regression with independent covariates, at a size that BayesPy can finish."""
    rng = np.random.default_rng(3)
    W = rng.standard_normal(shape)
    x = W @ rng.standard_normal(shape[1]) + 0.5 * rng.standard_normal(shape[0])
    return Problem(f"dense {shape[0]} x {shape[1]}", "gaussian", W, x, noise_sd=0.5)


def distance_from_optimum(problem: Problem, answer: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the larger error of means and standard deviations; the optimum is a linear system and a formula."""
    W, noise, prior = problem.matrix, problem.noise_sd**-2, problem.prior_sd**-2
    sd = (prior + noise * np.sum(W**2, axis=0)) ** -0.5
    mean = np.linalg.solve(noise * W.T @ W + prior * np.eye(W.shape[1]), noise * (W.T @ problem.x))
    return float(max(np.max(np.abs(answer[0] - mean) / sd), np.max(np.abs(answer[1] / sd - 1))))


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run both to the same optimum."""
    shape, repeats, budget = SIZES[size]
    problem = build(shape)
    note = (
        f"{problem.title}: a size chosen so that BayesPy finishes in the time there is, "
        "for its messages between m latents take m^2 products. One node for each latent gives it the same factorised "
        f"posterior. Both run to within {ACCURACY:g} of the optimum's means (in standard deviations) and standard "
        "deviations (relative)."
    )
    section = Section("gaussian_meanfield", "Gaussian mean-field posterior: BayesPy", [note])
    with tempfile.TemporaryDirectory() as folder:
        save(problem, Path(folder))
        ours = Worker("benchmarks.contenders.ours:Forestmix", Path(folder))
        theirs = Worker("benchmarks.contenders.bayespy_vmp:BayespyVmp", Path(folder))
        with ours, theirs:
            settings = (("forestmix", ours, "tolerance", TOLERANCES), ("BayesPy", theirs, "sweeps", SWEEPS))
            try:
                compete(section, problem, settings, repeats, budget, say)
            except ContenderError as error:
                section.notes.append(f"Not measured: {error}.")
    return section


def compete(
    section: Section, problem: Problem, settings: tuple[tuple[str, Worker, str, tuple[float, ...]], ...],
    repeats: int, budget: float, say: Callable[[str], None],
) -> None:  # fmt: skip
    """Find what effort each needs, then let them take turns; fill the section."""
    outcomes, runs = {}, {}
    for name, worker, option, ladder in settings:
        say(f"{problem.title}: {name}")

        def attempt(setting: float, worker: Worker = worker, option: str = option) -> tuple[float, float]:
            reply = worker.call("run", budget, **{option: setting})
            return distance_from_optimum(problem, reply.value), reply.seconds

        outcomes[name] = loosest(ladder, attempt, ACCURACY, budget)
        if outcomes[name].reached:
            chosen = {option: outcomes[name].best.setting}
            runs[name] = typical(
                lambda worker=worker, chosen=chosen: worker.call("run", **chosen).seconds, outcomes[name].best.seconds
            )
    rounds = take_turns(runs, repeats, budget / 2, pause=PAUSE)
    table = Table("", ["contender", "distance", "effort", "time", "relative to forestmix", "first call"])
    for name, _, option, _ in settings:
        outcome = outcomes[name]
        cells = [name, outcome.verdict(ACCURACY), f"{outcome.best.setting:.0e} {option}" if outcome.best else "-"]
        if option == "sweeps" and outcome.best:
            cells[-1] = f"{outcome.best.setting} sweeps"
        both = name in rounds and "forestmix" in rounds
        cells += [
            seconds_text(times(rounds, name).middle) if name in rounds else "-",
            ratios(rounds, name, "forestmix").text("x") if both else "-",
        ]
        table.rows.append([*cells, seconds_text(outcome.first_seconds)])
    section.tables.append(table)
    if len(rounds) == len(settings):
        ratio = ratios(rounds, "BayesPy", "forestmix")
        target = Target("BayesPy on the same Gaussian model", ">= 1,000x", ratio.text("x"), ratio.middle >= 1000)
        section.targets.append(target)
        section.series["BayesPy"] = ratio.middle
