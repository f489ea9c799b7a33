"""Results called converged are close to the optimum, however the problem is scaled: against mpmath."""

import mpmath as mp
import numpy as np
import pytest

import forestmix as fmx

CONVERGED = fmx.Status.CONVERGED


def regression(rows, W, sd=1.0, mean=0.0, b=0.0):
    return fmx.DEF(fmx.Layer(rows, np.array(W, float), b), prior=fmx.Prior(fmx.Gaussian(sd=sd), bias=mean))


def exact_gaussian(model, x):
    """Return the exact posterior mean and standard deviations, with 60 digits."""
    with mp.workdps(60):
        W = mp.matrix(model.layers[0].weights.toarray().tolist())
        noise = [mp.mpf(float(s)) ** -2 for s in np.broadcast_to(model.layers[0].family.sd, W.rows)]
        prior = [mp.mpf(float(s)) ** -2 for s in np.broadcast_to(model.prior.family.sd, W.cols)]
        there = [0 if np.isnan(value) else 1 for value in x]
        K = mp.diag([k * t for k, t in zip(noise, there, strict=True)])
        covariance = (W.T * K * W + mp.diag(prior)) ** -1
        mean = covariance * W.T * K * mp.matrix([0.0 if np.isnan(value) else float(value) for value in x])
        sd = [mp.sqrt(covariance[j, j]) for j in range(W.cols)]
        return np.array([float(v) for v in mean]), np.array([float(s) for s in sd])


def distance_from_exact(model, x, result):
    mean, sd = exact_gaussian(model, x)
    return np.max(np.abs(result.mean - mean) / sd)


def newton_decrement(model, x, result, expectations):
    """Return how far, in standard deviations, the optimum of the ELBO is from q, by Newton's method with 40 digits.

    ``expectations(i, m, v)`` gives the first four derivatives of row i's ``a``, expected under N(m, v).
    """
    with mp.workdps(40):
        W = mp.matrix(model.layers[0].weights.toarray().tolist())
        n, m = W.rows, W.cols
        mu = [mp.mpf(float(v)) for v in result.mean]
        var = [mp.mpf(float(s)) ** 2 for s in result.sd]
        prior = [mp.mpf(float(s)) ** -2 for s in np.broadcast_to(model.prior.family.sd, m)]
        centre = [mp.mpf(float(c)) for c in np.broadcast_to(model.prior.bias, m)]
        bias = [mp.mpf(float(c)) for c in np.broadcast_to(model.layers[0].bias, n)]
        gradient, hessian = mp.zeros(2 * m, 1), mp.zeros(2 * m, 2 * m)
        for i in range(n):
            eta = bias[i] + sum(W[i, j] * mu[j] for j in range(m))
            spread = sum(W[i, j] ** 2 * var[j] for j in range(m))
            first, second, third, fourth = expectations(i, eta, spread)
            # u is the change of log sd: d spread = 2 w^2 var u.
            d = [W[i, j] for j in range(m)] + [2 * W[i, j] ** 2 * var[j] for j in range(m)]
            for j in range(m):
                gradient[j] += W[i, j] * (mp.mpf(float(x[i])) - first)
                gradient[m + j] -= W[i, j] ** 2 * var[j] * second
                hessian[m + j, m + j] += 2 * W[i, j] ** 2 * var[j] * second
            for j in range(2 * m):
                for k in range(2 * m):
                    factor = second if j < m and k < m else third / 2 if (j < m) != (k < m) else fourth / 4
                    hessian[j, k] += factor * d[j] * d[k]
        for j in range(m):
            gradient[j] -= prior[j] * (mu[j] - centre[j])
            gradient[m + j] += 1 - prior[j] * var[j]
            hessian[j, j] += prior[j]
            hessian[m + j, m + j] += 2 * prior[j] * var[j]
        return float(mp.sqrt(abs((gradient.T * mp.lu_solve(hessian, gradient))[0])))


def poisson_expectations(i, eta, spread):
    return (mp.exp(eta + spread / 2),) * 4


