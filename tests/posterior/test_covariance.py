"""Covariances by a factor: against dense inverses, a QR factorisation in full, and a tilted prior."""

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import linalg, sparse, special

import forestmix as fmx
from forestmix.posterior import covariance as covariance_file
from forestmix.posterior.covariance import CovarianceBatch, DiagonalCovariance, FactoredCovariance
from forestmix.weights import as_weights
from support import known_models, oracles, strategies
from support.posterior_models import CURVATURES, ROWS, count_model, dense_covariance


def factored(seed=0, n=9, m=5):
    rng = np.random.default_rng(seed)
    W, kappa, scale = rng.standard_normal((n, m)), rng.uniform(0.1, 3, n), rng.uniform(0.5, 2, m)
    return FactoredCovariance(as_weights(W), kappa, scale), np.linalg.inv(np.diag(scale**-2) + W.T * kappa @ W)


def check_interface(covariance, exact, rng, rel=1e-10):
    """Every method against the dense matrix, draws by a large sample."""
    m = len(exact)
    C = rng.standard_normal((3, m))
    weights = as_weights(C)
    assert covariance.variance() == pytest.approx(np.diag(exact), rel=rel)
    assert covariance.quadratic(weights) == pytest.approx(np.diag(C @ exact @ C.T), rel=rel)
    assert covariance.covariance(weights) == pytest.approx(C @ exact @ C.T, rel=rel, abs=rel)
    assert covariance.solve(C) == pytest.approx(C @ exact, rel=rel, abs=rel)
    assert covariance.log_determinant() == pytest.approx(np.linalg.slogdet(exact)[1], rel=rel, abs=rel)
    check_draws(covariance.sample(200_000, rng), exact)


def check_draws(draws, exact):
    """The sample covariance within five standard errors, which are those of a Wishart distribution."""
    count = len(draws)
    found = draws.T @ draws / count
    error = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / count)
    assert (np.abs(found - exact) < 5 * error).all()
    assert (np.abs(draws.mean(axis=0)) < 5 * np.sqrt(np.diag(exact) / count)).all()


def test_a_factor_gives_all():
    covariance, exact = factored()
    check_interface(covariance, exact, np.random.default_rng(1))
    assert covariance.sd_error() is None


def test_a_factor_that_never_forms_the_matrix_gives_all(monkeypatch):
    monkeypatch.setattr(covariance_file, "CHOLESKY_ERROR", 0.0)
    covariance, exact = factored(2)
    check_interface(covariance, exact, np.random.default_rng(1))
    assert isinstance(covariance.root.order, np.ndarray), "it has pivots"


def test_independent_latents():
    variance = np.array([0.5, 2.0, 0.1])
    check_interface(DiagonalCovariance(variance), np.diag(variance), np.random.default_rng(2))


def test_a_batch_shares_what_is_the_same():
    (first, exact), (second, other) = factored(3), factored(4)
    batch = CovarianceBatch([first, second], [1, 0, 1])
    assert batch.variance() == pytest.approx(np.stack([np.diag(one) for one in (other, exact, other)]))
    right = np.random.default_rng(0).standard_normal((3, 5))
    solved = np.stack([right[0] @ other, right[1] @ exact, right[2] @ other])
    assert batch.solve(right) == pytest.approx(solved)
    draws = batch.sample(100_000, np.random.default_rng(1))
    for k, one in enumerate((other, exact, other)):
        check_draws(draws[:, k], one)
    assert np.abs(np.mean(draws[:, 0, 0] * draws[:, 2, 0])) < 5 * other[0, 0] / np.sqrt(100_000), "drawn separately"
    assert batch.take(np.array([1])).variance()[0] == pytest.approx(np.diag(exact))


def test_a_factor_that_is_not_kept_is_made_again():
    covariance, exact = factored(5)
    lean = FactoredCovariance(covariance.weights, covariance.kappa, covariance.scale, keep=False)
    assert lean.root is not lean.root
    assert lean.variance() == pytest.approx(np.diag(exact))


@settings(max_examples=60, deadline=None)
@given(strategies.gaussian_cases(log_scale=2.0))
def test_generated_models_equal_a_qr_factorisation_in_full(case):
    """Duplicate columns and scales over eight orders."""
    stacked = np.vstack([case.W / case.sd[:, None], np.diag(1 / case.prior_sd)])
    scale = np.linalg.norm(stacked, axis=0)
    factor = linalg.qr(stacked / scale, mode="r")[0][: len(scale)]
    exact = np.sum(linalg.solve_triangular(factor, np.diag(1 / scale), trans="T") ** 2, axis=0)
    covariance = FactoredCovariance(as_weights(case.W), case.sd**-2.0, case.prior_sd)
    assert covariance.variance() == pytest.approx(exact, rel=1e-6)


