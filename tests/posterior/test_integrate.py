"""Unknown scales against closed forms, and against quadrature over scales and latents on fine grids."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special
import scipy.stats

import forestmix as fmx
from forestmix.model import observations
from forestmix.posterior import integrate
from forestmix.posterior.component import mixture_quantile
from forestmix.posterior.integrate import ScaleObjective, fit_scales
from forestmix.posterior.marginals import Mixture
from forestmix.posterior.scale_em import Expectation, fit_scale_mode
from forestmix.scales import Exponential, Flat, HalfCauchy, HalfNormal, InverseGamma


def moments(fit, k=0):
    """Means and standard deviations of the latents of observation k."""
    mean, variance = Mixture(fit.components, fit.weights).moments()
    return mean[k], np.sqrt(variance[k])


def groups_model(rows, rng, n=120, groups=12, tau=None, fixed_sd=2.0):
    level = rng.integers(0, groups, n)
    Z = scipy.sparse.csr_array((np.ones(n), (np.arange(n), level)), (n, groups))
    W = scipy.sparse.csr_array(scipy.sparse.hstack([np.c_[np.ones(n), rng.standard_normal(n)], Z]))
    return fmx.DEF(fmx.Layer(rows, W), prior=fmx.Prior(fmx.Gaussian(sd=[fixed_sd, fixed_sd, *[tau] * groups])))


class Conjugate:
    """Regression with ``y_j ~ N(0, s^2)``, ``x ~ N(W y, s^2)``, ``s^2 ~ inverse gamma``, in closed form."""

    def __init__(self, n=30, m=4, shape=2.0, scale=1.5):
        rng = np.random.default_rng(0)
        self.W = np.c_[np.ones(n), rng.standard_normal((n, m - 1))]
        self.x = self.W @ rng.standard_normal(m) + 0.6 * rng.standard_normal(n)
        A = np.eye(m) + self.W.T @ self.W
        self.mean = np.linalg.solve(A, self.W.T @ self.x)
        self.shape, self.scale = shape + n / 2, scale + 0.5 * (self.x @ self.x - self.mean @ A @ self.mean)
        self.covariance = np.linalg.inv(A)
        self.log_evidence = (
            -0.5 * n * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(A)[1] + shape * np.log(scale)
            - self.shape * np.log(self.scale) + scipy.special.gammaln(self.shape) - scipy.special.gammaln(shape)
        )  # fmt: skip
        unknown = InverseGamma(shape, scale)
        self.model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=unknown), self.W), prior=fmx.Prior(fmx.Gaussian(sd=unknown)))

    def marginal(self, j):
        """The Student t of latent j."""
        spread = np.sqrt(self.scale / self.shape * self.covariance[j, j])
        return scipy.stats.t(2 * self.shape, loc=self.mean[j], scale=spread)


class TestConjugateRegression:
    case = Conjugate()
    (fit,) = fit_scales(case.model, observations(case.model, case.x))

    def test_latents(self):
        mean, sd = moments(self.fit)
        np.testing.assert_allclose(mean, self.case.mean, rtol=1e-10)
        np.testing.assert_allclose(sd, [self.case.marginal(j).std() for j in range(4)], rtol=1e-6)

    def test_intervals_are_those_of_student_t(self):
        mixture = Mixture(self.fit.components, self.fit.weights)
        sds = np.sqrt([part.covariance.variance() for part in self.fit.components])
        for p in (0.01, 0.05, 0.5, 0.975):
            (found,) = mixture_quantile(p, mixture.weights, mixture.means, sds)
            np.testing.assert_allclose(found, [self.case.marginal(j).ppf(p) for j in range(4)], rtol=1e-6)

    def test_evidence(self):
        assert self.fit.log_evidence == pytest.approx(self.case.log_evidence, abs=1e-6)

    def test_scale(self):
        (scale,) = self.fit.scales
        variance = scipy.stats.invgamma(self.case.shape, scale=self.case.scale)
        grid = np.linspace(0.4, 1.2, 9)
        np.testing.assert_allclose(
            scale.quantile([0.05, 0.5, 0.95]), np.sqrt(variance.ppf([0.05, 0.5, 0.95])), rtol=2e-5
        )
        np.testing.assert_allclose(scale.density(grid), variance.pdf(grid**2) * 2 * grid, rtol=1e-3, atol=1e-5)
        mean = variance.expect(np.sqrt)
        assert scale.mean == pytest.approx(mean, rel=1e-6)
        assert scale.sd == pytest.approx(np.sqrt(variance.mean() - mean**2), rel=1e-5)
        drawn = scale.sample(20_000, rng=0)
        assert np.mean(drawn) == pytest.approx(scale.mean, abs=4 * scale.sd / np.sqrt(20_000))

    def test_draws_choose_a_node(self):
        drawn = Mixture(self.fit.components, self.fit.weights).sample(40_000, np.random.default_rng(0))[:, 0]
        for j in range(4):
            assert scipy.stats.kstest(drawn[:, j], self.case.marginal(j).cdf).pvalue > 1e-4


def log_likelihood(family, x, eta):
    """log p(x | eta) summed over the last axis, up to what the families' own code does not enter."""
    if isinstance(family, fmx.Poisson):
        return np.sum(x * eta - np.exp(eta) - scipy.special.gammaln(x + 1), axis=-1)
    return np.sum(x * eta - np.logaddexp(0, eta), axis=-1)


