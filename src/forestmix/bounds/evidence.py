"""The exact evidence of Gaussian models, and of models with few binary latents, as a reference for the bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import Bernoulli, Gaussian
from forestmix.model import DEF, Observations, observations

#: Pairs of states of two neighbouring layers of binary latents that are summed over at most.
MOST_STATES = 2**22


def log_evidence(model: DEF, x: npt.ArrayLike) -> float | Array:
    """Return the exact ``log p(x)`` where there is one, for reference.

    A Gaussian model of any depth: ``x ~ N(b + W mu0, diag(sd^2) + W diag(sd0^2) W^T)``, with the noise of every layer
    carried down to x. It takes a dense factorisation with the smaller of n and the number of latents in columns, so it
    is for models where that side has at most some thousand variables.

    A model whose latents are all Bernoulli, with rows of any family: a sum over all states, layer by layer, for layers
    of at most a dozen or so.

    Returns:
        A float, or (N,) for a batch.

    """
    data = observations(model, x)
    if all(isinstance(family, Bernoulli) for family in model.latent_families):
        values = _binary_evidence(model, data)
    else:
        values = _gaussian_evidence(model, data)
    return float(values[0]) if data.single else values


def _gaussian_evidence(model: DEF, data: Observations) -> Array:
    for family in (model.layers[0].family, *model.latent_families):
        if not isinstance(family, Gaussian):
            raise ArgumentError(
                "model must have Gaussian rows and latents, or Bernoulli latents, for an exact evidence; "
                f"got {family!r}."
            )
    rows: Any = model.layers[0].family
    mean, columns = _carried_down(model)
    residual = data.x.astype(np.float64) - mean
    scale = np.broadcast_to(rows.row_sd, residual.shape).astype(np.float64)
    # What w log N(x; eta, sd^2) has beyond log N(x; eta, sd^2 / w).
    excess = (1 - rows.weight) * (np.log(rows.sd) + 0.5 * np.log(2 * np.pi)) - 0.5 * np.log(rows.weight)
    constant = np.broadcast_to(excess, residual.shape)
    there = np.ones(residual.shape, bool) if data.observed is None else data.observed
    # One factor serves all observations that have the same rows.
    alike = data.observed is None and np.ndim(rows.row_sd) < 2
    values = np.empty(len(residual))
    for chosen in np.split(np.arange(len(residual)), [] if alike else np.arange(1, len(residual))):
        seen, sd = there[chosen[0]], scale[chosen[0]][there[chosen[0]]]
        density = _gaussian_log_density(residual[chosen][:, seen] / sd, columns[seen] / sd[:, None], sd)
        values[chosen] = density + np.sum(constant[chosen[0]][seen])
    return values


def _carried_down(model: DEF) -> tuple[Array, Array]:
    """Return the mean of x, and the columns through which each latent's own noise reaches x."""
    mean = np.broadcast_to(model.prior.bias, model.latent_sizes[-1]).astype(np.float64)
    noise = np.diag(np.broadcast_to(model.prior.family.sd, model.latent_sizes[-1]).astype(np.float64))
    for k in range(len(model.layers) - 1, -1, -1):
        layer = model.layers[k]
        W = layer.weights.toarray().astype(np.float64)
        mean, noise = W @ mean + layer.bias, W @ noise
        if k:
            own = np.diag(np.broadcast_to(layer.family.sd, layer.size).astype(np.float64))  # type: ignore[attr-defined]
            noise = np.hstack([noise, own])
    return mean, noise


def _binary_evidence(model: DEF, data: Observations) -> Array:
    """Sum over the states of the topmost layer first, for every state of the one below it, and so on down."""
    sizes = model.latent_sizes
    work = max(2 ** (a + b) for a, b in zip((*sizes, 0), (0, *sizes), strict=True))
    if work > MOST_STATES:
        raise ArgumentError(f"model must have few Bernoulli latents for an exact evidence; got layers of {sizes}.")
    states = [(np.arange(2**size)[:, None] >> np.arange(size)) & 1 for size in sizes]
    bias = np.broadcast_to(model.prior.bias, sizes[-1]).astype(np.float64)
    weight = states[-1] @ bias - np.sum(np.logaddexp(0, bias))
    for k in range(len(sizes) - 1, 0, -1):
        eta = model.layers[k].weights.forward(states[k].astype(np.float64)) + model.layers[k].bias
        below = states[k - 1] @ eta.T - np.sum(np.logaddexp(0, eta), axis=1)
        weight = scipy.special.logsumexp(below + weight, axis=1)
    layer = model.layers[0]
    eta = layer.weights.forward(states[0].astype(np.float64)) + layer.bias
    values = []
    for k, x in enumerate(data.x):
        own = layer.family.take_observations(np.array([k]))
        rows = own.expectations(x[None], eta, np.zeros(())).log_likelihood
        observed = True if data.observed is None else data.observed[k]
        values.append(scipy.special.logsumexp(weight + np.sum(np.where(observed, rows, 0.0), axis=1)))
    return np.array(values)


def _gaussian_log_density(residual: Array, loadings: Array, scale: Array) -> Array:
    """Return ``log N(scale * residual; 0, S (I + A A^T) S)`` of each row, with S = diag(scale) and A the loadings.

    The triangular factor of ``I + A^T A`` comes from a QR factorisation of A stacked on I, which does not square the
    condition number as a Cholesky factorisation would.
    """
    n, m = loadings.shape
    if n < m:
        # Square loadings with the same product A A^T.
        loadings = scipy.linalg.qr(loadings.T, mode="r")[0][:n].T
    factor = scipy.linalg.qr(np.vstack([loadings, np.eye(min(n, m))]), mode="r", overwrite_a=True)[0][: min(n, m)]
    # The distance as a sum of squares at the posterior mean y, ||r - A y||^2 + ||y||^2, so that nothing cancels.
    half = scipy.linalg.solve_triangular(factor, loadings.T @ residual.T, trans="T")
    posterior = scipy.linalg.solve_triangular(factor, half)
    distance = np.sum((residual.T - loadings @ posterior) ** 2, axis=0) + np.sum(posterior**2, axis=0)
    log_determinant = np.sum(np.log(np.abs(np.diag(factor)))) + np.sum(np.log(scale))
    return -0.5 * distance - log_determinant - 0.5 * n * np.log(2 * np.pi)
