"""Models with a known answer, and every algorithm that should reach it."""

import numpy as np

import forestmix as fmx
from support import oracles


def forest(rng, n=12, m=4):
    """Every row has one parent, so one step is exact."""
    W = np.zeros((n, m))
    W[np.arange(n), np.arange(n) % m] = rng.uniform(0.5, 2, n) * rng.choice([-1, 1], n)
    return W


def two_blocks(rng, n=10, m=6):
    """Two sets of latents with no row in common."""
    W = np.zeros((n, m))
    W[: n // 2, : m // 2] = rng.standard_normal((n // 2, m // 2))
    W[n // 2 :, m // 2 :] = rng.standard_normal((n - n // 2, m - m // 2))
    return W, [range(m // 2), range(m // 2, m)]


def model_of(W, rng, dtype=np.float64):
    """A model with parameters per variable, an observation, and the exact posterior."""
    n, m = W.shape
    b, sd = rng.standard_normal(n), rng.uniform(0.5, 2.0, n)
    prior_mean, prior_sd = rng.standard_normal(m), rng.uniform(0.5, 2.0, m)
    model = fmx.DEF(
        fmx.Layer(fmx.Gaussian(sd), W.astype(dtype), b), prior=fmx.Prior(fmx.Gaussian(prior_sd), prior_mean)
    )
    x = model.sample(rng).x
    mean, covariance = oracles.posterior(W, b, sd, prior_mean, prior_sd, x)
    mean_field_sd = (prior_sd**-2 + (W**2 / sd[:, None] ** 2).sum(axis=0)) ** -0.5
    return model, x, mean, covariance, mean_field_sd


def monotone_algorithms(m, blocks=None):
    """Algorithms whose objective must never fall; ``blocks`` only where they share no rows."""
    thirds = [list(part) for part in np.array_split(np.arange(m), 3) if len(part)]
    algorithms = {
        "fm, paper": fmx.ForestMixture(objective="fm", accelerate=False),
        "fm, elbo": fmx.ForestMixture(objective="elbo", accelerate=False),
        "fm, paper, accelerated": fmx.ForestMixture(objective="fm", accelerate=True),
        "fm, elbo, accelerated": fmx.ForestMixture(objective="elbo", accelerate=True),
        "groups, paper": fmx.ForestMixture(objective="fm", groups=thirds),
        "groups, elbo": fmx.ForestMixture(objective="elbo", groups=thirds),
        "groups of one": fmx.ForestMixture(groups=[[j] for j in range(m)]),
        "one group": fmx.ForestMixture(groups=[range(m)]),
        "cavi, cyclic": fmx.CAVI(),
        "cavi, random": fmx.CAVI(order="random"),
        "cavi, greedy": fmx.CAVI(order="greedy"),
        "blocks, found": fmx.BlockCoordinate(),
    }
    if blocks is not None:
        algorithms["blocks"] = fmx.BlockCoordinate(blocks)
        algorithms["blocks, random"] = fmx.BlockCoordinate(blocks, order="random")
        algorithms["hogwild, synchronous"] = fmx.Hogwild(blocks, synchronous=True)
        algorithms["hogwild, threads"] = fmx.Hogwild(blocks)
    return algorithms