def by_quadrature(family, prior, W, x):
    """Log evidence, and mean and sd of latent and log scale, of one latent with an unknown prior sd, on a fine grid."""
    theta, z = np.linspace(-14, 4, 721), np.linspace(-9, 9, 1201)
    y = np.exp(theta)[:, None] * z
    likelihood = np.array([log_likelihood(family, x, W * row[:, None]) for row in y])
    log_joint = likelihood + scipy.stats.norm.logpdf(z) + prior.log_density_of_log(theta)[:, None]
    total = scipy.special.logsumexp(log_joint)
    weight = np.exp(log_joint - total)
    cell = (theta[1] - theta[0]) * (z[1] - z[0])
    mean, log_mean = np.sum(weight * y), np.sum(weight.sum(1) * theta)
    sds = np.sqrt([np.sum(weight * (y - mean) ** 2), np.sum(weight.sum(1) * (theta - log_mean) ** 2)])
    return total + np.log(cell), mean, sds[0], log_mean, sds[1]


@pytest.mark.parametrize("prior", [HalfNormal(1.0), Exponential(0.7), HalfCauchy(0.5)], ids=repr)
@pytest.mark.parametrize("family", [fmx.Bernoulli(), fmx.Poisson()], ids=repr)
def test_one_latent_of_unknown_sd_by_quadrature(family, prior):
    rng = np.random.default_rng(3)
    W = rng.uniform(0.5, 1.5, 12)
    x = fmx.DEF(fmx.Layer(family, W[:, None])).with_scales([]).sample(4).x
    model = fmx.DEF(fmx.Layer(family, W[:, None]), prior=fmx.Prior(fmx.Gaussian(sd=prior)))
    (fit,) = fit_scales(model, observations(model, x))
    log_evidence, mean, sd, log_mean, log_sd = by_quadrature(family, prior, W, x)
    # The grid leaves out what HalfCauchy has beyond exp(4).
    assert fit.log_evidence == pytest.approx(log_evidence, abs=2e-4 if isinstance(prior, HalfCauchy) else 2e-6)
    found_mean, found_sd = moments(fit)
    assert found_mean[0] == pytest.approx(mean, abs=0.004 * sd)
    assert found_sd[0] == pytest.approx(sd, rel=0.003)
    assert fit.scales[0].log_mean == pytest.approx(log_mean, abs=0.001 * log_sd)
    assert fit.scales[0].log_sd == pytest.approx(log_sd, rel=0.002)


def two_scales_by_quadrature(model, x, ranges):
    """Log evidence and moments of log scales and latents of a Gaussian model, on a fine grid of its two log scales."""
    axes = [np.linspace(*limits, count) for *limits, count in ranges]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    W, n = model.layers[0].weights.toarray(), len(x)
    s0 = np.stack([model.with_scales(np.exp(theta)).prior.family.sd for theta in grid])
    covariance = np.einsum("ij,gj,kj->gik", W, s0**2, W) + np.exp(2 * grid[:, :1, None]) * np.eye(n)
    solved = np.linalg.solve(covariance, np.c_[x, W])
    log_prior = sum(s.log_density_of_log(t) for s, t in zip(model.unknown_scales, grid.T, strict=True))
    log_likelihood = -0.5 * (np.linalg.slogdet(covariance)[1] + solved[:, :, 0] @ x + n * np.log(2 * np.pi))
    log_density = log_likelihood + log_prior
    total = scipy.special.logsumexp(log_density)
    weight = np.exp(log_density - total)
    means = s0**2 * (solved[:, :, 0] @ W)
    variances = s0**2 - s0**4 * np.einsum("ij,gij->gj", W, solved[:, :, 1:])
    log_means, mean = weight @ grid, weight @ means
    log_sds, sd = np.sqrt(weight @ (grid - log_means) ** 2), np.sqrt(weight @ (variances + (means - mean) ** 2))
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    return total + np.log(cell), log_means, log_sds, mean, sd


