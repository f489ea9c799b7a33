"""What a Gaussian q leaves out, against quadrature over the effects of groups and an intercept on fine grids."""

import numpy as np
import pytest
import scipy.sparse
import scipy.special

import forestmix as fmx
from forestmix.engines.rows import row_data
from forestmix.model import observations
from forestmix.posterior import remainder as remainder_file
from forestmix.posterior.integrate import fit_scales
from forestmix.posterior.remainder import remainder
from forestmix.scales import HalfNormal
from support.posterior_models import fit_full

FAMILIES = {"bernoulli": fmx.Bernoulli(), "binomial": fmx.Binomial(5), "poisson": fmx.Poisson()}


def log_likelihood(name, x, eta):
    if name == "poisson":
        return x * eta - np.exp(eta) - scipy.special.gammaln(x + 1)
    trials = 5 if name == "binomial" else 1
    return x * eta - trials * np.logaddexp(0, eta) + np.log(scipy.special.binom(trials, x))


class Groups:
    """An intercept N(0, 1), and groups of equal size with effects N(0, tau^2)."""

    def __init__(self, name, groups, size, tau, seed):
        rng = np.random.default_rng(seed)
        self.name, self.groups, level = name, groups, np.repeat(np.arange(groups), size)
        eta = 0.5 * rng.standard_normal() + tau * rng.standard_normal(groups)[level]
        share = scipy.special.expit(eta)
        drawn = {
            "poisson": lambda: rng.poisson(np.exp(eta)),
            "bernoulli": lambda: rng.binomial(1, share),
            "binomial": lambda: rng.binomial(5, share),
        }
        self.x = drawn[name]().astype(float)
        Z = scipy.sparse.csr_array((np.ones(len(level)), (np.arange(len(level)), level)))
        self.W = scipy.sparse.csr_array(scipy.sparse.hstack([np.ones((len(level), 1)), Z]))

    def model(self, tau):
        prior = fmx.Prior(fmx.Gaussian(sd=[1.0, *[tau] * self.groups]))
        return fmx.DEF(fmx.Layer(FAMILIES[self.name], self.W), prior=prior)

    def exact(self, tau):
        """Log evidence, and sds of intercept and effects, by sums over grids of both."""
        b, z = np.linspace(-5, 5, 71), np.linspace(-7, 7, 113)
        x = self.x.reshape(self.groups, -1)
        values, first, second = [], [], []
        for one in b:
            terms = sum(log_likelihood(self.name, column[:, None], one + tau * z) for column in x.T) - 0.5 * z**2
            totals = scipy.special.logsumexp(terms, axis=1)
            weights = np.exp(terms - totals[:, None])
            values.append(np.sum(totals) - 0.5 * one**2)
            first.append(weights @ (tau * z))
            second.append(weights @ (tau * z) ** 2)
        total = scipy.special.logsumexp(values)
        weights = np.exp(values - total)
        means, squares = (weights @ np.c_[b**k, part] for k, part in ((1, first), (2, second)))
        steps = self.groups * np.log(z[1] - z[0]) + np.log(b[1] - b[0])
        return total + steps - 0.5 * (1 + self.groups) * np.log(2 * np.pi), np.sqrt(squares - means**2)


CASES = [
    (name, size, tau, seed)
    for name, size in (("bernoulli", 2), ("bernoulli", 9), ("binomial", 2), ("poisson", 2), ("poisson", 8))
    for tau in (0.4, 1.0, 2.0)
    for seed in (0, 1)
]


@pytest.mark.parametrize(("name", "size", "tau", "seed"), CASES)
def test_evidence_and_sds_of_groups(name, size, tau, seed):
    case = Groups(name, 8, size, 1.0, seed)
    model = case.model(tau)
    data = observations(model, case.x)
    (fit,) = fit_full(model, data)
    found = remainder(row_data(model.layers[0], data), fit)
    exact, sds = case.exact(tau)
    before, after = exact - fit.elbo, exact - fit.elbo - found.evidence
    assert before > 0
    assert abs(after) < 0.25 * before + 1e-4
    own, wider = fit.covariance.variance(), fit.covariance.widened(found).variance()
    errors = [np.max(np.abs(np.sqrt(one) / sds - 1)) for one in (own, wider)]
    assert errors[1] < 0.4 * errors[0] + 1e-3


def test_without_elimination_it_is_nearly_the_same():
    """Dense columns: coordinates are others, so only what is of order 3 is the same to the last digit."""
    case = Groups("poisson", 6, 12, 0.6, 3)
    found = []
    for W in (case.W, case.W.toarray() + 1e-300):
        model = fmx.DEF(fmx.Layer(fmx.Poisson(), W), prior=fmx.Prior(fmx.Gaussian(sd=[1.0, *[0.6] * 6])))
        data = observations(model, case.x)
        (fit,) = fit_full(model, data)
        one = remainder(row_data(model.layers[0], data), fit)
        found.append((one.evidence, *fit.covariance.widened(one).variance()))
    np.testing.assert_allclose(*found, rtol=0.01)


def test_gaussian_rows_leave_nothing_out():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.random.default_rng(0).standard_normal((9, 3))))
    data = observations(model, np.arange(9.0))
    (fit,) = fit_full(model, data)
    found = remainder(row_data(model.layers[0], data), fit)
    assert found.evidence == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(found.rest, np.eye(3), atol=1e-12)


def test_what_is_too_large_for_terms_that_mix_keeps_those_of_groups(monkeypatch):
    case = Groups("bernoulli", 16, 4, 1.0, 5)
    model = case.model(1.0)
    data = observations(model, case.x)
    (fit,) = fit_full(model, data)
    rows = row_data(model.layers[0], data)
    whole = remainder(rows, fit)
    for limit in ("MOST_PRODUCTS", "MOST_QUADRATURE", "MOST_ENTRIES"):
        monkeypatch.setattr(remainder_file, limit, 0)
    part = remainder(rows, fit)
    assert 0.7 * whole.evidence < part.evidence < whole.evidence
    assert len(part.rest) == 0
    assert (part.block <= whole.block).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_posterior_of_the_log_scale(name):
    """One unknown sd of ten groups, beside the exact evidence on a grid of it."""
    case, prior = Groups(name, 10, 3, 0.8, 11), HalfNormal(1.0)
    theta = np.linspace(-9, 2, 45)
    values = [case.exact(tau)[0] + prior.log_density_of_log(np.log(tau)) for tau in np.exp(theta)]
    total = scipy.special.logsumexp(values)
    weights = np.exp(values - total)
    mean = weights @ theta
    sd = np.sqrt(weights @ (theta - mean) ** 2)
    model = case.model(prior)
    (fit,) = fit_scales(model, observations(model, case.x))
    assert fit.log_evidence == pytest.approx(total + np.log(0.25), abs=0.003)
    assert fit.scales[0].log_mean == pytest.approx(mean, abs=0.005 * sd)
    assert fit.scales[0].log_sd == pytest.approx(sd, rel=0.01)
