"""Latents of every family through infer: one contract, monotone runs, and answers that are known."""

import itertools

import numpy as np
import pytest
from scipy import integrate, special, stats

import forestmix as fmx
from deep_oracles import log_row

PRIORS = {
    "gaussian": lambda: fmx.Prior(fmx.Gaussian(1.2), 0.2),
    "bernoulli": lambda: fmx.Prior(fmx.Bernoulli(), -0.3),
    "poisson": lambda: fmx.Prior(fmx.Poisson(), 0.2),
    "exponential": lambda: fmx.Prior(fmx.Exponential(1.5)),
    "laplace": lambda: fmx.Prior(fmx.Laplace(0.7), 0.1),
    "spike and slab": lambda: fmx.Prior(fmx.SpikeSlab(0.3, 1.5)),
}


def model_of(name, rng, n=12, m=5, rows=None):
    W = 0.6 * rng.standard_normal((n, m))
    return fmx.DEF(fmx.Layer(rows or fmx.Gaussian(0.7), W, 0.2), prior=PRIORS[name]())


def assert_monotone(result):
    objective = result.trace.objective
    assert (np.diff(objective, axis=0) >= -1e-11 * (np.abs(objective[:-1]) + 20)).all()


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("size", [None, 3])
def test_every_family_shows_its_posterior_alike(name, size):
    rng = np.random.default_rng(0)
    model = model_of(name, rng)
    x = model.sample(rng, size=size).x
    result = fmx.infer(model, x)
    shape = (5,) if size is None else (3, 5)
    layer = result.layers[0]
    low, high = layer.interval(0.8)
    assert layer.mean.shape == layer.sd.shape == low.shape == high.shape == layer.density(1.0).shape == shape
    assert layer.sample(0).shape == shape
    assert layer.sample(0, size=7).shape == (7, *shape)
    assert (low <= high).all()
    assert (layer.density(1.0) >= 0).all()
    assert np.isfinite(layer.sd).all()
    assert layer.density(np.ones(5)) == pytest.approx(layer.density(1.0))
    if layer.discrete:
        assert layer.probabilities.shape[: len(shape)] == shape
        assert layer.probabilities.sum(axis=-1) == pytest.approx(1)
        assert layer.probabilities[..., 1] == pytest.approx(layer.density(1.0))
    else:
        with pytest.raises(fmx.ForestmixError, match="density"):
            _ = layer.probabilities
    assert np.all(result.fm_bound <= result.elbo + 1e-9)
    prediction = result.posterior("factorised").predict()
    assert prediction.mean.shape == ((12,) if size is None else (3, 12))
    assert "latents" in repr(layer)


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("objective", ["elbo", "fm"])
@pytest.mark.parametrize("accelerate", [True, False])
def test_objective_never_falls_and_all_end_at_one_place(name, objective, accelerate):
    rng = np.random.default_rng(1)
    model = model_of(name, rng)
    x = model.sample(rng, size=2).x
    x[1, :4] = np.nan
    result = fmx.infer(model, x, objective=objective, accelerate=accelerate, tol=1e-7, max_iter=3000)
    assert_monotone(result)
    assert result.objective == pytest.approx(result.elbo if objective == "elbo" else result.fm_bound, abs=1e-7)
    if objective == "elbo":
        assert result.converged.all()
        cavi = fmx.infer(model, x, "cavi", tol=1e-9)
        assert_monotone(cavi)
        assert result.elbo == pytest.approx(cavi.elbo, abs=1e-7)


