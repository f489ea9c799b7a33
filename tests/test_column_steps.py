"""Steps that read W by columns, dense or sparse, once: their formulas, row-major runs, and how often W is read."""

import numpy as np
import pytest
import scipy

import forestmix as fmx
from forestmix import column_passes
from forestmix.inference import accelerate, plain_sites
from forestmix.weights import as_weights
from site_cases import TOLERANCE, families

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


def counted(monkeypatch, module, name):
    """Count calls of a function that a module has imported."""
    calls, real = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given, **options: (calls.append(1), real(*given, **options))[1])
    return calls


@pytest.mark.parametrize("objective", ["elbo", "fm"])
@pytest.mark.parametrize("family", [fmx.Gaussian(0.5), fmx.Bernoulli()], ids=str)
def test_a_plain_iteration_reads_w_once(family, objective, layout, monkeypatch):
    rng = np.random.default_rng(2)
    W = BY_COLUMNS[layout](rng.standard_normal((50, 20)) / 5)
    steps, projections = (counted(monkeypatch, plain_sites, name) for name in ("column_step", "project"))
    model, x = fmx.DEF(fmx.Layer(family, W)), rng.integers(0, 2, 50)
    result = fmx.infer(model, x, objective=objective, accelerate=False, max_iter=15, tol=1e-12)
    assert result.n_iter == 15
    assert (len(steps), len(projections)) == (16, 1), "one projection for the start, and one step for each point"


def test_a_conjugate_gradient_iteration_reads_w_once(layout, monkeypatch):
    rng = np.random.default_rng(3)
    W = BY_COLUMNS[layout](rng.standard_normal((90, 300)))
    steps, images = (counted(monkeypatch, accelerate, name) for name in ("conjugate_step", "column_image"))
    others = counted(monkeypatch, accelerate, "normal_parts")
    result = fmx.infer(
        fmx.DEF(fmx.Layer(fmx.Gaussian(0.1), W)), rng.standard_normal(90), accelerate="cg", max_iter=120, tol=1e-15
    )  # fmt: skip
    assert (len(steps), len(others)) == (result.n_iter, 0)
    assert len(images) == 1 + result.n_iter // accelerate.REFRESH, "at the start and after each refresh"


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


def test_which_weights_are_read_by_columns():
    W = np.ones((4, 3))
    given = {"rows": W, "column": W[:, :1].copy(), "sparse": scipy.sparse.csr_array(W)}
    given |= {name: convert(W) for name, convert in BY_COLUMNS.items()}
    read = {name: column_passes.reads_columns(as_weights(array)) for name, array in given.items()}
    assert read == {"rows": False, "column": False, "sparse": False} | dict.fromkeys(BY_COLUMNS, True)


@pytest.mark.parametrize(("accelerate", "objective"), [(False, "fm"), (False, "elbo"), (True, "elbo")])
def test_tall_weights_are_read_in_blocks_of_rows(monkeypatch, accelerate, objective):
    """Where a tile of columns is more than the cache keeps, a run gives what it gives over columns."""
    rng = np.random.default_rng(3)
    W = np.asfortranarray(rng.standard_normal((700, 5)) / 20)
    for family in (fmx.Gaussian(0.5), fmx.Bernoulli()):
        model = fmx.DEF(fmx.Layer(family, W))
        x, options = model.sample(rng).x, {"accelerate": accelerate, "objective": objective, "tol": 1e-9}
        assert column_passes.reads_columns(model.layers[0].weights)
        over_columns = fmx.infer(model, x, **options)
        with monkeypatch.context() as patch:
            patch.setattr(column_passes, "KEPT", 0)
            assert not column_passes.reads_columns(model.layers[0].weights)
            in_blocks = fmx.infer(model, x, **options)
        np.testing.assert_allclose(in_blocks.mean, over_columns.mean, atol=1e-8)
        np.testing.assert_allclose(in_blocks.objective, over_columns.objective, rtol=1e-12)
