"""Random intercepts at scale: a million Poisson rows, 100,000 groups, 10 fixed effects, with CPU time and memory.

The sd of the groups is known, unknown, and unknown through ``regress`` with a formula. A second problem has a random
intercept of 30,000 levels beside 50 dummy columns of a category. Each run has a process of its own, so that its peak
memory can be told; that of the process before the run, with data and libraries, stands beside.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

import forestmix as fmx
from benchmarks.harness.results import Section, Table, Target

#: size: rows, groups of the large problem; rows, levels of that with dummies.
SIZES = {"small": (5_000, 500, 5_000, 300), "default": (1_000_000, 100_000, 100_000, 30_000)}
SIZES["large"] = SIZES["default"]
FIXED, DUMMIES, TAU, SEED = 10, 50, 0.5, 2026
#: Seconds that the problem with dummies may take.
SECONDS = 60.0


class Run(NamedTuple):
    """What one process measured: CPU seconds, bytes before and at the peak, sd of groups with its sd, message."""

    seconds: float
    before: float
    peak: float
    scale: float
    scale_sd: float
    beta_error: float
    message: str


def peak_bytes() -> float:
    """Return the largest memory of this process so far."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def simulated(n: int, groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return covariates with a column of ones first, the group of each row, counts, and the true coefficients."""
    rng = np.random.default_rng(SEED)
    group = rng.integers(0, groups, n)
    X = np.c_[np.ones(n), rng.standard_normal((n, FIXED - 1))]
    beta = 0.2 * rng.standard_normal(FIXED)
    effect = TAU * rng.standard_normal(groups)
    return X, group, rng.poisson(np.exp(X @ beta + effect[group])).astype(float), beta


def by_model(n: int, groups: int, known: bool) -> Run:
    """Run ``infer`` on the model with its sparse weights; a known sd takes ``covariance="full"``."""
    X, group, x, beta = simulated(n, groups)
    Z = scipy.sparse.csr_array((np.ones(n), (np.arange(n), group)), shape=(n, groups))
    W = scipy.sparse.csr_array(scipy.sparse.hstack([X, Z]))
    tau = TAU if known else fmx.scales.HalfNormal(1.0)
    prior = fmx.Prior(fmx.Gaussian(sd=[*[2.0] * FIXED, *[tau] * groups]))
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), W), prior=prior)
    before, began = peak_bytes(), time.process_time()
    result = fmx.infer(model, x, covariance="full" if known else "factorised")
    posterior = result.posterior()
    error = np.max(np.abs(posterior.mean[:FIXED] - beta) / posterior.sd[:FIXED])
    seconds = time.process_time() - began
    scale = None if known else next(iter(result.scales.values()))
    return Run(
        seconds, before, peak_bytes(), TAU if scale is None else scale.mean, 0.0 if scale is None else scale.sd,
        float(error), result.message.splitlines()[-1],
    )  # fmt: skip


def by_formula(n: int, groups: int) -> Run:
    """Run ``regress`` on a frame."""
    import pandas

    X, group, x, beta = simulated(n, groups)
    names = [f"x{k}" for k in range(1, FIXED)]
    frame = pandas.DataFrame(X[:, 1:], columns=names).assign(group=group, count=x)
    before, began = peak_bytes(), time.process_time()
    fit = fmx.regress(f"count ~ {' + '.join(names)} + (1 | group)", frame, family="poisson")
    posterior = fit.posterior
    error = np.max(np.abs(posterior.mean[:FIXED] - beta) / posterior.sd[:FIXED])
    seconds = time.process_time() - began
    scale = next(iter(posterior.scales.values()))
    return Run(seconds, before, peak_bytes(), scale.mean, scale.sd, float(error), fit.message)


def with_dummies(n: int, levels: int) -> Run:
    """Run ``regress`` on a category of 50 dummy columns and a random intercept of many levels."""
    import pandas

    rng = np.random.default_rng(SEED + 1)
    category, group = rng.integers(0, DUMMIES + 1, n), rng.integers(0, levels, n)
    effects = 0.3 * rng.standard_normal(DUMMIES + 1)
    eta = effects[category] + TAU * rng.standard_normal(levels)[group]
    frame = pandas.DataFrame({"category": category, "group": group, "count": rng.poisson(np.exp(eta)).astype(float)})
    before, began = peak_bytes(), time.process_time()
    fit = fmx.regress("count ~ C(category) + (1 | group)", frame, family="poisson")
    posterior = fit.posterior
    found = posterior.mean[1 : DUMMIES + 1]
    error = np.max(np.abs(found - (effects[1:] - effects[0])) / posterior.sd[1 : DUMMIES + 1])
    seconds = time.process_time() - began
    scale = next(iter(posterior.scales.values()))
    return Run(seconds, before, peak_bytes(), scale.mean, scale.sd, float(error), fit.message)


def alone(function: Callable[..., Run], *arguments: Any) -> Run:
    """Call a function in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def line(title: str, run: Run) -> list[str]:
    """Return a line of the table."""
    scale = f"{run.scale:.4f} +- {run.scale_sd:.4f}" if run.scale_sd else "known"
    return [
        title, f"{run.seconds:.1f} s", f"{run.peak / 2**30:.2f} GB", f"{run.before / 2**30:.2f} GB", scale,
        f"{run.beta_error:.1f} sd",
    ]  # fmt: skip


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run all of them, one after another."""
    n, groups, rows, levels = SIZES[size]
    runs = {}
    for title, function, *arguments in (
        (f"{rows:,} rows, {levels:,} levels, {DUMMIES} dummies, by formula", with_dummies, rows, levels),
        (f"{n:,} rows, {groups:,} groups, known sd", by_model, n, groups, True),
        (f"{n:,} rows, {groups:,} groups, unknown sd", by_model, n, groups, False),
        (f"{n:,} rows, {groups:,} groups, by formula", by_formula, n, groups),
    ):
        say(title)
        runs[title] = alone(function, *arguments)
    section = Section("random_effects", "Random intercepts of many groups")
    section.notes.append(
        f"Poisson rows with {FIXED} fixed effects; the groups' sd that was put in is {TAU}. Peak memory of the "
        "process, beside that before the run, with data and libraries. The last column is the largest distance of a "
        "fixed effect from the truth, in its own posterior standard deviation."
    )
    columns = ["problem", "CPU time", "peak memory", "before", "sd of groups", "fixed effects"]
    section.tables.append(Table("", columns, [line(title, run) for title, run in runs.items()]))
    dummies, unknown = (next(run for title, run in runs.items() if word in title) for word in ("dummies", "unknown"))
    away = abs(unknown.scale - TAU) / unknown.scale_sd
    section.targets = [
        Target(f"{levels:,} levels and {DUMMIES} dummies", f"seconds (under {SECONDS:.0f} s)",
               f"{dummies.seconds:.1f} s", bool(dummies.seconds < SECONDS)),
        Target(f"sd of {groups:,} groups recovered", "within 3 posterior sds",
               f"{unknown.scale:.4f} +- {unknown.scale_sd:.4f}, {TAU} put in", bool(away < 3)),
    ]  # fmt: skip
    return section
