"""Small forest mixtures, planted forests, and independent answers by enumeration and quadrature."""

import itertools

import numpy as np
from scipy import special, stats

import forestmix as fmx

#: The trapezoidal rule on it is exact to rounding for smooth functions that vanish at both ends.
GRID = np.linspace(-10, 10, 2001)


def small(family, rng, n=4, m=2, parents="shared"):
    """A forest mixture small enough to enumerate every forest."""
    weights = rng.standard_normal((n, m)) * (0.5 if family == "poisson" else 1.0)
    prior = rng.dirichlet(np.ones(m), n)
    return fmx.ForestMixtureModel.from_parameters(
        weights,
        rng.standard_normal((n, m)) * 0.5,
        noise=rng.uniform(0.5, 1.5, (n, m)),
        parent_prior=prior,
        family=family,
        parents=parents,
    )


def log_density(model, x, i, j, y):
    """log p_hat(x_i | y_j) from scipy.stats."""
    eta = model.biases_[i, j] + model.weights_[i, j] * y
    if model.family == "gaussian":
        return stats.norm.logpdf(x, eta, model.noise_[i, j])
    if model.family == "bernoulli":
        return stats.bernoulli.logpmf(int(x), special.expit(eta))
    return stats.poisson.logpmf(int(x), np.exp(eta))


def log_given_parents(model, x, parents):
    """log p(x | forest) of one observation: an integral over each latent, by the trapezoidal rule."""
    total = 0.0
    for j in set(parents):
        children = [i for i in range(len(x)) if parents[i] == j and not np.isnan(x[i])]
        if children:
            values = stats.norm.logpdf(GRID) + sum(log_density(model, x[i], i, j, GRID) for i in children)
            total += special.logsumexp(values) + np.log(GRID[1] - GRID[0])
    return total


def log_evidence(model, X):
    """The exact log-likelihood of all observations: a sum over every forest, shared or of each observation."""
    n, m = model.weights_.shape
    forests = list(itertools.product(range(m), repeat=n))
    prior = [sum(np.log(model.parent_prior_[i, e[i]]) for i in range(n)) for e in forests]
    given = np.array([[log_given_parents(model, x, e) for e in forests] for x in X])
    if model.parents == "shared":
        return special.logsumexp(prior + given.sum(axis=0))
    return special.logsumexp(prior + given, axis=1).sum()


def planted(n, m, N, share, seed, family="gaussian"):
    """Data from a forest: X, the parents, the weights."""
    rng = np.random.default_rng(seed)
    parents = rng.permutation(np.arange(n) % m)
    w = rng.uniform(0.7, 1.3, n) * rng.choice([-1, 1], n) * share
    eta = rng.standard_normal((N, m))[:, parents] * w
    draw = {"gaussian": fmx.Gaussian(), "bernoulli": fmx.Bernoulli(), "poisson": fmx.Poisson()}[family]
    return draw.sample(eta, rng), parents, w
