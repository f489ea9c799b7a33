"""The problem of latents of several families: what it says of a point, besides the bound."""

import numpy as np
import pytest

import forestmix as fmx
from forestmix.engines.reference import ReferenceEngine
from forestmix.model import observations
from forestmix.problem.make import make_problem


@pytest.mark.parametrize("widened", [1.0, 4.0])
def test_the_gradient_norm_is_the_larger_of_all_moves_and_all_errors_of_variances(widened):
    """Gaussian latents below binary ones: the former's variances do not hide the latter's moves, nor add to them."""
    rng = np.random.default_rng(0)
    V, prior = rng.standard_normal((3, 2)), rng.standard_normal(2)
    lower, upper = fmx.Layer(fmx.Gaussian(0.6), np.eye(3)), fmx.Layer(fmx.Gaussian(0.8), V)
    model = fmx.DEF(lower, upper, prior=fmx.Prior(fmx.Bernoulli(), prior))
    x, mean, p = rng.standard_normal(3), rng.standard_normal(3), rng.uniform(0.2, 0.8, 2)
    precision = 0.6**-2 + 0.8**-2
    sd = widened * precision**-0.5
    problem = make_problem(model, observations(model, x), ReferenceEngine(), "elbo")
    q = problem.start(((mean, np.full(3, sd)), p))
    # Each latent by itself: a normal with what x and the latents above say of it, and a coin.
    goal = (x * 0.6**-2 + V @ p * 0.8**-2) / precision
    away = mean[:, None] - (V @ p)[:, None] + V * p
    coin = 1 / (1 + np.exp(-(prior + 0.8**-2 * np.sum(V * away - V**2 / 2, axis=0))))
    coin_sd = np.maximum(np.sqrt(coin * (1 - coin)), np.sqrt(p * (1 - p)))
    moves = np.sum(((goal - mean) / np.maximum(sd, precision**-0.5)) ** 2) + np.sum(((coin - p) / coin_sd) ** 2)
    errors = 3 * (sd**2 * precision - 1) ** 2
    expected = np.sqrt(max(moves, errors) / 5)
    assert problem.gradient_norm(problem.evaluate(q)) == pytest.approx(expected, rel=1e-10)
