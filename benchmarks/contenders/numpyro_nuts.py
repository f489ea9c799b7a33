"""NUTS of NumPyro on a ``Regression``: the reference that posteriors are held to, with its Monte Carlo errors.

NUTS is given favourable conditions: float64, a dense mass matrix for up to 150 variables, a likelihood that needs one
product with X and one with its transpose, and for effects of groups the parametrisation that mixes well
(``Regression.divided``), with short steps, which accept 99 %, so that the narrow part of its funnel is reached. Two
chains run one after another. After 1000 transitions of warm-up they draw blocks of 1000 until Monte Carlo errors are
small; when the usual time is up a third of what posteriors are held to will do. Times are CPU seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.problems.bayesian import Array, Regression

SEED, CHAINS, BLOCK = 0, 2, 1000
#: The share of proposals that step sizes are adapted to accept: usually, and where scales are divided out.
ACCEPT, ACCEPT_DIVIDED = 0.8, 0.99
#: Up to this many variables the mass matrix is dense.
DENSE_MASS = 150
#: Blocks are added until the Monte Carlo standard errors of means, in sds, and of sds are below these.
MEAN_ERROR, SD_ERROR = 0.01, 0.008
#: When the usual time is up, these will do: a third of the errors that latents are allowed.
LARGER_MEAN_ERROR, LARGER_SD_ERROR = 0.05 / 3, 0.05 / 3


@dataclass(frozen=True)
class Reference:
    """What NUTS found: latents first, then the logarithms of the scales; how sure it is, and how long it took."""

    mean: Array
    sd: Array
    mean_error: Array
    sd_error: Array
    r_hat: float
    divergences: int
    draws: int
    compile_seconds: float
    usual_seconds: float

    def within(self, mean_error: float, sd_error: float) -> bool:
        """Return whether the Monte Carlo errors of all means and sds are smaller than these."""
        return bool(self.mean_error.max() < mean_error and self.sd_error.max() < sd_error)


def log_density(problem: Regression) -> tuple[Callable[[Any], Any], Callable[[Any], Any], int]:
    """Return the log posterior of a vector of free variables, what turns it into latents and log scales, its length."""
    import jax.numpy as jnp

    X, x = jnp.asarray(problem.X), jnp.asarray(problem.x)
    groups = [jnp.asarray(group) for group in problem.groups.values()]
    p, noise, ends = X.shape[1], problem.family == "gaussian", np.cumsum([0, *problem.levels])
    total = p + ends[-1]
    centred = [name not in problem.divided for name in problem.groups]

    def latents(free: Any) -> tuple[Any, list[Any], Any]:
        theta = free[total:]
        effects = [free[p + ends[k] : p + ends[k + 1]] for k in range(len(groups))]
        return free[:p], effects, theta

    def density(free: Any) -> Any:
        beta, effects, theta = latents(free)
        value = -0.5 * beta @ beta - 0.5 * jnp.sum(jnp.exp(2 * theta)) + jnp.sum(theta)
        eta = problem.offset + X @ beta
        for k, (group, effect) in enumerate(zip(groups, effects, strict=True)):
            tau = theta[noise + k]
            scaled = effect * jnp.exp(-tau) if centred[k] else effect
            value += -0.5 * scaled @ scaled - (problem.levels[k] * tau if centred[k] else 0.0)
            eta += (effect if centred[k] else effect * jnp.exp(tau))[group]
        return value + _likelihood(problem, x, eta, theta)

    def output(free: Any) -> Any:
        beta, effects, theta = latents(free)
        shown = [u if centred[k] else u * jnp.exp(theta[noise + k]) for k, u in enumerate(effects)]
        return jnp.concatenate([beta, *shown, theta])

    return density, output, int(total) + len(problem.scale_names)


def _likelihood(problem: Regression, x: Any, eta: Any, theta: Any) -> Any:
    import jax.numpy as jnp

    if problem.family == "gaussian":
        return -0.5 * jnp.sum((x - eta) ** 2) * jnp.exp(-2 * theta[0]) - len(x) * theta[0]
    if problem.family == "poisson":
        return x @ eta - jnp.sum(jnp.exp(eta))
    trials = 1.0 if problem.trials is None else jnp.asarray(problem.trials)
    return x @ eta - jnp.sum(trials * jnp.logaddexp(eta, 0.0))


def compiled_chains(problem: Regression) -> tuple[Any, Any]:
    """Return the chains' first states and the compiled function that takes them ``BLOCK`` transitions further."""
    import jax
    from numpyro.infer.hmc import hmc
    from numpyro.util import fori_collect

    density, output, size = log_density(problem)
    initial, transition = hmc(lambda free: -density(free), algo="NUTS")

    def start(key: Any) -> Any:
        free = 0.1 * jax.random.normal(key, (size,))
        accept = ACCEPT_DIVIDED if problem.divided else ACCEPT
        return initial(free, num_warmup=BLOCK, dense_mass=size <= DENSE_MASS, rng_key=key, target_accept_prob=accept)

    def advance(state: Any) -> Any:
        def seen(now: Any) -> Any:
            return output(now.z), now.diverging

        return fori_collect(0, BLOCK, transition, state, seen, progbar=False, return_last_val=True)

    states = jax.lax.map(start, jax.random.split(jax.random.key(SEED), CHAINS))
    return states, jax.jit(lambda states: jax.lax.map(advance, states)).lower(states).compile()


def run_nuts(problem: Regression, most_seconds: float) -> Reference:
    """Return the reference, from as many blocks of draws as its precision takes, or as the CPU time allows."""
    import jax

    jax.config.update("jax_enable_x64", True)
    times = [time.process_time()]
    states, advance = compiled_chains(problem)
    times.append(time.process_time())
    _, states = jax.block_until_ready(advance(states))  # the warm-up
    blocks, divergences = [], 0
    while True:
        (draws, diverging), states = jax.block_until_ready(advance(states))
        times.append(time.process_time())
        blocks.append(np.asarray(draws))
        divergences += int(np.sum(diverging))
        reference = summary(np.concatenate(blocks, axis=1), divergences, times)
        spent = times[-1] - times[1]
        enough = reference.within(MEAN_ERROR, SD_ERROR) or (
            spent >= most_seconds and reference.within(LARGER_MEAN_ERROR, LARGER_SD_ERROR)
        )
        if enough or spent >= most_seconds * problem.patience:
            return reference


def summary(draws: Array, divergences: int, times: list[float]) -> Reference:
    """Return the reference that ``draws`` (chains, draws, variables) make, with its Monte Carlo errors."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    squares = (draws - mean) ** 2
    effective, of_squares = effective_sample_size(draws), effective_sample_size(squares)
    return Reference(
        mean,
        sd,
        mean_error=effective**-0.5,
        sd_error=squares.std(axis=(0, 1)) / (2 * sd**2 * np.sqrt(of_squares)),
        r_hat=float(np.max(split_gelman_rubin(draws))),
        divergences=divergences,
        draws=draws.shape[0] * draws.shape[1],
        compile_seconds=times[1] - times[0],
        usual_seconds=times[2] - times[1],
    )