POISSON = {
    "large weight": ([[100.0]], 1.0, 1.0, 0.0, [3.0]),
    "large counts": ([[1.0, 1.0], [1.0, -1.0]], 10.0, 0.0, 0.0, [17000.0, 6.6e12]),
    "rate overflows at the prior": ([[100.0]], 1.0, 10.0, 0.0, [3.0]),
    "rate overflows at the bias": ([[1.0]], 1.0, 0.0, 800.0, [3.0]),
    "count far above": ([[1000.0]], 10.0, -5.0, 0.0, [1e12]),
    "zero, prior sd 100": ([[1.0]], 100.0, 0.0, 0.0, [0.0]),
    "zero, prior sd 1000": ([[1.0]], 1000.0, 0.0, 0.0, [0.0]),
    "zero, prior sd 1e6": ([[1.0]], 1e6, 0.0, 0.0, [0.0]),
}


@pytest.mark.parametrize("case", POISSON)
def test_poisson_rows_converge_where_means_and_variances_are_tied(case):
    W, sd, mean, b, x = POISSON[case]
    model = regression(fmx.Poisson(), W, sd, mean, b)
    result = fmx.infer(model, x)
    assert result.status is CONVERGED
    assert result.n_iter < 60
    assert newton_decrement(model, x, result, poisson_expectations) < 0.01


@pytest.mark.parametrize("seed", range(4))
def test_poisson_regressions_with_nearly_equal_columns_and_huge_counts(seed):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((40, 5))
    W[:, 1] = W[:, 0] * (1 + 10.0 ** rng.uniform(-7, -3) * rng.standard_normal(40))
    model = regression(fmx.Poisson(), W, 1.0, 0.0, rng.uniform(23, 27))
    x = model.sample(rng=seed).x
    result = fmx.infer(model, x)
    assert result.status is CONVERGED
    assert newton_decrement(model, x, result, poisson_expectations) < 0.01


@pytest.mark.parametrize("seed", range(3))
def test_binomial_rows_with_up_to_a_trillion_trials(seed):
    rng = np.random.default_rng(seed)
    trials = np.floor(10 ** rng.uniform(5.5, 12.5, 3))
    W, x = rng.standard_normal((3, 2)), np.floor(trials * rng.uniform(0.05, 0.95, 3))
    model = regression(fmx.Binomial(trials), W)
    result = fmx.infer(model, x)

    def sigmoid(t):
        return 1 / (1 + mp.exp(-t))

    def expectations(i, eta, spread):
        # The spread is tiny, so four terms of the heat series are exact to 30 digits.
        def at(order):
            half = spread / 2
            terms = [half**k / mp.factorial(k) * mp.diff(sigmoid, eta, order + 2 * k) for k in range(3)]
            return mp.mpf(float(trials[i])) * sum(terms)

        return at(0), at(1), at(2), at(3)

    assert result.status is CONVERGED
    assert newton_decrement(model, x, result, expectations) < 0.01