def marginal(name, x, w):
    """The integral of p(y) prod_i N(x_i; 0.2 + w_i y, 0.7^2), by quadrature or a sum."""

    def likelihood(y):
        return np.prod(stats.norm.pdf(x, 0.2 + w * y, 0.7))

    def integral(density, *ends):
        parts = itertools.pairwise(ends)
        return sum(integrate.quad(lambda y: density(y) * likelihood(y), *part, epsabs=1e-13)[0] for part in parts)

    if name == "bernoulli":
        p = 1 / (1 + np.exp(0.3))
        return (1 - p) * likelihood(0) + p * likelihood(1)
    if name == "poisson":
        return sum(stats.poisson.pmf(y, np.exp(0.2)) * likelihood(y) for y in range(60))
    if name == "spike and slab":
        return 0.7 * likelihood(0) + 0.3 * integral(stats.norm(0, 1.5).pdf, -20, 0, 20)
    if name == "exponential":
        return integral(stats.expon(scale=1 / 1.5).pdf, 0, 40)
    return integral(stats.laplace(0.1, 0.7).pdf, -30, 0.1, 30)


@pytest.mark.parametrize("name", ["exponential", "laplace", "spike and slab", "poisson", "bernoulli"])
def test_one_parent_for_each_row_makes_mean_field_exact(name):
    """With one parent for each row the latents are independent given x, so the ELBO is log p(x): by quadrature."""
    rng = np.random.default_rng(2)
    W = np.zeros((4, 2))
    W[[0, 1], 0], W[[2, 3], 1] = [0.8, -0.5], [1.2, 0.4]
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.7), W, 0.2), prior=PRIORS[name]())
    x = model.sample(rng).x
    evidence = 0.0
    for j, rows in ((0, [0, 1]), (1, [2, 3])):
        evidence += np.log(marginal(name, x[rows], W[rows, j]))
    result = fmx.infer(model, x, tol=1e-10)
    assert result.elbo == pytest.approx(evidence, abs=1e-8)
    assert result.fm_bound == pytest.approx(evidence, abs=1e-8)


@pytest.mark.parametrize("rows", [fmx.Bernoulli(), fmx.Binomial(3), fmx.Poisson()])
def test_poisson_latents_under_counts(rows):
    rng = np.random.default_rng(4)
    model = fmx.DEF(fmx.Layer(rows, 0.4 * rng.standard_normal((6, 3)), 0.1), prior=fmx.Prior(fmx.Poisson(), -0.3))
    x = model.sample(rng).x
    result = fmx.infer(model, x, tol=1e-5)
    assert result.objective_name == "fm"
    assert_monotone(result)
    assert result.fm_bound <= result.elbo
    # The ELBO by summing over all counts up to where nothing is left.
    table = result.layers[0].probabilities[:, :18]
    counts = np.stack(np.meshgrid(*[np.arange(18)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    q = np.prod([table[j, counts[:, j]] for j in range(3)], axis=0)
    eta = counts @ model.layers[0].weights.toarray().T + 0.1
    expected = (q[:, None] * rows.log_partition(eta)).sum(axis=0)
    mean = table @ np.arange(18)
    fit = np.sum(log_row(rows, x, model.layers[0].weights.toarray() @ mean + 0.1))
    fit += np.sum(rows.log_partition(model.layers[0].weights.toarray() @ mean + 0.1) - expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        prior = -0.3 * np.arange(18) - np.exp(-0.3) - special.gammaln(np.arange(18) + 1)
        divergence = np.nansum(table * (np.log(table) - prior))
    assert result.elbo == pytest.approx(fit - divergence, abs=1e-7)
    polished = fmx.infer(model, x, "cavi", init=result, tol=1e-6)
    assert polished.elbo >= result.elbo - 1e-10


def test_layers_of_different_families():
    rng = np.random.default_rng(5)
    W = [0.6 * rng.standard_normal(shape) for shape in ((14, 5), (5, 4), (4, 3))]
    models = [
        fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W[0]), fmx.Layer(fmx.Gaussian(0.7), W[1]), prior=PRIORS["bernoulli"]()),
        fmx.DEF(fmx.Layer(fmx.Bernoulli(), W[0]), fmx.Layer(fmx.Gaussian(0.7), W[1]), prior=PRIORS["laplace"]()),
        fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W[0]), fmx.Layer(fmx.Bernoulli(), W[1]), prior=PRIORS["gaussian"]()),
        fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W[0]), fmx.Layer(fmx.Poisson(), 0.4 * W[1]), prior=PRIORS["bernoulli"]()),
        fmx.DEF(
            fmx.Layer(fmx.Bernoulli(), W[0]), fmx.Layer(fmx.Gaussian(0.7), W[1]), fmx.Layer(fmx.Gaussian(0.7), W[2]),
            prior=PRIORS["spike and slab"](),
        ),
    ]  # fmt: skip
    for model in models:
        x = model.sample(rng).x
        ends = []
        for schedule in ("red-black", "bottom-up", "top-down"):
            result = fmx.infer(model, x, fmx.ForestMixture(schedule=schedule), tol=1e-5, max_iter=600)
            assert_monotone(result)
            assert result.fm_bound <= result.elbo + 1e-8
            assert result.objective <= result.elbo + 1e-8
            ends.append(result.objective)
        assert np.ptp(ends) < 1e-3
        again = fmx.infer(model, x, init=result, tol=1e-4)
        assert again.n_iter <= 5


