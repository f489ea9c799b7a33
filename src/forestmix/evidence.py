"""The exact evidence of a Gaussian model, as a reference for the bounds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.model import DEF, observations
from forestmix.posterior import prior_sd


def log_evidence(model: DEF, x: npt.ArrayLike) -> float | Array:
    """Return the exact ``log p(x)`` of a Gaussian model, for reference.

    ``x ~ N(b + W mu0, diag(sd^2) + W diag(sd0^2) W^T)``. It takes a dense factorisation
    with the smaller of n and m columns, so it is for models where that side has at most some thousand variables.

    Returns:
        A float, or (N,) for a batch.

    """
    data = observations(model, x)
    layer = model.layers[0]
    if not isinstance(layer.family, Gaussian):
        raise ArgumentError(f"model must have Gaussian rows for an exact evidence; got {layer.family!r}.")
    bias = layer.bias + layer.weights.forward(np.broadcast_to(model.prior.bias, model.n_latent))
    whitened = ((data.x - bias) / layer.family.sd).astype(np.float64)
    scale = np.broadcast_to(layer.family.sd, model.n_observed).astype(np.float64)
    loadings = layer.weights.toarray().astype(np.float64) * prior_sd(model.prior) / scale[:, None]
    if data.observed is None:
        values = _gaussian_log_density(whitened, loadings, scale)
    else:
        rows = zip(whitened, data.observed, strict=True)
        values = np.array([_gaussian_log_density(r[None, o], loadings[o], scale[o])[0] for r, o in rows])
    return float(values[0]) if data.single else values


def _gaussian_log_density(residual: Array, loadings: Array, scale: Array) -> Array:
    """Return ``log N(scale * residual; 0, S (I + A A^T) S)`` of each row, with S = diag(scale) and A the loadings.

    The triangular factor of ``I + A^T A`` comes from a QR factorisation of A stacked on I, which does not square the
    condition number as a Cholesky factorisation would.
    """
    n, m = loadings.shape
    if n < m:
        factor = _stacked_factor(loadings.T)
        distance = np.sum(scipy.linalg.solve_triangular(factor, residual.T, trans="T") ** 2, axis=0)
    else:
        # The distance as a sum of squares at the posterior mean y, ||r - A y||^2 + ||y||^2, so that nothing cancels.
        factor = _stacked_factor(loadings)
        half = scipy.linalg.solve_triangular(factor, loadings.T @ residual.T, trans="T")
        posterior = scipy.linalg.solve_triangular(factor, half)
        distance = np.sum((residual.T - loadings @ posterior) ** 2, axis=0) + np.sum(posterior**2, axis=0)
    log_determinant = np.sum(np.log(np.abs(np.diag(factor)))) + np.sum(np.log(scale))
    return -0.5 * distance - log_determinant - 0.5 * n * np.log(2 * np.pi)


def _stacked_factor(matrix: Array) -> Array:
    """Return R with ``R^T R = I + A^T A``."""
    size = matrix.shape[1]
    return scipy.linalg.qr(np.vstack([matrix, np.eye(size)]), mode="r", overwrite_a=True)[0][:size]
