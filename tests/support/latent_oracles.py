"""Coordinate ascent and evidence for latents under Gaussian rows, by quadrature, sums and closed forms of their own.

Nothing here is forestmix's: half lines are integrated numerically, so that what cancels in a formula cannot cancel.
"""

import itertools
import math

import numpy as np
from scipy import special

NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)
FEW_NODES, FEW_WEIGHTS = np.polynomial.legendre.leggauss(30)


class HalfLine:
    """``exp(-H y^2 / 2 + h y)`` on ``y >= 0``: log of its integral, mean, variance and entropy, by Gauss-Legendre."""

    def __init__(self, H, h):
        mode = max(h / H, 0.0)
        width = 1 / max(math.sqrt(H), -h)
        low, high = max(mode - 14 * width, 0.0), mode + (40 if h < 0 else 14) * width
        # Distances from the mode, so that a narrow factor far out keeps its digits.
        parts = [(low - mode, 0.0), (0.0, high - mode)] if mode > low else [(0.0, 0.25 * high), (0.25 * high, high)]
        z = np.concatenate([0.5 * (b - a) * NODES + 0.5 * (a + b) for a, b in parts])
        w = np.concatenate([0.5 * (b - a) * WEIGHTS for a, b in parts])
        exponent = -0.5 * H * z**2 + (h - H * mode) * z
        p = w * np.exp(exponent)
        mass = p.sum()
        p /= mass
        offset = p @ z
        self.mean, self.variance = mode + offset, p @ (z - offset) ** 2
        self.entropy = math.log(mass) - p @ exponent
        self.log_mass = math.log(mass) - 0.5 * H * mode**2 + h * mode


def entropy_of_coin(logit):
    p = special.expit(logit)
    return special.entr(p) + special.entr(special.expit(-logit))


def exponential(parameters, H, h):
    """Mean, variance and divergence of the factor ``p(y) exp(-H y^2 / 2 + h y)``, as of all that follow."""
    (rate,) = parameters
    line = HalfLine(H, h - rate)
    return line.mean, line.variance, rate * line.mean - math.log(rate) - line.entropy


def laplace(parameters, H, h):
    scale, location = parameters
    h = h - H * location
    up, down = HalfLine(H, h - 1 / scale), HalfLine(H, -h - 1 / scale)
    logit = up.log_mass - down.log_mass
    p, r = special.expit(logit), special.expit(-logit)
    mean = p * up.mean - r * down.mean
    variance = p * up.variance + r * down.variance + p * r * (up.mean + down.mean) ** 2
    divergence = (p * up.mean + r * down.mean) / scale + math.log(2 * scale)
    return location + mean, variance, divergence - p * up.entropy - r * down.entropy - entropy_of_coin(logit)


def spike_slab(parameters, H, h):
    inclusion, sd = parameters
    v = 1 / (H + sd**-2)
    mean = v * h
    logit = special.logit(inclusion) + 0.5 * v * h**2 + 0.5 * math.log(v / sd**2)
    p, r = special.expit(logit), special.expit(-logit)
    slab = 0.5 * (mean**2 + v) / sd**2 - 0.5 - 0.5 * math.log(v / sd**2)
    coin = -p * math.log(inclusion) - r * math.log1p(-inclusion) - entropy_of_coin(logit)
    return p * mean, p * (v + r * mean**2), coin + p * slab


def bernoulli(parameters, H, h):
    (eta,) = parameters
    logit = eta - 0.5 * H + h
    p, r = special.expit(logit), special.expit(-logit)
    divergence = p * np.logaddexp(0, -eta) + r * np.logaddexp(0, eta) - entropy_of_coin(logit)
    return p, p * r, divergence


def poisson(parameters, H, h):
    (eta,) = parameters
    y = np.arange(400.0)
    log_prior = y * eta - math.exp(eta) - special.gammaln(y + 1)
    log_q = log_prior - 0.5 * H * y**2 + h * y
    log_q -= special.logsumexp(log_q)
    q = np.exp(log_q)
    mean = q @ y
    return mean, q @ (y - mean) ** 2, np.sum(np.where(q > 0, q * (log_q - log_prior), 0.0))


def sweep(factor, parameters, W, noise, x, mean):
    """Return the means after one round of exact updates, and the ELBO there."""
    m = len(mean)
    mean, variance, divergence = mean.copy(), np.zeros(m), np.zeros(m)
    H = np.sum(W**2, axis=0) / noise**2
    residual = x - W @ mean
    for j in range(m):
        h = H[j] * mean[j] + W[:, j] @ residual / noise**2
        new, variance[j], divergence[j] = factor(parameters, H[j], h)
        residual -= W[:, j] * (new - mean[j])
        mean[j] = new
    fit = -0.5 * np.sum((x - W @ mean) ** 2) / noise**2 - len(x) * (math.log(noise) + 0.5 * math.log(2 * math.pi))
    return mean, fit - 0.5 * H @ variance - divergence.sum()


