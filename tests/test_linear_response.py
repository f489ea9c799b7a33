"""Standard deviations by linear response: against dense inverses, the exact posterior, and a tilted prior."""

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import integrate, linalg, sparse, special, stats

import forestmix as fmx
import known_models
import oracles
import strategies
from forestmix import gram, linear_response
from forestmix.families import Bernoulli, Binomial, Poisson

ROWS = {"bernoulli": Bernoulli(), "binomial": Binomial(7), "poisson": Poisson()}
#: a'' of each family, as a formula of its own.
CURVATURES = {
    "bernoulli": lambda eta: 0.25 / np.cosh(eta / 2) ** 2,
    "binomial": lambda eta: 7 * 0.25 / np.cosh(eta / 2) ** 2,
    "poisson": np.exp,
}


def count_model(family, rng, n=14, m=6, dtype=np.float64):
    W = (rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.7) * 0.6).astype(dtype)
    prior = fmx.Prior(fmx.Gaussian(rng.uniform(0.5, 1.5, m)), rng.standard_normal(m) * 0.3)
    return fmx.DEF(fmx.Layer(family, W, rng.standard_normal(n) * 0.4), prior=prior)


def dense_covariance(model, curvature, mean, sd, observed=None):
    """The formula of design 1.8, with every expectation by adaptive quadrature."""
    W, n = model.layers[0].weights.toarray().astype(float), model.n_observed
    eta = W @ mean + model.layers[0].bias
    spread = np.sqrt(W**2 @ sd**2)
    kappa = [
        integrate.quad(lambda z, i=i: curvature(eta[i] + spread[i] * z) * stats.norm.pdf(z), -12, 12, epsabs=1e-13)[0]
        for i in range(n)
    ]
    kappa = np.array(kappa) * (1 if observed is None else observed)
    prior_sd = np.broadcast_to(model.prior.family.sd, model.n_latent).astype(float)
    return np.linalg.inv(np.diag(prior_sd**-2) + W.T @ (kappa[:, None] * W))


def set_limit(patch, limit):
    """Factor up to ``limit`` latents only; 0 for conjugate gradients always."""
    patch.setattr(linear_response, "DENSE_LIMIT", limit)
    patch.setattr(linear_response, "MANY_DENSE_LIMIT", limit)


@pytest.fixture
def iterative(monkeypatch):
    """Conjugate gradients whatever the number of latents, a few right-hand sides at a time."""
    set_limit(monkeypatch, 0)
    monkeypatch.setattr(gram, "MEMORY_BUDGET", 5000)


@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_gaussian_rows_give_the_exact_posterior(objective):
    rng = np.random.default_rng(0)
    model, x, _, covariance, mean_field = known_models.model_of(rng.standard_normal((9, 5)), rng)
    result = fmx.infer(model, x, objective=objective)
    exact = np.sqrt(np.diag(covariance))
    assert result.corrected_sd() == pytest.approx(exact, rel=1e-12)
    assert (exact > mean_field).all(), "mean field is too narrow, so this test can tell them apart"


def test_gaussian_rows_by_conjugate_gradients(iterative):
    rng = np.random.default_rng(1)
    model, x, _, covariance, _ = known_models.model_of(rng.standard_normal((30, 20)), rng)
    result = fmx.infer(model, x)
    for tol in (1e-2, 1e-6, 1e-10):
        ratio = result.corrected_sd(tol=tol) ** 2 / np.diag(covariance)
        assert (ratio <= 1 + 1e-13).all(), "from below"
        assert (ratio >= 1 - tol).all(), "within tol"
    assert (result.corrected_sd(tol=1e-2) ** 2 < np.diag(covariance) * (1 - 1e-8)).any(), "tol is used"


@settings(max_examples=60, deadline=None)
@given(strategies.gaussian_cases(log_scale=2.0))
def test_generated_models_both_ways(case):
    """Duplicate columns and scales over eight orders: the stated error holds against a QR factorisation in full."""
    stacked = np.vstack([case.W / case.sd[:, None], np.diag(1 / case.prior_sd)])
    scale = np.linalg.norm(stacked, axis=0)
    factor = linalg.qr(stacked / scale, mode="r")[0][: len(scale)]
    exact = np.sum(linalg.solve_triangular(factor, np.diag(1 / scale), trans="T") ** 2, axis=0)
    data = linear_response.Observations(case.x[None], None, True)
    arguments = (case.model, data, case.mean, case.q_sd)
    assert linear_response.linear_response_sd(*arguments) ** 2 == pytest.approx(exact, rel=2e-6)
    with pytest.MonkeyPatch.context() as patch:
        set_limit(patch, 0)
        variances = linear_response.linear_response_sd(*arguments) ** 2
    assert (variances <= exact * (1 + 1e-9)).all()
    assert (variances >= exact * (1 - 1.01e-6)).all()


