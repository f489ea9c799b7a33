"""Models with rows of each family, and their linear response by dense linear algebra and adaptive quadrature."""

import numpy as np
from scipy import integrate, stats

import forestmix as fmx
from forestmix.families import Bernoulli, Binomial, Poisson
from forestmix.posterior.full import FullProblem

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
    """``(diag(1/sigma0^2) + W^T diag(kappa) W)^-1``, with every expectation by adaptive quadrature."""
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


def fit_full(model, data, init=None):
    """The Gaussian q with full covariance of each observation."""
    return FullProblem(model, data).at(model).fit(init)