def coordinate_ascent(factor, parameters, W, noise, x, mean, sweeps):
    """Return the ELBO after so many rounds."""
    for _ in range(sweeps):
        mean, value = sweep(factor, parameters, W, noise, x, mean)
    return value


def log_normal(x, variance):
    return -0.5 * x**2 / variance - 0.5 * math.log(2 * math.pi * variance)


def log_evidence(name, parameters, W, noise, x):
    """The evidence of a model with one or two latents."""
    if name == "spike_slab":
        return _mixture_evidence(parameters, W, noise, x)
    if name in ("bernoulli", "poisson"):
        return _counted_evidence(name, parameters, W, noise, x)
    return _half_line_evidence(name, parameters, W, noise, x)


def _mixture_evidence(parameters, W, noise, x):
    inclusion, sd = parameters
    terms = []
    for on in itertools.product([0, 1], repeat=W.shape[1]):
        V = W * np.array(on)
        # log N(x; 0, noise^2 + sd^2 V V^T) through the small matrix of latents, which keeps its digits.
        A = np.eye(len(on)) + (sd / noise) ** 2 * V.T @ V
        pull = V.T @ x / noise
        distance = x @ x / noise**2 - (sd / noise) ** 2 * pull @ np.linalg.solve(A, pull)
        log_det = np.linalg.slogdet(A)[1] + 2 * len(x) * math.log(noise)
        prior = sum(math.log(inclusion if k else 1 - inclusion) for k in on)
        terms.append(prior - 0.5 * (distance + log_det + len(x) * math.log(2 * math.pi)))
    return special.logsumexp(terms)


def _counted_evidence(name, parameters, W, noise, x):
    (eta,) = parameters
    values = np.arange(2.0 if name == "bernoulli" else 250.0)
    log_prior = values * eta - (np.logaddexp(0, eta) if name == "bernoulli" else math.exp(eta))
    log_prior = log_prior - (0 if name == "bernoulli" else special.gammaln(values + 1))
    grids = np.meshgrid(*[np.arange(len(values))] * W.shape[1], indexing="ij")
    places = np.stack([grid.ravel() for grid in grids], axis=1)
    error = (x - values[places] @ W.T) / noise
    fit = -0.5 * np.sum(error**2, axis=1) - len(x) * (math.log(noise) + 0.5 * math.log(2 * math.pi))
    return special.logsumexp(fit + log_prior[places].sum(axis=1))


def _half_line_evidence(name, parameters, W, noise, x):
    """Sum over signs; one latent in closed form, of the other a log-concave integral found by golden section."""
    constant = -len(x) * (math.log(noise) + 0.5 * math.log(2 * math.pi))
    rate = parameters[0] if name == "exponential" else 1 / parameters[0]
    signs = [1.0] if name == "exponential" else [1.0, -1.0]
    log_rate = math.log(rate) if name == "exponential" else math.log(rate / 2)
    terms = []
    for flip in itertools.product(signs, repeat=W.shape[1]):
        V = W * np.array(flip) / noise

        def inner(u, V=V):
            """Log of the integral over the last latent, given the first one."""
            r = x / noise - (V[:, 0] * u if V.shape[1] == 2 else 0.0)
            last = V[:, -1]
            return HalfLine(last @ last, last @ r - rate).log_mass - 0.5 * r @ r + log_rate

        terms.append(
            inner(0.0) if V.shape[1] == 1 else _integral(lambda u, inner=inner: inner(u) - rate * u + log_rate)
        )
    return constant + special.logsumexp(terms)


def _integral(log_density):
    """Log of the integral over ``u >= 0`` of a log-concave density."""
    grid = np.concatenate([[0.0], np.logspace(-7, 5, 241)])
    values = np.array([log_density(u) for u in grid])
    best = int(np.argmax(values))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    for _ in range(90):
        a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
        low, high = (low, b) if log_density(a) > log_density(b) else (a, high)
    mode = 0.5 * (low + high)
    top = log_density(mode)

    def reach(sign):
        """How far the density stays above exp(-45) of its top."""
        step = 1e-9 * max(mode, 1e-3)
        while mode + sign * step > 0 and log_density(mode + sign * step) > top - 45:
            step *= 1.3
        return min(step, mode) if sign < 0 else step

    terms = []
    for end in (-reach(-1), reach(1)):
        for a, b in itertools.pairwise(end * np.array([0.0, 1e-3, 0.01, 0.05, 0.2, 0.5, 1.0])):
            z = 0.5 * (b - a) * FEW_NODES + 0.5 * (a + b)
            f = np.array([log_density(max(mode + u, 0.0)) for u in z]) - top
            terms.append(0.5 * abs(b - a) * FEW_WEIGHTS @ np.exp(f))
    return top + math.log(sum(terms))