def test_two_scales_by_quadrature():
    """Noise and the sd of few groups, whose posterior goes on to 0."""
    rng = np.random.default_rng(2)
    model = groups_model(fmx.Gaussian(sd=HalfNormal(1.0)), rng, n=30, groups=5, tau=HalfNormal(1.0))
    x = model.with_scales([0.5, 0.3]).sample(1).x
    (fit,) = fit_scales(model, observations(model, x))
    log_evidence, log_means, log_sds, mean, sd = two_scales_by_quadrature(model, x, [(-1.6, 0.6, 61), (-12, 1.5, 121)])
    assert fit.log_evidence == pytest.approx(log_evidence, abs=1e-3)
    for scale, log_mean, log_sd in zip(fit.scales, log_means, log_sds, strict=True):
        assert scale.log_mean == pytest.approx(log_mean, abs=0.002 * log_sd)
        assert scale.log_sd == pytest.approx(log_sd, rel=0.005)
    found_mean, found_sd = moments(fit)
    np.testing.assert_allclose(found_mean, mean, atol=1e-3 * sd.max())
    np.testing.assert_allclose(found_sd, sd, rtol=1e-3)


@pytest.mark.parametrize("rows", [fmx.Poisson(), fmx.Bernoulli(), fmx.Gaussian(sd=HalfNormal(2.0))], ids=repr)
def test_slope_is_that_of_differences(rows):
    rng = np.random.default_rng(4)
    model = groups_model(rows, rng, tau=Exponential(1.0))
    count = len(model.unknown_scales)
    x = model.with_scales(np.full(count, 0.7)).sample(1).x.astype(float)
    x[3] = np.nan
    objective = ScaleObjective(model, observations(model, x))
    theta, step = np.log(np.linspace(0.4, 0.9, count)), 1e-3
    for k, direction in enumerate(step * np.eye(count)):
        ahead, behind = (objective.evaluate(theta + sign * direction).value for sign in (1, -1))
        assert objective.evaluate(theta).slope[k] == pytest.approx((ahead - behind) / (2 * step), rel=1e-4, abs=1e-4)


def test_shared_scales_and_one_each():
    rng = np.random.default_rng(5)
    W = rng.standard_normal((15, 2))
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=HalfNormal(2.0)), W))
    x = np.stack([model.with_scales([sd]).sample(1).x for sd in (0.3, 1.2, 1.0)])
    x[0, 2] = np.nan
    each = fit_scales(model, observations(model, x), scales="each")
    assert len(each) == 3
    for fit, one in zip(each, x, strict=True):
        (alone,) = fit_scales(model, observations(model, one))
        assert fit.log_evidence == pytest.approx(alone.log_evidence, abs=1e-9)
    (shared,) = fit_scales(model, observations(model, x))
    assert shared.components[0].mean.shape == (3, 2)
    theta = np.linspace(-3, 3, 241)
    values = [np.sum(fmx.log_evidence(model.with_scales([s]), x)) for s in np.exp(theta)]
    values = np.array(values) + HalfNormal(2.0).log_density_of_log(theta)
    assert shared.log_evidence == pytest.approx(scipy.special.logsumexp(values) + np.log(theta[1] - theta[0]), abs=1e-6)


def test_mixed_rows_with_an_unknown_noise():
    rng = np.random.default_rng(6)
    rows = fmx.Mixed([fmx.Gaussian(sd=HalfNormal(1.0)), fmx.Poisson()], np.arange(400) % 2)
    model = fmx.DEF(fmx.Layer(rows, 0.5 * rng.standard_normal((400, 3))))
    x = model.with_scales([0.4]).sample(2).x
    (fit,) = fit_scales(model, observations(model, x))
    low, high = fit.scales[0].interval(0.99)
    assert low < 0.4 < high < 1.3 * low


