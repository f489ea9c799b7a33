"""Leaving a row out by formula, ``posterior().loo()``, against fitting again without it.

On real data, 100 rows of each set are left out one by one. The refit's predictive density of the row is an integral by
Gauss-Hermite quadrature over the natural parameter; for Gaussian rows with unknown scales it is the difference of two
log evidences.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy

import forestmix as fmx
from benchmarks.harness.results import Section, Table, Target
from benchmarks.problems import bayesian
from benchmarks.problems.bayesian import Regression

SETS = (
    bayesian.breast_cancer, bayesian.affairs, bayesian.doctor_visits, bayesian.school_tests, bayesian.diabetes,
    bayesian.investment,
)  # fmt: skip
REFITS = {"small": 5, "default": 100, "large": 300}
#: Relative error of the sum, rows of the large problem, and seconds that it may take.
CLOSE, MANY_ROWS, SECONDS = 0.01, 100_000, 10.0


def log_likelihood(problem: Regression, row: int, eta: np.ndarray) -> np.ndarray:
    """Return ``log p(x_i | eta)`` by SciPy's distributions."""
    x = problem.x[row]
    if problem.family == "poisson":
        return scipy.stats.poisson.logpmf(x, np.exp(eta))
    trials = 1 if problem.trials is None else problem.trials[row]
    return scipy.stats.binom.logpmf(x, trials, scipy.special.expit(eta))


def refitted(problem: Regression, model: fmx.DEF, row: int, log_evidence: float | None) -> float:
    """Return the log predictive density of a row by a fit without it."""
    x = problem.x.copy()
    x[row] = np.nan
    posterior = fmx.infer(model, x).posterior()
    if problem.family == "gaussian":
        return log_evidence - posterior.log_evidence
    w = problem.X[row]
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    eta = w @ posterior.mean + nodes * np.sqrt(posterior.variance(w))
    terms = log_likelihood(problem, row, eta) + np.log(weights / np.sqrt(2 * np.pi))
    return float(scipy.special.logsumexp(terms))


def compare(problem: Regression, count: int) -> list[str | float]:
    """Return a line of the table, and the relative error of the sum over the rows that were left out."""
    model = problem.model()
    posterior = fmx.infer(model, problem.x).posterior()
    began = time.process_time()
    loo = posterior.loo()
    seconds = time.process_time() - began
    rows = np.unique(np.linspace(0, len(problem.x) - 1, count).astype(int))
    began = time.process_time()
    evidence = posterior.log_evidence if problem.family == "gaussian" else None
    exact = np.array([refitted(problem, model, row, evidence) for row in rows])
    each = (time.process_time() - began) / len(rows)
    found = loo.pointwise[rows]
    error = abs(found.sum() / exact.sum() - 1)
    return [
        problem.title, problem.size, f"{len(rows)}", f"{exact.sum():.2f}", f"{found.sum():.2f}", f"{error:.2%}",
        f"{np.max(np.abs(found - exact)):.3f}", f"{len(loo.untrusted)}",
        f"{each * len(problem.x) / seconds:,.0f}", error,
    ]  # fmt: skip


def many_rows(rows: int) -> float:
    """Return the seconds of leave-one-out for a logistic regression with 20 columns."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((rows, 20))
    x = (rng.random(rows) < scipy.special.expit(X @ rng.standard_normal(20) / 4)).astype(float)
    posterior = fmx.infer(fmx.DEF(fmx.Layer(fmx.Bernoulli(), X)), x).posterior()
    began = time.process_time()
    posterior.loo()
    return time.process_time() - began


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run all sets."""
    lines = []
    for load in SETS:
        problem = load()
        say(problem.title)
        lines.append(compare(problem, REFITS[size]))
    say("many rows")
    seconds = many_rows(MANY_ROWS)
    columns = ["data", "rows x latents", "refits", "elpd by refits", "by formula", "error", "worst row, nats",
               "rows in doubt", "all refits, times as long"]  # fmt: skip
    section = Section("leave_one_out", "Leaving a row out, by formula and by fitting again")
    section.notes.append(
        "The sum over the rows that were left out, evenly spaced in the file. Rows in doubt are those that "
        "`loo().untrusted` names among all rows; they are counted in the sums. Times are CPU seconds."
    )
    section.tables.append(Table("", columns, [line[:-1] for line in lines]))
    worst = max(line[-1] for line in lines)
    section.targets = [
        Target(f"leave-one-out, sum on {len(SETS)} data sets", f"within {CLOSE:.0%}", f"{worst:.2%} at worst",
               bool(worst <= CLOSE)),
        Target(f"leave-one-out, {MANY_ROWS:,} rows", f"under {SECONDS:.0f} s", f"{seconds:.1f} CPU s",
               seconds < SECONDS),
    ]  # fmt: skip
    return section