def test_nearly_parallel_columns_keep_their_digits():
    """Cholesky's pivots have lost everything here; the QR factor has not."""
    column = np.arange(1.0, 9.0)[:, None]
    W = as_weights(np.hstack([column, column, np.ones((8, 1))]))
    covariance = FactoredCovariance(W, np.full(8, 1e14), np.ones(3))
    # The difference of the twins has only its prior, N(0, 2), and their sum is known: a quarter of 2 each.
    assert covariance.variance()[:2] == pytest.approx([0.5, 0.5], rel=1e-7)


def test_rounding_that_leaves_too_little_is_said():
    W = as_weights(np.hstack([np.ones((4, 1)), np.ones((4, 1)) + 1e-9 * np.arange(4)[:, None]]))
    with pytest.raises(fmx.ForestmixError, match=r"Rounding leaves a relative error of about .* Raise tol"):
        FactoredCovariance(W, np.full(4, 1e24), np.full(2, 1e9), tol=1e-9).variance()


@pytest.mark.parametrize("name", ROWS)
def test_other_rows_equal_the_dense_formula(name):
    rng = np.random.default_rng(2)
    model = count_model(ROWS[name], rng)
    result = fmx.infer(model, model.sample(rng).x)
    exact = dense_covariance(model, CURVATURES[name], result.mean, result.sd)
    posterior = result.posterior()
    assert posterior.covariance() == pytest.approx(exact, rel=1e-8, abs=1e-10)
    sd = np.sqrt(np.diag(exact))
    assert posterior.correlation == pytest.approx(exact / np.outer(sd, sd), rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_batches_with_missing_entries(name, kind):
    rng = np.random.default_rng(3)
    model = count_model(ROWS[name], rng)
    layer = fmx.Layer(ROWS[name], kind(model.layers[0].weights.toarray()), model.layers[0].bias)
    model = fmx.DEF(layer, prior=model.prior)
    x = model.sample(rng, 3).x
    x[0, 2:5] = np.nan
    x[2] = np.nan
    result = fmx.infer(model, x)
    exact = [
        np.diag(dense_covariance(model, CURVATURES[name], *q))
        for q in zip(result.mean, result.sd, ~np.isnan(x), strict=True)
    ]
    posterior = result.posterior()
    assert posterior.sd == pytest.approx(np.sqrt(exact), rel=1e-9)
    assert posterior.sd[2] == pytest.approx(model.prior.family.sd), "nothing seen, so the prior"
    assert posterior.mean[2] == pytest.approx(model.prior.bias, abs=1e-9)
    assert posterior.take(0).sd == pytest.approx(posterior.sd[0])


@pytest.mark.parametrize("weights", ["dense", "sparse", "convolution"])
def test_float32_is_computed_in_float64(weights):
    rng = np.random.default_rng(8)
    convolution = fmx.Convolution(rng.standard_normal((2, 1, 3, 3)).astype(np.float32), (4, 5))
    array = convolution.toarray()
    W = {"dense": array, "sparse": sparse.csr_array(array), "convolution": convolution}[weights]
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.01), W))
    posterior = fmx.infer(model, np.zeros(20, np.float32)).posterior()
    covariance = oracles.posterior(array.astype(float), 0.0, float(np.float32(0.01)), 0.0, 1.0, np.zeros(20))[1]
    assert posterior.sd.dtype == posterior.mean.dtype == np.float32
    assert posterior.sd == pytest.approx(np.sqrt(np.diag(covariance)), rel=3e-7), "condition 1e5"


@pytest.mark.parametrize("name", ["gaussian", *ROWS])
def test_it_is_the_response_of_the_mean_to_a_tilt(name):
    """Add t c to the prior's natural parameter, infer again: d(c . mean) / dt is the variance of c . y.

    Exact for Gaussian rows. For others q's variances respond too, which the formula leaves out: a small difference.
    """
    rng = np.random.default_rng(9)
    model = count_model(ROWS.get(name, fmx.Gaussian(0.7)), rng)
    x, c, t = model.sample(rng).x, rng.standard_normal(model.n_latent), 1e-3
    prior = model.prior

    def projected(step):
        tilted = fmx.Prior(prior.family, prior.bias + step * prior.family.sd**2 * c)
        return c @ fmx.infer(fmx.DEF(model.layers[0], prior=tilted), x, tol=1e-13).mean

    response = (projected(t) - projected(-t)) / (2 * t)
    variance = fmx.infer(model, x, tol=1e-12).posterior().variance(c)
    assert variance == pytest.approx(response, rel=1e-8 if name == "gaussian" else 0.1)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.coo_array, sparse.csc_matrix, as_weights])
