"""Generated Gaussian models: zero entries, rows and columns, duplicate columns, scales from 1e-6 to 1e6."""

from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np

import forestmix as fmx


class Case(NamedTuple):
    model: fmx.DEF
    W: np.ndarray
    b: np.ndarray
    sd: np.ndarray
    prior_mean: np.ndarray
    prior_sd: np.ndarray
    x: np.ndarray
    mean: np.ndarray
    q_sd: np.ndarray

    @property
    def q(self):
        return self.mean, self.q_sd


def power(rng, low, high, size):
    return 10 ** rng.uniform(low, high, size)


@st.composite
def gaussian_cases(draw, log_scale=6.0, max_rows=6, max_latents=5):
    """A model, an observation and factors q, all from one seed that hypothesis chooses and can shrink."""
    n, m = draw(st.integers(1, max_rows)), draw(st.integers(1, max_latents))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    W = rng.standard_normal((n, m)) * power(rng, -log_scale, log_scale, m)
    W[rng.random((n, m)) < draw(st.sampled_from([0.0, 0.3, 0.7]))] = 0
    if draw(st.booleans()):
        W[rng.integers(n)] = 0
    if draw(st.booleans()):
        W[:, rng.integers(m)] = 0
    if m > 1 and draw(st.booleans()):
        W[:, 0] = W[:, -1]
    moderate = min(log_scale, 3.0)
    b, sd = rng.standard_normal(n), power(rng, -moderate, moderate, n)
    prior_mean, prior_sd = rng.standard_normal(m), power(rng, -moderate, moderate, m)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd), W, b), prior=fmx.Prior(fmx.Gaussian(prior_sd), prior_mean))
    mean = prior_mean + prior_sd * rng.standard_normal(m)
    # q as narrow as the weights call for, or as wide as the prior: both ends of what an algorithm passes through.
    information = (W**2 / sd[:, None] ** 2).sum(axis=0)
    q_sd = (prior_sd**-2 + draw(st.sampled_from([0.0, 1.0])) * information) ** -0.5 * power(rng, -0.5, 0.5, m)
    x = b + W @ (prior_mean + prior_sd * rng.standard_normal(m)) + sd * rng.standard_normal(n)
    return Case(model, W, b, sd, prior_mean, prior_sd, x, mean, q_sd)
