"""Logistic regression beside dask-ml and dask-glm, on the same data in chunks: seconds to the same accuracy.

Each method runs in a process of its own, which has so many seconds for all: ADMM may take longer than anybody waits.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

from benchmarks.harness.results import Section, Table
from benchmarks.harness.rounds import short
from benchmarks.streaming import Say

COLUMNS = 50
#: How far coefficients may be from where a method goes to, in posterior standard deviations.
NEAR = 0.01
#: Seconds that a method has, with its imports, its compilation and all tolerances.
BUDGET = 40
METHODS = ("forestmix, posterior", "dask-ml, lbfgs", "dask-ml, admm", "dask-glm, lbfgs", "dask-glm, admm")
TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8)


def beside(section: Section, rows: int, say: Say) -> None:
    """Add logistic regression beside dask-ml and dask-glm."""
    if not all(map(importlib.util.find_spec, ("dask_ml", "dask_glm"))):
        section.notes.append("dask-ml and dask-glm are not installed here: pip install 'forestmix[bench]'.")
        return
    title = f"Logistic regression, {rows} x {COLUMNS} in 4 chunks on local threads, to {NEAR} posterior sds"
    table = Table(title, ["method", "seconds", "tolerance", "distance in sds", "gives"])
    for name in METHODS:
        say(f"beside: {name}")
        gives = "means, sds, intervals, draws" if "forestmix" in name else "the mode"
        table.rows.append([name, *cells(*tries(name, rows)), gives])
    section.tables.append(table)


def tries(name: str, rows: int) -> tuple[list[list[float]], bool]:
    """Return tolerance, seconds and distance of each try of a method until one is near enough, and if time was over."""
    command = [sys.executable, "-m", "benchmarks.beside_dask", name, str(rows)]
    try:
        printed, late = subprocess.run(command, capture_output=True, timeout=BUDGET, check=True).stdout, False
    except subprocess.TimeoutExpired as over:
        printed, late = over.stdout or b"", True
    return [json.loads(line) for line in printed.decode().splitlines()], late


def cells(found: list[list[float]], late: bool) -> list[str]:
    """Return seconds, tolerance and distance as text, those of the last try."""
    if not found:
        return [f"no result after {BUDGET} s", "", ""]
    tol, spent, distance = found[-1]
    missed = f"not there after {BUDGET} s" if late else f"not there: 100 iterations in {short(spent)}"
    return [short(spent) if distance <= NEAR else missed, f"{tol:g}", short(distance)]


def run(name: str, rows: int) -> None:
    """Print the tries of one method."""
    import dask.array

    rng = np.random.default_rng(11)
    X = rng.standard_normal((rows, COLUMNS))
    y = (rng.random(rows) < 1 / (1 + np.exp(-X @ (0.3 * rng.standard_normal(COLUMNS))))).astype(float)
    parts, answers = (dask.array.from_array(one, chunks=(-(-rows // 4), *one.shape[1:])) for one in (X, y))
    mode, sd = newton_mode(X, y)
    fit = fitter(name, parts.persist(), answers.persist(), y)
    goal = fit(1e-10) if "forestmix" in name else mode
    fit(1e-1)  # loaded and compiled
    for tol in TOLERANCES:
        began = time.perf_counter()
        found = fit(tol)
        distance = float(np.max(np.abs(np.ravel(found) - goal) / sd))
        print(json.dumps([tol, time.perf_counter() - began, distance]), flush=True)
        if distance <= NEAR:
            break


def fitter(name: str, parts: object, answers: object, y: np.ndarray) -> Callable[[float], np.ndarray]:
    """Return what fits the coefficients to a tolerance."""
    library, method = name.split(", ")
    if library == "forestmix":
        import forestmix as fmx

        model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), parts))
        return lambda tol: np.asarray(fmx.infer(model, y, tol=tol).posterior().mean)
    if library == "dask-ml":
        from dask_ml.linear_model import LogisticRegression

        options = {"solver": method, "fit_intercept": False, "C": 1.0, "max_iter": 100}
        return lambda tol: np.asarray(LogisticRegression(**options, tol=tol).fit(parts, answers).coef_)
    import dask_glm.algorithms

    solve, word = getattr(dask_glm.algorithms, method), "tol" if method == "lbfgs" else "abstol"
    return lambda tol: solve(parts, answers, regularizer="l2", lamduh=1.0, max_iter=100, **{word: tol})


def newton_mode(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode under a N(0, 1) prior of each coefficient, which a penalty of 1 stands for, and Laplace's sds."""
    beta = np.zeros(X.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-X @ beta))
        information = np.eye(len(beta)) + (X.T * (p * (1 - p))) @ X
        step = np.linalg.solve(information, X.T @ (y - p) - beta)
        beta = beta + step
        if np.max(np.abs(step)) < 1e-12:
            break
    return beta, np.sqrt(np.diag(np.linalg.inv(information)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(sys.argv[1], int(sys.argv[2]))