def test_factors_beyond_the_budget_are_made_anew(monkeypatch):
    model = groups_model(fmx.Poisson(), np.random.default_rng(12), tau=HalfNormal(1.0))
    data = observations(model, model.with_scales([0.5]).sample(2).x)
    (held,) = fit_scales(model, data)
    monkeypatch.setattr(integrate, "HELD_FACTORS", 0)
    (released,) = fit_scales(model, data)
    np.testing.assert_array_equal(moments(held), moments(released))


def test_an_sd_left_out_is_found():
    rng = np.random.default_rng(7)
    W = rng.standard_normal((300, 3))
    x = 100 * (W @ [1.0, 2.0, 0.5]) + 30 * rng.standard_normal(300)
    rows = fmx.Gaussian()
    model = fmx.DEF(fmx.Layer(rows, W), prior=fmx.Prior(fmx.Gaussian(1000.0)))
    (fit,) = fit_scales(model, observations(model, x))
    low, high = fit.scales[0].interval(0.99)
    assert low < 30 < high
    assert "of FromData()" in repr(fit.scales[0])


def test_the_mode_is_found_from_a_steep_start():
    """Many rows make L so steep at its start that a step along the slope would leave every sensible scale behind."""
    rng = np.random.default_rng(5)
    n, first, second = 300, rng.integers(0, 15, 300), rng.integers(0, 20, 300)
    Z = np.c_[np.ones(n), np.eye(15)[first], np.eye(20)[second]]
    x = 0.8 * rng.standard_normal(15)[first] + 0.05 * rng.standard_normal(20)[second] + 0.1 * rng.standard_normal(n)
    noise, one, other = (HalfNormal(1.0) for _ in range(3))
    prior = fmx.Prior(fmx.Gaussian(sd=[1.0, *[one] * 15, *[other] * 20]))
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=noise), scipy.sparse.csr_array(Z)), prior=prior)

    def negative(theta):
        """Minus the log of evidence and prior, by the dense normal distribution of x."""
        scales = np.exp(theta)
        spread = np.r_[1.0, np.full(15, scales[1]), np.full(20, scales[2])]
        evidence = scipy.stats.multivariate_normal(np.zeros(n), (Z * spread**2) @ Z.T + scales[0] ** 2 * np.eye(n))
        return -evidence.logpdf(x) + 0.5 * scales @ scales - np.sum(theta)

    expected = scipy.optimize.minimize(negative, np.log([0.1, 0.8, 0.05]), method="Nelder-Mead").x
    found = integrate.climb(ScaleObjective(model, observations(model, x)))
    assert model.unknown_scales == (noise, one, other)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_a_group_sd_near_zero_is_no_trouble():
    """No difference between groups at all: the mass goes on to 0, as far as the prior says."""
    rng = np.random.default_rng(8)
    model = groups_model(fmx.Poisson(), rng, tau=HalfNormal(1.0))
    x = model.with_scales([1e-8]).sample(2).x
    (fit,) = fit_scales(model, observations(model, x))
    assert fit.converged
    assert fit.scales[0].interval(0.9)[0] < 0.03
    assert fit.scales[0].mean < 0.25


def test_a_posterior_without_end_says_so():
    """One group with a flat sd: the likelihood does not bound it."""
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.ones((3, 1))), prior=fmx.Prior(fmx.Gaussian(sd=Flat())))
    with pytest.raises(fmx.ForestmixError, match=r"does not end towards infinity.* Give a proper prior"):
        fit_scales(model, observations(model, np.ones(3)))


def test_rows_that_are_fitted_exactly_say_so():
    W = np.c_[np.ones(20), np.arange(20.0)]
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=HalfNormal(1.0)), W), prior=fmx.Prior(fmx.Gaussian(5.0)))
    for x in (W @ [1.0, 2.0], np.zeros(20), np.full(20, 7.0)):
        with pytest.raises(fmx.ForestmixError, match="fitted exactly, so the data say that the noise is 0"):
            fit_scales(model, observations(model, x))


