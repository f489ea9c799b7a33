"""Random effects by formula, beside bambi: the same formula, the same priors, and NUTS as the reference.

Fixed effects have N(0, 1) priors and sds of groups and of the noise half-normal ones with sd 1, in both. Three data
sets that come with statsmodels: flags, measurements and counts. The libraries of ``beside`` have the same data.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import forestmix as fmx
from benchmarks.harness.results import Section, Table, Target
from benchmarks.problems import bayesian

MEAN, SD, LEVEL = 0.1, 0.1, 0.9
#: Draws of each of two chains.
DRAWS = {"small": 200, "default": 2000, "large": 8000}
#: A share of the reference's draws in an interval of 90 % that says that intervals overlap as they should.
OVERLAP = (0.85, 0.95)


class Problem(NamedTuple):
    """A table, the fixed effects and groups of its formula, and the family; ``y`` is the response."""

    title: str
    family: str
    frame: Any
    fixed: list[str]
    groups: list[str]
    offset: bool = False


class Found(NamedTuple):
    """Mean and sd of fixed effects, intercept first, the scales as draws or as posteriors, and seconds."""

    mean: np.ndarray
    sd: np.ndarray
    scales: dict[str, Any]
    seconds: float


def problems() -> list[Problem]:
    """Return the data of ``beside`` as tables."""
    import pandas

    found = []
    for data in (bayesian.votes(), bayesian.sea_temperature(), bayesian.cancer_by_county()):
        fixed = [f"x{k}" for k in range(1, data.X.shape[1])]
        frame = pandas.DataFrame(data.X[:, 1:], columns=fixed).assign(y=data.x, o=data.offset)
        for name, group in data.groups.items():
            frame[name] = pandas.Categorical([f"g{level}" for level in group])
        if data.family == "bernoulli":
            frame["y"] = frame["y"].astype(int)
        found.append(Problem(data.title, data.family, frame, fixed, list(data.groups), np.ndim(data.offset) > 0))
    return found


def formula(problem: Problem) -> str:
    """Return the formula, which both libraries read."""
    terms = [*(problem.fixed or ["1"]), *(f"(1 | {name})" for name in problem.groups)]
    return "y ~ " + " + ".join([*terms, *(["offset(o)"] if problem.offset else [])])


def by_regress(problem: Problem) -> Found:
    """Fit by ``regress``."""
    prior: dict[str, Any] = {"Intercept": 1.0, **{f"1 | {name}": fmx.scales.HalfNormal(1.0) for name in problem.groups}}
    if problem.fixed:
        prior["fixed"] = 1.0
    if problem.family == "gaussian":
        prior["noise"] = fmx.scales.HalfNormal(1.0)
    began = time.perf_counter()
    fit = fmx.regress(formula(problem), problem.frame, family=problem.family, prior=prior)
    table = fit.summary()
    seconds = time.perf_counter() - began
    count = 1 + len(problem.fixed)
    scales = {name: fit.scales[scale] for name, scale in fit.priors.unknown.items()}
    return Found(np.asarray(table["mean"])[:count], np.asarray(table["sd"])[:count], scales, seconds)


def by_bambi(problem: Problem, draws: int) -> Found:
    """Sample by bambi."""
    import bambi

    def half() -> Any:
        return bambi.Prior("HalfNormal", sigma=1.0)

    priors = {name: bambi.Prior("Normal", mu=0.0, sigma=1.0) for name in ["Intercept", *problem.fixed]}
    priors |= {f"1|{name}": bambi.Prior("Normal", mu=0.0, sigma=half()) for name in problem.groups}
    if problem.family == "gaussian":
        priors["sigma"] = half()
    began = time.perf_counter()
    model = bambi.Model(
        formula(problem), problem.frame, family=problem.family, priors=priors, center_predictors=False
    )  # fmt: skip
    found = model.fit(draws=draws, tune=1000, chains=2, cores=1, random_seed=1, target_accept=0.95, progressbar=False)
    seconds = time.perf_counter() - began
    posterior = found.posterior
    fixed = np.stack([posterior[name].to_numpy().ravel() for name in ["Intercept", *problem.fixed]])
    scales = {f"1 | {name}": posterior[f"1|{name}_sigma"].to_numpy().ravel() for name in problem.groups}
    if problem.family == "gaussian":
        scales["noise"] = posterior["sigma"].to_numpy().ravel()
    return Found(fixed.mean(axis=1), fixed.std(axis=1), scales, seconds)


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run both on all data sets."""
    warnings.simplefilter("ignore")
    section = Section("formulas", "Random effects by formula, beside bambi")
    section.notes = [" ".join(__doc__.split("\n\n")[1].split())]
    if find_spec("bambi") is None:
        section.notes.append("bambi is not installed.")
        section.targets = [Target("fixed effects beside bambi", f"within {MEAN:g} sd and {SD:.0%}", "", None)]
        return section
    rows, scale_rows, means, sds, shares = [], [], [], [], []
    for problem in problems()[: 1 if size == "small" else None]:
        say(f"{problem.title}: regress")
        by_regress(problem)  # imports and compilation are not what is timed
        ours = by_regress(problem)
        say(f"{problem.title}: bambi")
        theirs = by_bambi(problem, DRAWS[size])
        means.append(float(np.max(np.abs(ours.mean - theirs.mean) / theirs.sd)))
        sds.append(float(np.max(np.abs(ours.sd / theirs.sd - 1))))
        rows.append([
            problem.title, f"`{formula(problem)}`", f"{means[-1]:.3f}", f"{sds[-1]:.1%}", f"{ours.seconds:.2f}",
            f"{theirs.seconds:.1f}",
        ])  # fmt: skip
        for name, draws in theirs.scales.items():
            own = ours.scales[name]
            low, high = own.interval(LEVEL)
            shares.append(float(np.mean((low <= draws) & (draws <= high))))
            ends = np.quantile(draws, [0.5 * (1 - LEVEL), 0.5 * (1 + LEVEL)])
            scale_rows.append([
                problem.title, f"sd({name})", f"{own.mean:.3f} ({low:.3f} to {high:.3f})",
                f"{draws.mean():.3f} ({ends[0]:.3f} to {ends[1]:.3f})", f"{shares[-1]:.1%}",
            ])  # fmt: skip
    section.tables = [
        Table("Largest error of a fixed effect's mean, in bambi's sds, and of its sd; seconds, bambi's with compiling",
              ["data", "formula", "mean", "sd", "regress", "bambi"], rows),
        Table("Scales with 90 % intervals, and the share of bambi's draws in ours",
              ["data", "scale", "regress", "bambi", "in ours"], scale_rows),
    ]  # fmt: skip
    least, most = OVERLAP
    section.targets = [
        Target("means beside bambi", f"within {MEAN:g} sd", f"{max(means):.3f} sd", max(means) <= MEAN),
        Target("sds beside bambi", f"within {SD:.0%}", f"{max(sds):.1%}", max(sds) <= SD),
        Target("scales' 90 % intervals hold bambi's draws", f"{least:.0%} to {most:.0%}",
               f"{min(shares):.1%} to {max(shares):.1%}", min(shares) >= least and max(shares) <= most),
    ]  # fmt: skip
    return section
