"""Runs over a W that lies by columns, dense or sparse: the same as over one by rows, and exact means."""

import numpy as np
import pytest
import scipy

import forestmix as fmx
from support.site_cases import TOLERANCE, families

BY_COLUMNS = {"column-major": np.asfortranarray, "sparse by columns": scipy.sparse.csc_array}
PRIOR = fmx.Prior(fmx.Gaussian(0.7), bias=0.2)


@pytest.fixture(params=BY_COLUMNS)
def layout(request):
    return request.param


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_plain_runs_are_those_of_a_row_major_matrix(objective, dtype, layout, threads):
    rng = np.random.default_rng(0)
    W = (rng.standard_normal((61, 23)) / 4).astype(dtype)
    for family in families(61, rng):
        x = fmx.DEF(fmx.Layer(family, W)).sample(rng).x
        rows, columns = (
            fmx.infer(fmx.DEF(fmx.Layer(family, given)), x, objective=objective, accelerate=False, max_iter=80)
            for given in (W, BY_COLUMNS[layout](W))
        )
        assert abs(rows.n_iter - columns.n_iter) <= (0 if dtype == np.float64 else 5)
        for name in ("mean", "sd", "objective"):
            np.testing.assert_allclose(
                getattr(columns, name), getattr(rows, name), rtol=20 * TOLERANCE[dtype], atol=1e-3
            )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_conjugate_gradients_find_the_exact_mean(objective, dtype, layout, threads):
    rng = np.random.default_rng(1)
    for n, m in [(203, 101), (40, 90), (3, 2), (5, 1)]:
        W, noise = rng.standard_normal((n, m)), 0.5 + rng.random(n)
        x = rng.standard_normal(n)
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(noise), BY_COLUMNS[layout](W.astype(dtype))), prior=PRIOR)
        result = fmx.infer(model, x, objective=objective, accelerate="cg", tol=1e-10)
        A = np.eye(m) / 0.7**2 + W.T @ (W / noise[:, None] ** 2)
        exact = np.linalg.solve(A, W.T @ (x / noise**2) + 0.2 / 0.7**2)
        np.testing.assert_allclose(result.mean, exact, atol=1e-7 if dtype == np.float64 else 2e-3)


@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_a_refused_step_is_taken_back(objective, layout):
    """Poisson rows far from their counts: whole steps overflow, and the run has to go back to its rows."""
    rng = np.random.default_rng(4)
    W = 3 * rng.standard_normal((40, 8))
    x = rng.poisson(50.0, 40)
    rows, columns = (
        fmx.infer(fmx.DEF(fmx.Layer(fmx.Poisson(), given)), x, objective=objective, accelerate=False, max_iter=30)
        for given in (W, BY_COLUMNS[layout](W))
    )
    assert rows.trace.step[-1] > 30, "no step was refused"
    assert np.all(np.diff(columns.trace.objective) >= -1e-9 * np.abs(columns.trace.objective[1:]))
    np.testing.assert_allclose(columns.objective, rows.objective, rtol=1e-9)


def test_batches_go_their_own_way_until_one_is_left(layout):
    rng = np.random.default_rng(5)
    W = BY_COLUMNS[layout](rng.standard_normal((40, 12)) / 3)
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), W))
    x = rng.integers(0, 2, (3, 40))
    batch = fmx.infer(model, x, accelerate=False, tol=1e-5)
    for k in range(3):
        np.testing.assert_allclose(batch.mean[k], fmx.infer(model, x[k], accelerate=False, tol=1e-5).mean, atol=1e-8)


@pytest.mark.parametrize(("accelerate", "objective"), [(False, "fm"), (False, "elbo"), (True, "elbo")])
def test_tall_weights_by_columns_give_what_they_give_by_rows(accelerate, objective):
    rng = np.random.default_rng(3)
    W = rng.standard_normal((70_000, 5)) / 20
    for family in (fmx.Gaussian(0.5), fmx.Bernoulli()):
        options = {"accelerate": accelerate, "objective": objective, "tol": 1e-9, "max_iter": 40}
        x = fmx.DEF(fmx.Layer(family, W)).sample(rng).x
        rows, columns = (
            fmx.infer(fmx.DEF(fmx.Layer(family, given)), x, **options) for given in (W, np.asfortranarray(W))
        )
        np.testing.assert_allclose(columns.mean, rows.mean, atol=1e-8)
        np.testing.assert_allclose(columns.objective, rows.objective, rtol=1e-12)
