"""Independent answers for deep models and latents of every family: dense joint algebra, enumeration, mpmath."""

import itertools

import mpmath
import numpy as np
from scipy import special

import forestmix as fmx


def deep_gaussian(rng, depth, n=9, low=2, high=6, dtype=np.float64):
    """A model with ``depth`` latent layers, and the arrays that it was made of."""
    sizes = [n, *(int(rng.integers(low, high)) for _ in range(depth))]
    W = [0.7 * rng.standard_normal((sizes[k], sizes[k + 1])) for k in range(depth)]
    b = [rng.standard_normal(sizes[k]) for k in range(depth)]
    sd = [rng.uniform(0.5, 1.5, sizes[k]) for k in range(depth)]
    top = rng.standard_normal(sizes[-1]), rng.uniform(0.5, 1.5, sizes[-1])
    layers = [fmx.Layer(fmx.Gaussian(s), w.astype(dtype), c) for s, w, c in zip(sd, W, b, strict=True)]
    return fmx.DEF(*layers, prior=fmx.Prior(fmx.Gaussian(top[1]), top[0])), (W, b, sd, top)


def deep_joint(W, b, sd, top):
    """Mean and covariance of (x, y^1, ..., y^L) by propagating noise from the top down."""
    L = len(W)
    means, maps = [top[0]], [np.diag(top[1])]
    noises = top[1].size
    for k in range(L - 1, -1, -1):
        means.insert(0, W[k] @ means[0] + b[k])
        own = np.zeros((W[k].shape[0], noises + W[k].shape[0]))
        own[:, :noises] = W[k] @ maps[0]
        own[:, noises:] = np.diag(sd[k])
        maps = [own, *(np.hstack([old, np.zeros((old.shape[0], W[k].shape[0]))]) for old in maps)]
        noises += W[k].shape[0]
    root = np.vstack(maps)
    return np.concatenate(means), root @ root.T


def deep_posterior(W, b, sd, top, x):
    """Exact posterior mean and covariance of all latents, and log p(x), by conditioning the joint Gaussian."""
    mean, covariance = deep_joint(W, b, sd, top)
    n = len(x)
    prior_x = covariance[:n, :n]
    gain = np.linalg.solve(prior_x, covariance[:n, n:]).T
    residual = x - mean[:n]
    evidence = -0.5 * (
        residual @ np.linalg.solve(prior_x, residual) + np.linalg.slogdet(prior_x)[1] + n * np.log(2 * np.pi)
    )
    return mean[n:] + gain @ residual, covariance[n:, n:] - gain @ covariance[:n, n:], evidence


def deep_fm_bound(W, b, sd, top, x, means, sds):
    """The paper's appendix C, term by term, with the epsilon and b_hat of Theorem 1 in every layer."""
    total = 0.0
    below = [(x, np.zeros_like(x)), *zip(means, sds, strict=True)]
    for k in range(len(W)):
        mu, sigma = means[k], sds[k]
        own_mean, own_sd = below[k]
        for i in range(W[k].shape[0]):
            spread = sum(abs(W[k][i, j]) * sigma[j] for j in range(len(mu)))
            eta = b[k][i] + W[k][i] @ mu
            for j in range(len(mu)):
                epsilon = abs(W[k][i, j]) * sigma[j] / spread
                b_hat = eta - W[k][i, j] * mu[j] / epsilon
                centre = b_hat + W[k][i, j] * mu[j] / epsilon
                square = (own_mean[i] - centre) ** 2 + own_sd[i] ** 2 + (W[k][i, j] * sigma[j] / epsilon) ** 2
                total += epsilon * (-0.5 * square / sd[k][i] ** 2 - np.log(sd[k][i]) - 0.5 * np.log(2 * np.pi))
        if k:
            total += np.sum(np.log(own_sd) + 0.5 * np.log(2 * np.pi * np.e))
    mu, sigma = means[-1], sds[-1]
    total += np.sum(-0.5 * ((mu - top[0]) ** 2 + sigma**2) / top[1] ** 2 - np.log(top[1]) - 0.5 * np.log(2 * np.pi))
    return total + np.sum(np.log(sigma) + 0.5 * np.log(2 * np.pi * np.e))


def binary_model(rng, rows, sizes, scale=0.8):
    """A model with Bernoulli latents of these sizes under rows of a family."""
    below = [8, *sizes[:-1]]
    layers = [
        fmx.Layer(
            rows if k == 0 else fmx.Bernoulli(),
            scale * rng.standard_normal((n, m)),
            0.3 * rng.standard_normal(n),
        )
        for k, (n, m) in enumerate(zip(below, sizes, strict=True))
    ]
    return fmx.DEF(*layers, prior=fmx.Prior(fmx.Bernoulli(), 0.5 * rng.standard_normal(sizes[-1])))


def log_row(family, x, eta):
    """log p(x | eta) of one row, from its textbook form."""
    if isinstance(family, fmx.Gaussian):
        return -0.5 * ((x - eta) / family.sd) ** 2 - np.log(family.sd) - 0.5 * np.log(2 * np.pi)
    if isinstance(family, fmx.Poisson):
        return x * eta - np.exp(eta) - special.gammaln(x + 1)
    trials = family.trials if isinstance(family, fmx.Binomial) else 1.0
    return np.log(special.comb(trials, x)) + x * eta - trials * np.logaddexp(0, eta)


def enumerated(model, x, probabilities=None):
    """log p(x) of a model with binary latents, and the ELBO at the given probabilities, by going over all states."""
    sizes = model.latent_sizes
    weights = [layer.weights.toarray() for layer in model.layers]
    biases = [np.broadcast_to(layer.bias, layer.size) for layer in model.layers]
    prior = np.broadcast_to(model.prior.bias, sizes[-1])
    flat = None if probabilities is None else np.concatenate(probabilities)
    logs, bound = [], 0.0
    for state in itertools.product((0.0, 1.0), repeat=sum(sizes)):
        y = np.split(np.array(state), np.cumsum(sizes)[:-1])
        joint = y[-1] @ prior - np.logaddexp(0, prior).sum()
        for k in range(len(sizes) - 1, 0, -1):
            eta = weights[k] @ y[k] + biases[k]
            joint += y[k - 1] @ eta - np.logaddexp(0, eta).sum()
        joint += np.sum(log_row(model.layers[0].family, x, weights[0] @ y[0] + biases[0]))
        logs.append(joint)
        if flat is not None:
            q = np.prod(np.where(np.array(state) == 1, flat, 1 - flat))
            bound += q * (joint - np.log(q)) if q > 0 else 0.0
    return np.logaddexp.reduce(logs), bound


def tilted_moments(log_density, support, discrete=False):
    """Mean, variance and log mass of a density given by its logarithm, with mpmath."""
    if discrete:
        terms = [(mpmath.mpf(y), mpmath.exp(log_density(mpmath.mpf(y)))) for y in support]
        mass = sum(w for _, w in terms)
        mean = sum(y * w for y, w in terms) / mass
        return mean, sum((y - mean) ** 2 * w for y, w in terms) / mass, mpmath.log(mass)

    def integral(f):
        return mpmath.quad(lambda y: f(y) * mpmath.exp(log_density(y)), support)

    mass = integral(lambda y: 1)
    mean = integral(lambda y: y) / mass
    return mean, integral(lambda y: (y - mean) ** 2) / mass, mpmath.log(mass)