def test_functionals(kind):
    rng = np.random.default_rng(6)
    model, x, _, covariance, _ = known_models.model_of(rng.standard_normal((9, 5)), rng)
    c = rng.standard_normal((3, 5)) * (rng.random((3, 5)) < 0.7)
    c[1] = 0
    exact = c @ covariance @ c.T
    single, batch = fmx.infer(model, x).posterior(), fmx.infer(model, np.stack([x, x + 1])).posterior()
    assert single.variance(kind(c)) == pytest.approx(np.diag(exact), rel=1e-9)
    assert single.covariance(kind(c)) == pytest.approx(exact, rel=1e-9, abs=1e-12)
    assert batch.variance(kind(c)) == pytest.approx(np.tile(np.diag(exact), (2, 1)), rel=1e-9)


def test_one_functional_has_no_axis_of_its_own():
    rng = np.random.default_rng(7)
    model, x, _, covariance, _ = known_models.model_of(rng.standard_normal((9, 5)), rng)
    c = np.array([1, 0, -2, 0, 1])
    single, batch = fmx.infer(model, x).posterior(), fmx.infer(model, np.stack([x, x + 1])).posterior()
    for vector in (c, list(c), sparse.coo_array(c)):
        for value in (single.variance(vector), single.covariance(vector)):
            assert isinstance(value, float)
            assert value == pytest.approx(c @ covariance @ c, rel=1e-9)
        assert batch.variance(vector) == pytest.approx([c @ covariance @ c] * 2, rel=1e-9)


def test_corrected_is_nearer_to_the_truth_for_bernoulli_rows():
    """The sd of two correlated logistic weights, against the posterior on a grid."""
    rng = np.random.default_rng(10)
    W = rng.standard_normal((60, 1)) + 0.5 * rng.standard_normal((60, 2))
    model = fmx.DEF(fmx.Layer(ROWS["bernoulli"], W))
    x = model.sample(rng).x
    result = fmx.infer(model, x)
    grid = np.linspace(-6, 6, 241)
    y = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    log_p = -0.5 * np.sum(y**2, axis=-1) + np.sum(special.log_expit((2 * x - 1) * (y @ W.T)), axis=-1)
    p = special.softmax(log_p)
    mean = p @ y
    exact = np.sqrt(p @ y**2 - mean**2)
    posterior = result.posterior()
    assert (np.abs(posterior.sd / exact - 1) < 0.05).all()
    assert (np.abs(posterior.mean - mean) / exact < 0.03).all()
    assert (result.sd / exact < 0.9).all()
    assert np.max(np.abs(result.mean - mean) / exact) > np.max(np.abs(posterior.mean - mean) / exact)


@pytest.mark.parametrize(
    ("C", "message"),
    [
        (np.ones(4), r"C must have shape \(3,\) or \(K, 3\) .* got \(4,\)"),
        (np.ones((2, 2, 3)), r"C must have shape .* got \(2, 2, 3\)"),
        (np.ones((0, 3)), r"C must have shape .* got \(0, 3\)"),
        (sparse.csr_array(np.ones((2, 5))), r"C must have shape .* got \(2, 5\)"),
        ([1.0, np.nan, 0.0], "C must be finite; .* first nan at index 1"),
        (sparse.csr_array([[1.0, np.inf, 0.0]]), "entries of C must be finite"),
        ("all", "C must hold real numbers"),
    ],
)
def test_bad_functionals(C, message):
    posterior = fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.eye(3))), np.ones(3)).posterior()
    with pytest.raises(fmx.ArgumentError, match=message):
        posterior.variance(C)


def test_infinite_curvature_is_said():
    model = fmx.DEF(fmx.Layer(ROWS["poisson"], np.eye(2)))
    from forestmix.model import observations
    from forestmix.posterior.system import LatentSystem

    system = LatentSystem(model, observations(model, np.zeros(2)))
    with pytest.raises(fmx.ForestmixError, match="expected curvature is infinite"):
        system.curvatures(np.array([[0.0, 800.0]]), np.ones((1, 2)))