def test_a_tie_of_means_and_variances_is_found_in_a_large_problem_too():
    """Levels that were never seen to have a count, under a wide prior: the separate steps went on for 10,000 turns."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 300, 3000)
    W = np.hstack([rng.standard_normal((3000, 3)), np.eye(300)[level]])
    x = rng.poisson(np.exp(0.3 * W[:, :3].sum(axis=1) + rng.normal(-1, 3, 300)[level])).astype(float)
    model = regression(fmx.Poisson(), W, 300.0)
    result = fmx.infer(model, x)
    assert result.status is CONVERGED
    assert result.n_iter < 100
    rate = np.exp(W @ result.mean + 0.5 * W**2 @ result.sd**2)
    slope = W.T @ (x - rate) - result.mean / 300.0**2
    assert np.max(np.abs(slope) * result.sd) < 1e-5
    np.testing.assert_allclose(result.sd**-2, (W**2).T @ rate + 300.0**-2, rtol=1e-5)


def test_tiny_noise_does_not_hide_the_prior():
    model = regression(fmx.Gaussian(sd=1e-8), [[1, 2, 3], [1, -1, 0.5]])
    result = fmx.infer(model, [1.0, 2.0])
    assert result.status is CONVERGED
    assert distance_from_exact(model, [1.0, 2.0], result) < 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_rows_and_columns_of_very_different_scale(seed):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 12, 2)
    noise = 10 ** rng.uniform(-8, 2, n)
    W = rng.standard_normal((n, m)) * 10 ** rng.uniform(-4, 4, m)
    model = regression(fmx.Gaussian(sd=noise), W, 10 ** rng.uniform(-2, 5, m))
    x = rng.standard_normal(n) * 10 ** rng.uniform(-2, 2)
    result = fmx.infer(model, x)
    assert result.status is CONVERGED
    assert distance_from_exact(model, x, result) < 0.005


@pytest.mark.parametrize("prior_sd", [100.0, 1e3, 1e5])
def test_well_conditioned_problems_with_missing_entries_do_not_fall(prior_sd):
    rng = np.random.default_rng(3)
    W = rng.standard_normal((50, 8))
    model = regression(fmx.Gaussian(sd=1.0), W, prior_sd)
    x = rng.standard_normal((30, 8)) @ W.T + rng.standard_normal((30, 50))
    x[rng.random(x.shape) < 0.1] = np.nan
    for result in (fmx.infer(model, x), fmx.infer(model, x, callback=lambda info: None)):
        assert result.converged.all()
    for k in (0, 7):
        mean, sd = exact_gaussian(model, x[k])
        np.testing.assert_allclose(result.mean[k], mean, atol=0.005 * sd.min())


def test_a_duplicate_column_under_a_very_wide_prior_does_not_fall():
    rng = np.random.default_rng(4)
    W = rng.standard_normal((50, 8))
    W[:, 1] = W[:, 0]
    result = fmx.infer(regression(fmx.Gaussian(sd=1.0), W, 1e8), W.sum(axis=1) + rng.standard_normal(50))
    assert result.status is CONVERGED


def test_a_missing_entry_leaves_the_other_observations_as_they_were():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=0.5), fmx.windows((12, 12), 5)), prior=fmx.Prior(fmx.Gaussian(sd=100.0)))
    x = model.sample(rng=0, size=5).x
    x[0, 5] = x[3, 7] = x[4, 7] = np.nan
    together = fmx.infer(model, x)
    assert together.n_iter.max() < 10
    for k in range(5):
        alone = fmx.infer(model, x[k])
        np.testing.assert_allclose(together.mean[k], alone.mean, atol=1e-4 * alone.sd.min())
        assert together.objective[k] == pytest.approx(alone.objective, abs=1e-6)
        assert together.trace.objective[-1, k] == together.objective[k]


def test_conjugate_gradients_do_not_seem_to_fall_from_a_start_far_below():
    rng = np.random.default_rng(5)
    W = rng.standard_normal((300, 60))
    x = 3000 * (W @ rng.standard_normal(60)) + rng.standard_normal(300)
    trace = fmx.infer(regression(fmx.Gaussian(sd=1e-3), W, 1e4), x, accelerate="cg").trace
    assert trace.objective[0] < -1e12
    assert np.all(np.diff(trace.objective) >= -1e-9 * np.abs(trace.objective[1:]))


@pytest.mark.parametrize("rows", [fmx.Gaussian(1.0), fmx.Bernoulli(), fmx.Poisson()], ids=str)
@pytest.mark.parametrize("prior", [fmx.Gaussian(), fmx.Bernoulli()], ids=str)
@pytest.mark.parametrize(("size", "dtype"), [(1e160, np.float64), (1e30, np.float32)])
def test_weights_whose_squares_overflow_are_refused(rows, prior, size, dtype):
    if isinstance(prior, fmx.Bernoulli) and not isinstance(rows, fmx.Gaussian):
        pytest.skip("these rows take no squares of W")
    model = fmx.DEF(fmx.Layer(rows, np.array([[size]], dtype)), prior=fmx.Prior(prior))
    with pytest.raises(fmx.ArgumentError, match="W must be such that the sums of its squares"):
        fmx.infer(model, [1.0])


def test_tol_of_zero_runs_to_the_end():
    model = regression(fmx.Gaussian(1.0), [[1.0, 2.0], [0.5, 1.0]])
    result = fmx.infer(model, [1.0, 2.0], accelerate=False, tol=0, max_iter=300)
    assert result.status is fmx.Status.MAX_ITER
    assert result.n_iter == 300