def test_without_data_it_is_the_prior():
    """All entries missing: the scale and the latents have their priors."""
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=HalfNormal(1.0)), np.ones((4, 2))), prior=fmx.Prior(fmx.Gaussian(3.0)))
    (fit,) = fit_scales(model, observations(model, np.full(4, np.nan)))
    assert fit.log_evidence == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(
        fit.scales[0].quantile([0.1, 0.5, 0.9]), HalfNormal(1.0).quantile([0.1, 0.5, 0.9]), rtol=1e-3
    )
    np.testing.assert_allclose(moments(fit), [[0, 0], [3, 3]], atol=1e-9)


def test_more_latents_than_rows():
    """The noise may go to 0, where the precision has no factor in double precision; that tail has no weight."""
    rng = np.random.default_rng(13)
    W, x = rng.standard_normal((5, 20)), rng.standard_normal(5)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=HalfNormal(1.0)), W), prior=fmx.Prior(fmx.Gaussian(5.0)))
    (fit,) = fit_scales(model, observations(model, x))
    theta = np.linspace(-15, 3, 1801)
    values = [fmx.log_evidence(model.with_scales([s]), x) for s in np.exp(theta)]
    values = np.array(values) + HalfNormal(1.0).log_density_of_log(theta)
    assert fit.log_evidence == pytest.approx(scipy.special.logsumexp(values) + np.log(0.01), abs=1e-4)


def test_flat_noise_is_bounded_by_the_data():
    rng = np.random.default_rng(9)
    W = rng.standard_normal((40, 2))
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=Flat()), W), prior=fmx.Prior(fmx.Gaussian(10.0)))
    (fit,) = fit_scales(model, observations(model, W @ [1.0, -1.0] + 0.5 * rng.standard_normal(40)))
    assert fit.scales[0].mean == pytest.approx(0.5, rel=0.3)


def test_many_scales_are_at_their_mode():
    rng = np.random.default_rng(10)
    taus = [HalfNormal(1.0) for _ in range(7)]
    model = fmx.DEF(
        fmx.Layer(fmx.Gaussian(0.3), rng.standard_normal((60, 14))), prior=fmx.Prior(fmx.Gaussian(taus * 2))
    )
    x = model.with_scales(np.full(7, 0.8)).sample(1).x
    (fit,) = fit_scales(model, observations(model, x))
    assert "7 unknown scales, more than the 6" in fit.message
    assert "uncertainty is left out" in fit.message
    objective = ScaleObjective(model, observations(model, x))
    assert np.max(np.abs(objective.evaluate(fit.thetas[0]).slope)) < 0.01
    assert all(scale.sd == 0 for scale in fit.scales)


def factorised(model, x):
    """The E step: mean field at known scales, started from the last one."""
    last = [None]

    def expect(known):
        result = last[0] = fmx.infer(known, x, tol=1e-8, init=last[0])
        return Expectation(np.atleast_2d(result.mean), np.atleast_2d(result.sd), float(np.sum(result.elbo)))

    return expect


@pytest.mark.parametrize("rows", [fmx.Gaussian(sd=HalfNormal(1.0)), fmx.Bernoulli()], ids=repr)
def test_variational_em_is_monotone_and_ends_at_the_mode(rows):
    rng = np.random.default_rng(11)
    model = groups_model(rows, rng, n=80, groups=6, tau=HalfNormal(1.0))
    count = len(model.unknown_scales)
    x = model.with_scales(np.full(count, 0.9)).sample(1).x
    data, expect = observations(model, x), factorised(model, x)
    mode = fit_scale_mode(model, data, expect)
    assert mode.converged
    assert np.min(np.diff(mode.trace)) > -1e-6
    assert "uncertainty is left out" in mode.message

    def objective(theta):
        priors = sum(scale.log_density_of_log(one) for scale, one in zip(model.unknown_scales, theta, strict=True))
        return priors + expect(model.with_scales(np.exp(theta))).elbo

    best = objective(np.log(mode.values))
    for step in 0.05 * np.concatenate([np.eye(count), -np.eye(count)]):
        assert objective(np.log(mode.values) + step) < best


def test_what_is_wrong():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.eye(2)))
    with pytest.raises(fmx.ArgumentError, match="model must have unknown scales"):
        fit_scales(model, observations(model, np.ones(2)))
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd=Flat()), np.eye(2)))
    with pytest.raises(fmx.ArgumentError, match="scales must be one of 'each', 'shared'; got 'all'"):
        fit_scales(model, observations(model, np.ones(2)), scales="all")
