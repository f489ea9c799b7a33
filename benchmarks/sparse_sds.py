"""All standard deviations of a sparse logistic regression with more latents than a factor can hold.

50,000 rows, 100,000 latents, 50 entries in a row. ``posterior().sd`` estimates all of them from draws; 200 are checked
by conjugate gradients on ``A y = e_j`` to a relative residual of 1e-10, with curvatures that Gauss-Hermite quadrature
gives.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

import forestmix as fmx
from benchmarks.harness.results import Section, Table, Target
from benchmarks.problems.regression import many_features

SIZES = {"small": (500, 1000, 20), "default": (50_000, 100_000, 50), "large": (50_000, 100_000, 50)}
CHECKED, BATCH, RESIDUAL, SEED = 200, 20, 1e-10, 3
#: Targets: median and largest relative error of an sd, and the time as a multiple of that of ``infer``.
MEDIAN, WORST, TIMES = 0.01, 0.05, 30.0


def curvatures(W: Any, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return ``E sigmoid'(eta_i)`` under ``eta_i ~ N((W mean)_i, (W^2 sd^2)_i)`` by 40 nodes."""
    eta, spread = W @ mean, np.sqrt(W.power(2) @ sd**2)
    total = np.zeros_like(eta)
    for node, weight in zip(*np.polynomial.hermite_e.hermegauss(40), strict=True):
        p = scipy.special.expit(eta + node * spread)
        total += weight / np.sqrt(2 * np.pi) * p * (1 - p)
    return total


def exact_variances(W: Any, kappa: np.ndarray, precision: float, places: np.ndarray) -> np.ndarray:
    """Return ``(A^-1)_jj`` for each place j, by conjugate gradients with the diagonal as preconditioner."""
    WT = W.T.tocsr()
    diagonal = (precision + W.power(2).T @ kappa)[:, None]
    right = np.zeros((W.shape[1], len(places)))
    right[places, np.arange(len(places))] = 1.0
    y, residual = np.zeros_like(right), right.copy()
    direction = residual / diagonal
    rho = np.sum(residual * direction, axis=0)
    while np.max(np.linalg.norm(residual, axis=0)) > RESIDUAL:
        product = precision * direction + WT @ (kappa[:, None] * (W @ direction))
        step = rho / np.maximum(np.sum(direction * product, axis=0), 1e-300)
        y += step * direction
        residual -= step * product
        scaled = residual / diagonal
        last, rho = rho, np.sum(residual * scaled, axis=0)
        direction = scaled + rho / np.maximum(last, 1e-300) * direction
    return y[places, np.arange(len(places))]


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run ``infer`` and ``posterior().sd``, and check the latter."""
    n, m, each = SIZES[size]
    problem = many_features(n, m, each)
    W, x = problem.matrix, problem.x
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), W), prior=fmx.Prior(fmx.Gaussian(sd=1.0)))
    fmx.infer(model, x, max_iter=1)  # compile
    say("infer")
    began = time.process_time()
    result = fmx.infer(model, x)
    infer_seconds = time.process_time() - began
    say("standard deviations")
    posterior = result.posterior()
    sd = np.asarray(posterior.sd)
    seconds = time.process_time() - began - infer_seconds
    say(f"{CHECKED} exact solves")
    places = np.random.default_rng(SEED).choice(m, min(CHECKED, m), replace=False)
    kappa = curvatures(W, np.asarray(result.mean, float), np.asarray(result.sd, float))
    parts = [exact_variances(W, kappa, 1.0, places[k : k + BATCH]) for k in range(0, len(places), BATCH)]
    exact = np.sqrt(np.concatenate(parts))
    error, factorised = np.abs(sd[places] / exact - 1), np.abs(np.asarray(result.sd)[places] / exact - 1)
    section = Section("sparse_sds", f"Every sd of a sparse logistic regression, {n:,} x {m:,}")
    section.notes.append(
        f"{len(places)} of {m:,} standard deviations are checked by exact solves, conjugate gradients to a residual of "
        f"{RESIDUAL:g}. `infer` took {infer_seconds:.1f} CPU s ({result.status.name.lower()}), the standard "
        f"deviations {seconds:.1f} CPU s more."
    )
    rows = [
        [name, f"{np.median(one):.2%}", f"{one.max():.2%}"]
        for name, one in (("corrected", error), ("factorised q", factorised))
    ]
    section.tables.append(Table("", ["sd", "median error", "worst"], rows))
    ratio, middle = seconds / infer_seconds, float(np.median(error))
    section.targets = [
        Target("sparse sds, median error", f"under {MEDIAN:.0%}", f"{middle:.2%}", middle < MEDIAN),
        Target("sparse sds, worst error", f"under {WORST:.0%}", f"{error.max():.2%}", bool(error.max() < WORST)),
        Target("sparse sds, time", f"under {TIMES:.0f} infer", f"{ratio:.1f} infer", bool(ratio < TIMES)),
    ]  # fmt: skip
    return section