def test_nearly_parallel_columns_keep_their_digits():
    """Cholesky's pivots have lost everything here; the QR factor has not."""
    column = np.arange(1.0, 9.0)[:, None]
    W = np.hstack([column, column, np.ones((8, 1))])
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1e-7), W))
    data = linear_response.Observations(np.zeros((1, 8)), None, True)
    sd = linear_response.linear_response_sd(model, data, np.zeros(3), np.full(3, 1e-8))
    # The difference of the twins has only its prior, N(0, 2), and their sum is known: a quarter of 2 each.
    assert sd[:2] ** 2 == pytest.approx([0.5, 0.5], rel=1e-7)


@pytest.mark.parametrize("name", ROWS)
def test_other_rows_equal_the_dense_formula(name):
    rng = np.random.default_rng(2)
    model = count_model(ROWS[name], rng)
    x = model.sample(rng).x
    result = fmx.infer(model, x)
    covariance = dense_covariance(model, CURVATURES[name], result.mean, result.sd)
    assert result.corrected_sd() == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-9)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_batches_with_missing_entries_both_ways(name, kind, monkeypatch):
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
    assert result.corrected_sd() == pytest.approx(np.sqrt(exact), rel=1e-9)
    assert result.corrected_sd()[2] == pytest.approx(model.prior.family.sd), "nothing seen, so the prior"
    set_limit(monkeypatch, 0)
    ratio = result.corrected_sd(tol=1e-8) ** 2 / exact
    assert ((ratio >= 1 - 2e-8) & (ratio <= 1 + 1e-9)).all()


def test_missing_entries_of_gaussian_rows():
    rng = np.random.default_rng(4)
    W = rng.standard_normal((8, 4))
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W))
    x = model.sample(rng, 3).x
    x[1, :5] = np.nan
    sd = fmx.infer(model, x).corrected_sd()
    for row, corrected in zip(x, sd, strict=True):
        seen = ~np.isnan(row)
        covariance = oracles.posterior(W[seen], 0.0, 0.5, 0.0, 1.0, row[seen])[1]
        assert corrected == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-12)


def test_a_batch_of_gaussian_rows_is_factored_once(monkeypatch):
    rng = np.random.default_rng(5)
    model, _, _, covariance, _ = known_models.model_of(rng.standard_normal((9, 5)), rng)
    result = fmx.infer(model, model.sample(rng, 40).x)
    calls = []
    factored = linear_response._factored
    monkeypatch.setattr(linear_response, "_factored", lambda *given: calls.append(1) or factored(*given))
    sd = result.corrected_sd()
    assert len(calls) == 1
    assert sd.shape == (40, 5)
    assert sd == pytest.approx(np.tile(np.sqrt(np.diag(covariance)), (40, 1)), rel=1e-12)


@pytest.mark.parametrize("limit", [0, 2000])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.coo_array, sparse.csc_matrix, fmx.Layer])
def test_functionals(limit, kind, monkeypatch):
    set_limit(monkeypatch, limit)
    rng = np.random.default_rng(6)
    model, x, _, covariance, _ = known_models.model_of(rng.standard_normal((9, 5)), rng)
    c = rng.standard_normal((3, 5)) * (rng.random((3, 5)) < 0.7)
    c[1] = 0
    exact = np.sqrt(np.einsum("ki,ij,kj->k", c, covariance, c))
    rows = fmx.Layer(fmx.Gaussian(1.0), c).weights if kind is fmx.Layer else kind(c)
    single, batch = fmx.infer(model, x), fmx.infer(model, np.stack([x, x + 1]))
    assert single.corrected_sd(rows, tol=1e-10) == pytest.approx(exact, rel=1e-9)
    assert batch.corrected_sd(rows, tol=1e-10) == pytest.approx(np.tile(exact, (2, 1)), rel=1e-9)


def test_one_functional_has_no_axis_of_its_own():
    rng = np.random.default_rng(7)
    model, x, _, covariance, _ = known_models.model_of(rng.standard_normal((9, 5)), rng)
    c = np.array([1, 0, -2, 0, 1])
    exact = np.sqrt(c @ covariance @ c)
    single, batch = fmx.infer(model, x), fmx.infer(model, np.stack([x, x + 1]))
    for vector in (c, list(c), sparse.coo_array(c)):
        value = single.corrected_sd(vector)
        assert isinstance(value, float)
        assert value == pytest.approx(exact, rel=1e-9)
        assert batch.corrected_sd(vector) == pytest.approx([exact, exact], rel=1e-9)


@pytest.mark.parametrize("limit", [0, 2000])
@pytest.mark.parametrize("weights", ["dense", "sparse", "convolution"])
def test_float32_is_computed_in_float64(limit, weights, monkeypatch):
    set_limit(monkeypatch, limit)
    rng = np.random.default_rng(8)
    convolution = fmx.Convolution(rng.standard_normal((2, 1, 3, 3)).astype(np.float32), (4, 5))
    array = convolution.toarray()
    W = {"dense": array, "sparse": sparse.csr_array(array), "convolution": convolution}[weights]
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.01), W))
    data = linear_response.Observations(np.zeros((1, 20), np.float32), None, True)
    q = np.zeros(40, np.float32), np.full(40, 0.01, np.float32)
    sd = linear_response.linear_response_sd(model, data, *q, tol=1e-9)
    covariance = oracles.posterior(array.astype(float), 0.0, float(np.float32(0.01)), 0.0, 1.0, np.zeros(20))[1]
    assert sd.dtype == np.float32
    assert sd == pytest.approx(np.sqrt(np.diag(covariance)), rel=3e-7), "float32 would lose this at condition 1e5"


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
    variance = fmx.infer(model, x, tol=1e-12).corrected_sd(c) ** 2
    assert variance == pytest.approx(response, rel=1e-8 if name == "gaussian" else 0.1)