def test_sparse_regression_finds_the_support():
    rng = np.random.default_rng(6)
    n, m, active = 120, 400, 6
    X = rng.standard_normal((n, m))
    support = rng.choice(m, active, replace=False)
    beta = np.zeros(m)
    beta[support] = rng.choice([-1, 1], active) * rng.uniform(0.8, 1.6, active)
    y = X @ beta + 0.7 * rng.standard_normal(n)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.7), X), prior=fmx.Prior(fmx.SpikeSlab(active / m, 1.0)))
    result = fmx.infer(model, y)
    assert set(np.flatnonzero(result.layers[0].inclusion > 0.5)) == set(support)
    assert result.elbo == pytest.approx(fmx.infer(model, y, "cavi").elbo, abs=1e-4)
    assert result.n_iter < 60
    low, high = result.layers[0].interval(0.99)
    assert ((low <= beta) & (beta <= high))[support].mean() > 0.6


def test_float32_latents():
    rng = np.random.default_rng(7)
    W = rng.standard_normal((20, 4)).astype(np.float32)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W), prior=fmx.Prior(fmx.Exponential(1.0)))
    result = fmx.infer(model, model.sample(rng).x)
    assert result.mean.dtype == np.float32
    assert result.converged


def test_sampling_and_prior_predictive():
    rng = np.random.default_rng(8)
    W = 0.5 * rng.standard_normal((3, 4))
    expected = {"exponential": 1 / 1.5, "laplace": 0.1, "spike and slab": 0.0, "bernoulli": 1 / (1 + np.exp(0.3))}
    for name, mean in expected.items():
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.3), W), fmx.Layer(fmx.Gaussian(0.2), np.eye(4)), prior=PRIORS[name]())
        draw = model.sample(0, size=20_000)
        assert [part.shape for part in draw.latents] == [(20_000, 4), (20_000, 4)]
        assert draw.latents[1].mean() == pytest.approx(mean, abs=0.03)
        assert draw.x.mean(axis=0) == pytest.approx(W @ np.full(4, mean), abs=0.05)
        predictive = model.prior_predictive(0, size=2000, level=0.8)
        inside = (predictive.x >= predictive.lower) & (predictive.x <= predictive.upper)
        assert inside.mean() == pytest.approx(0.8, abs=0.01)
        assert predictive.mean.shape == predictive.sd.shape == (3,)


def test_latents_that_are_alike_leave_the_saddle_between_them():
    """Two columns all but equal: the parallel step keeps both alike, where the optimum has one of them at zero."""
    W = [[0.0031726724051, 0.003172672413761396], [0.00546044525208, 0.0054604452578871825]]
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.001), W), prior=fmx.Prior(fmx.SpikeSlab(0.000256, 0.18)))
    x = np.array([[-0.0034649, -0.0042047], [0.0027159, 0.0031375], [-0.0030067, -0.0075197]])
    result = fmx.infer(model, x)
    assert result.converged.all()
    swept = fmx.infer(model, x, "cavi", init=result, max_iter=20)
    assert (swept.objective <= result.objective + 1e-3).all()
