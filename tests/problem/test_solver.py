"""The best auxiliary parameters of rows, against a generic convex solver, for every supported pair of families."""

import numpy as np
import pytest
from scipy import optimize, stats

import forestmix as fmx
from forestmix.problem.interfaces.count_parents import Entries
from forestmix.problem.interfaces.solver import BRIEF, RowSolver

ROWS = {"bernoulli": fmx.Bernoulli(), "binomial": fmx.Binomial(5), "poisson": fmx.Poisson()}


def random_row(rng, parents):
    """Weights, a bias and the probabilities of each parent's values, some parents all but certain."""
    k = int(rng.integers(1, 6))
    w = rng.uniform(0.3, 2.0) * rng.standard_normal(k)
    if parents == "bernoulli":
        p = rng.uniform(0.02, 0.98, k)
        p[rng.random(k) < 0.2] = 1e-6
        return w, rng.standard_normal(), np.stack([1 - p, p], axis=1)
    table = stats.poisson.pmf(np.arange(25), rng.uniform(0.1, 1.5, (k, 1)))
    return 0.25 * w, rng.standard_normal(), table / table.sum(axis=1, keepdims=True)


def generic_optimum(family, w, b, P):
    """The least sum that SciPy finds, by two methods and from two starts."""
    k, y = len(w), np.arange(P.shape[1])

    def value(z):
        h = (z[k:, None] + w[:, None] * y) / z[:k, None]
        return float(np.sum(z[:k] * np.sum(P * family.log_partition(h), axis=1)))

    def slope(z):
        h = (z[k:, None] + w[:, None] * y) / z[:k, None]
        a, a1 = family.log_partition(h), family.log_partition_slope(h)
        return np.concatenate([np.sum(P * (a - h * a1), axis=1), np.sum(P * a1, axis=1)])

    sums = np.kron(np.eye(2), np.ones(k))
    constraint = {"type": "eq", "fun": lambda z: sums @ z - [1, b], "jac": lambda z: sums}
    mean, best = P @ y, np.inf
    for size in (np.abs(w), np.abs(w) * np.sqrt(P @ y**2 - mean**2) + 1e-3):
        epsilon = size / size.sum()
        start = np.concatenate([epsilon, epsilon * (b + w @ mean) - w * mean])
        found = optimize.minimize(
            value, start, jac=slope, method="SLSQP", bounds=[(1e-9, 1)] * k + [(None, None)] * k,
            constraints=[constraint], options={"maxiter": 2000, "ftol": 1e-15},
        )  # fmt: skip
        if np.abs(sums @ found.x - [1, b]).max() < 1e-9:
            best = min(best, found.fun)
    return best


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("parents", ["bernoulli", "poisson"])
def test_matches_a_generic_convex_solver(rows, parents):
    rng = np.random.default_rng(len(rows) * 10 + len(parents))
    compared = 0
    for _ in range(25):
        w, b, P = random_row(rng, parents)
        layer = fmx.Layer(ROWS[rows], w[None], b)
        solver = RowSolver(Entries(layer), layer.family, P[None])
        mean = P @ np.arange(P.shape[1])
        epsilon = np.abs(w) / np.abs(w).sum()
        c = epsilon * (b + w @ mean) - w * mean
        epsilon, c = solver.solve(epsilon[None], c[None])
        assert epsilon.sum() == pytest.approx(1, abs=1e-12)
        assert c.sum() == pytest.approx(b, abs=1e-12)
        assert (epsilon > 0).all()
        value = solver.terms(epsilon, c).sum()
        with np.errstate(all="ignore"):
            best = generic_optimum(ROWS[rows], w, b, P)
        if np.isfinite(best):
            compared += 1
            assert value <= best + 1e-7 * max(1, abs(best))
    assert compared >= 20


@pytest.mark.parametrize("rows", ROWS)
def test_at_the_optimum_expected_slopes_are_equal(rows):
    """Design 1.6: E a'(h_ij) is the same for every parent of a row."""
    rng = np.random.default_rng(5)
    w, b, P = np.array([0.8, -1.1, 0.5]), 0.3, np.stack([[0.4, 0.6], [0.7, 0.3], [0.5, 0.5]])
    layer = fmx.Layer(ROWS[rows], w[None], b)
    solver = RowSolver(Entries(layer), layer.family, P[None])
    epsilon = rng.dirichlet(np.ones(3))[None]
    c = epsilon * b
    epsilon, c = solver.solve(epsilon, c)
    at = solver.derivatives(epsilon, c)
    assert np.ptp(at.slope_p / epsilon) < 1e-6


def test_no_row_gets_worse_from_any_start_and_rows_do_not_disturb_each_other():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((12, 5)) * (rng.random((12, 5)) < 0.7)
    W[3] = 0
    layer = fmx.Layer(fmx.Poisson(), W, rng.standard_normal(12))
    entries = Entries(layer)
    p = rng.uniform(0.01, 0.99, (2, len(entries.row)))
    solver = RowSolver(entries, layer.family, np.stack([1 - p, p], axis=-1))
    epsilon = rng.uniform(0.1, 1, p.shape)
    epsilon /= entries.sum_rows(epsilon)[:, entries.row]
    c = epsilon * layer.bias[entries.row]
    before = entries.sum_rows(solver.terms(epsilon, c))
    for barriers in (BRIEF, (1e-2,), (1e-9,)):
        after = entries.sum_rows(solver.terms(*solver.solve(epsilon, c, barriers)))
        assert (after <= before).all()


def test_the_closed_form_of_gaussian_parents_is_not_used_here():
    """For Bernoulli latents epsilon proportional to |w| Std is not optimal; the solver is better by a margin."""
    w, P = np.array([2.0, 1.0]), np.array([[0.95, 0.05], [0.5, 0.5]])
    layer = fmx.Layer(fmx.Bernoulli(), w[None], -1.0)
    solver = RowSolver(Entries(layer), layer.family, P[None])
    sd = np.sqrt(P[:, 0] * P[:, 1])
    epsilon = np.abs(w) * sd / np.sum(np.abs(w) * sd)
    c = epsilon * (-1.0 + w @ P[:, 1]) - w * P[:, 1]
    theorem = solver.terms(epsilon[None], c[None]).sum()
    assert solver.terms(*solver.solve(epsilon[None], c[None])).sum() < theorem - 1e-3
