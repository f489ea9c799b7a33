"""Compiled passes against plain NumPy loops."""

import numpy as np
import pytest
from forestmix.engines.compiled.groups import group_curvature, group_spread_squared
from scipy import sparse

from forestmix.engines.compiled import coordinate, greedy
from forestmix.engines.compiled.columns import dense_columns, sparse_columns

LAYOUTS = {
    "csc": lambda W: sparse_columns(sparse.csc_array(W)),
    "row order": lambda W: dense_columns(np.ascontiguousarray(W)),
    "column order": lambda W: dense_columns(np.asfortranarray(W)),
}


@pytest.fixture(params=LAYOUTS)
def problem(request):
    rng = np.random.default_rng(0)
    n, m, batch = 9, 6, 3
    W = rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.5)
    W[:, 4] = 0
    return {
        "W": W,
        "columns": LAYOUTS[request.param](W),
        "by_rows": LAYOUTS[request.param](W.T),
        "x": rng.standard_normal((batch, n)),
        "mean": rng.standard_normal((batch, m)),
        "kappa": rng.uniform(0.5, 2, (1, n)),
        "precision": rng.uniform(5, 9, (1, m)),
        "prior_mean": rng.standard_normal(m),
        "prior_precision": rng.uniform(0.5, 2, m),
    }


def gradient(p, k, mean):
    error = p["kappa"][0] * (p["x"][k] - p["W"] @ mean)
    return p["W"].T @ error - (mean - p["prior_mean"]) * p["prior_precision"], error


def start(p):
    error = p["kappa"] * (p["x"] - p["mean"] @ p["W"].T)
    return p["mean"].copy(), error


@pytest.mark.parametrize(
    "groups", [[[0], [1], [2], [3], [4], [5]], [[0, 3, 5], [1, 2], [4]], [[5, 0, 1, 2, 3, 4]], [[2], [0]]]
)
def test_relax_groups(problem, groups):
    p = problem
    mean, error = start(p)
    starts = np.cumsum([0] + [len(g) for g in groups])
    rest = (p["kappa"], p["precision"], (p["prior_mean"], p["prior_precision"]))
    coordinate.relax_groups(p["columns"], starts, np.concatenate(groups), mean, error, *rest)
    for k in range(3):
        mu = p["mean"][k].copy()
        for g in groups:
            slope, _ = gradient(p, k, mu)
            mu[g] += slope[g] / p["precision"][0, g]
        assert mean[k] == pytest.approx(mu, rel=1e-12)
        assert error[k] == pytest.approx(gradient(p, k, mu)[1], rel=1e-10, abs=1e-12)


def test_relax_greedy_takes_the_largest_gain(problem):
    p = problem
    mean, error = start(p)
    slopes = np.array([gradient(p, k, p["mean"][k])[0] for k in range(3)])
    visited = np.zeros((3, 6), bool)
    gain = np.linspace(0, 3, 6)[None]
    greedy.relax_greedy(
        p["columns"], p["by_rows"], 4, visited, slopes, gain,
        mean, error, p["kappa"], p["precision"], p["prior_precision"],
    )  # fmt: skip
    for k in range(3):
        mu, seen = p["mean"][k].copy(), np.zeros(6, bool)
        for _ in range(4):
            slope, _ = gradient(p, k, mu)
            best = np.argmax(0.5 * slope**2 / p["precision"][0] + np.where(seen, 0, gain[0]))
            mu[best] += slope[best] / p["precision"][0, best]
            seen[best] = True
        assert mean[k] == pytest.approx(mu, rel=1e-12)
        assert (visited[k] == seen).all()
        assert slopes[k] == pytest.approx(gradient(p, k, mu)[0], rel=1e-9, abs=1e-10)


def test_relax_blocks_with_private_errors_is_block_jacobi(problem):
    p = problem
    mean, error = start(p)
    blocks = [[0, 1, 2], [3, 4, 5]]
    rest = (p["kappa"], p["precision"], (p["prior_mean"], p["prior_precision"]))
    coordinate.relax_blocks(p["columns"], np.array([0, 3, 6]), np.arange(6), np.arange(2), True, mean, error, *rest)
    for k in range(3):
        joint = p["mean"][k].copy()
        for block in blocks:
            mu = p["mean"][k].copy()
            for j in block:
                mu[j] += gradient(p, k, mu)[0][j] / p["precision"][0, j]
            joint[block] = mu[block]
        assert mean[k] == pytest.approx(joint, rel=1e-12)


def test_relax_blocks_on_shared_errors_with_one_block_is_a_sweep(problem):
    p = problem
    rest = (p["kappa"], p["precision"], (p["prior_mean"], p["prior_precision"]))
    (mean, error), (swept, swept_error) = start(p), start(p)
    coordinate.relax_blocks(p["columns"], np.array([0, 6]), np.arange(6), np.arange(1), False, mean, error, *rest)
    coordinate.relax_groups(p["columns"], np.arange(7), np.arange(6), swept, swept_error, *rest)
    assert mean == pytest.approx(swept, rel=1e-12)


@pytest.mark.parametrize("groups", [[[0, 3, 5], [1, 2], [4]], [[0, 1, 2, 3, 4, 5]], [[j] for j in range(6)]])
def test_grouped_spread_and_curvature(problem, groups):
    p = problem
    rng = np.random.default_rng(1)
    sd, kappa = rng.uniform(0.1, 2, (3, 6)), rng.uniform(0.5, 2, (3, 9))
    starts, members = np.cumsum([0] + [len(g) for g in groups]), np.concatenate(groups)
    total, curvature = np.zeros((3, 9)), np.empty((3, 6))
    group_spread_squared(p["columns"], starts, members, sd, total)
    group_curvature(p["columns"], starts, members, sd, kappa, curvature)
    A = np.abs(p["W"])
    for k in range(3):
        spreads = [A[:, g] @ sd[k, g] for g in groups]
        assert total[k] == pytest.approx(sum(s**2 for s in spreads), rel=1e-12)
        for g, s in zip(groups, spreads, strict=True):
            assert curvature[k, g] == pytest.approx(A[:, g].T @ (s * kappa[k]) / sd[k, g], rel=1e-12)
