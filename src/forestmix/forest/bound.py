"""The forest mixture behind a forest mixture bound (paper, section 4.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.bounds.auxiliary import Auxiliary, check_auxiliary, optimal_auxiliary
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.forest.covariance import dense
from forestmix.forest.parameters import ForestParameters
from forestmix.model import DEF


def forest_of_bound(model: DEF, q: Any, auxiliary: Auxiliary | None = None) -> ForestParameters:
    """Return the forest mixture with ``pi = epsilon`` and ``eta_hat_ij = b_hat_ij + w_ij y_j / epsilon_ij``.

    This is section 4.1 of the paper: its ELBO at ``q(y)`` and ``q(e) = epsilon`` is the forest mixture bound. A
    variable without parents in the model has weight 0 to every tree, so that its parent does not matter.
    """
    if not isinstance(model, DEF):
        raise ArgumentError(f"model must be a forestmix.DEF; got {type(model).__name__}.")
    layer, prior = model.layers[0], model.prior
    if not isinstance(prior.family, Gaussian):
        raise ArgumentError(f"model must have a Gaussian prior; got {prior.family!r}.")
    if auxiliary is None:
        auxiliary = optimal_auxiliary(model, q)
    check_auxiliary(auxiliary)
    epsilon, b_hat, w = (dense(part).astype(np.float64) for part in (auxiliary.epsilon, auxiliary.b_hat, layer.weights))
    n, m = w.shape
    if epsilon.shape != w.shape or b_hat.shape != w.shape:
        raise ArgumentError(
            f"auxiliary must have epsilon and b_hat of the shape of W, {w.shape}; "
            f"got {epsilon.shape} and {b_hat.shape}."
        )
    used = epsilon > 0
    alone: Array = ~np.any(used, axis=1, keepdims=True)
    bias = np.where(alone, np.broadcast_to(layer.bias, n)[:, None].astype(float), np.where(used, b_hat, 0.0))
    weights = np.divide(w, epsilon, out=np.zeros_like(w), where=used)
    chances = np.where(alone, 1 / m, epsilon)
    noise = None
    if isinstance(layer.family, Gaussian):
        noise = np.broadcast_to(np.broadcast_to(layer.family.sd, n).astype(float)[:, None], (n, m)).copy()
    centre, sd = (np.broadcast_to(part, m).astype(float) for part in (prior.bias, prior.family.sd))
    return ForestParameters(layer.family, weights, bias, chances, noise, centre, Gaussian(sd))