def test_corrected_is_nearer_to_the_truth_for_bernoulli_rows():
    """The sd of two correlated logistic weights, against the posterior on a grid."""
    rng = np.random.default_rng(10)
    W = rng.standard_normal((60, 1)) + 0.5 * rng.standard_normal((60, 2))
    model = fmx.DEF(fmx.Layer(Bernoulli(), W))
    x = model.sample(rng).x
    result = fmx.infer(model, x)
    grid = np.linspace(-6, 6, 241)
    y = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    log_p = -0.5 * np.sum(y**2, axis=-1) + np.sum(special.log_expit((2 * x - 1) * (y @ W.T)), axis=-1)
    p = special.softmax(log_p)
    exact = np.sqrt(p @ y**2 - (p @ y) ** 2)
    assert (np.abs(result.corrected_sd() / exact - 1) < 0.1).all()
    assert (result.sd / exact < 0.9).all()


def test_many_functionals_are_worth_a_factor(monkeypatch):
    monkeypatch.setattr(linear_response, "DENSE_LIMIT", 10)
    monkeypatch.setattr(linear_response, "MANY_DENSE_LIMIT", 40)
    calls = []
    factored = linear_response._factored
    monkeypatch.setattr(linear_response, "_factored", lambda *given: calls.append(1) or factored(*given))
    for m, count in ((10, 1), (30, 3), (30, 2), (50, 50)):
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.eye(m)))
        fmx.infer(model, np.ones(m)).corrected_sd(np.eye(m)[:count])
    assert len(calls) == 2, "few latents, or many functionals; neither two functionals nor fifty latents"


def test_blocks_keep_to_the_memory_budget(monkeypatch):
    monkeypatch.setattr(gram, "MEMORY_BUDGET", 2**20)
    assert [len(block) for block in gram.blocks_of(10, 2**18)] == [4, 4, 2]
    assert [len(block) for block in gram.blocks_of(2, 2**30)] == [1, 1]


def test_progress_shows_a_bar(capsys, iterative):
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.eye(3)))
    result = fmx.infer(model, np.ones(3))
    assert result.corrected_sd(progress=True) == pytest.approx(np.full(3, 0.5**0.5))
    assert "linear response" in capsys.readouterr().out


def test_out_of_reach_is_said(iterative):
    W = np.hstack([np.ones((4, 1)), np.ones((4, 1)) + 1e-9 * np.arange(4)[:, None]])
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1e-12), W), prior=fmx.Prior(fmx.Gaussian(1e9)))
    data = linear_response.Observations(np.zeros((1, 4)), None, True)
    with pytest.raises(fmx.ForestmixError, match=r"did not reach tol=1e-06 .* the worst, number .* Raise tol"):
        linear_response.linear_response_sd(model, data, np.zeros(2), np.ones(2))


def test_infinite_curvature_is_said():
    model = fmx.DEF(fmx.Layer(Poisson(), np.eye(2)))
    data = linear_response.Observations(np.zeros((1, 2)), None, True)
    with pytest.raises(fmx.ForestmixError, match="expected curvature is infinite"):
        linear_response.linear_response_sd(model, data, np.array([0.0, 800.0]), np.ones(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"functionals": np.ones(4)}, r"functionals must have shape \(3,\) or \(K, 3\) .* got \(4,\)"),
        ({"functionals": np.ones((2, 2, 3))}, r"functionals must have shape .* got \(2, 2, 3\)"),
        ({"functionals": np.ones((0, 3))}, r"functionals must have shape .* got \(0, 3\)"),
        ({"functionals": sparse.csr_array(np.ones((2, 5)))}, r"functionals must have shape .* got \(2, 5\)"),
        ({"functionals": [1.0, np.nan, 0.0]}, "functionals must be finite; .* first nan at index 1"),
        ({"functionals": sparse.csr_array([[1.0, np.inf, 0.0]])}, "entries of functionals must be finite"),
        ({"functionals": "all"}, "functionals must hold real numbers"),
        ({"tol": 0.0}, "tol must be a number between 0 and 1; got 0.0"),
        ({"tol": "small"}, "tol must be a number between 0 and 1; got 'small'"),
    ],
)
def test_bad_arguments(arguments, message):
    result = fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.eye(3))), np.ones(3))
    with pytest.raises(fmx.ArgumentError, match=message):
        result.corrected_sd(**arguments)
