"""The auxiliary parameters of the forest mixture bound, and the bound's rows at any choice of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array, finite, in_precision, numbers
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.latents import GaussianFactors
from forestmix.model import DEF, Observations
from forestmix.problem.given import as_layers
from forestmix.weights import Weights


@dataclass(frozen=True)
class Auxiliary:
    """The auxiliary parameters of the forest mixture bound, both n x m, dense or sparse like W.

    ``epsilon``: each row lies on the simplex, and says how much each parent stands for the row (a row of W without
    parents has none); ``b_hat``: the bias of each parent, with ``sum_j epsilon_ij b_hat_ij = b_i``.
    """

    epsilon: Any
    b_hat: Any


def optimal_auxiliary(model: DEF, q: Any) -> Auxiliary:
    """Return the auxiliary parameters that maximise the bound at q, for one observation (paper, Theorem 1).

    ``epsilon_ij = |w_ij| sigma_j / s_i`` and ``b_hat_ij = m_i - w_ij mu_j / epsilon_ij``, which is
    ``m_i - sgn(w_ij) s_i mu_j / sigma_j`` and so is finite however small ``epsilon_ij`` is.
    """
    require_one_gaussian_layer(model, "optimal_auxiliary")
    (factors,) = as_layers("q", q, model, 1)
    weights, bias = model.layers[0].weights, model.layers[0].bias
    mean, sd = factors.mean[0], factors.sd[0]
    spread = abs(weights).forward(sd)
    eta = weights.forward(mean) + bias
    i, j, w = weights.entries()
    epsilon = np.abs(w) * sd[j] / spread[i]
    b_hat = eta[i] - np.sign(w) * spread[i] * mean[j] / sd[j]
    return Auxiliary(weights.like(i, j, epsilon), weights.like(i, j, b_hat))


def require_one_gaussian_layer(model: DEF, name: str) -> None:
    """Raise unless the model has one layer of Gaussian latents, for which the optimum has a closed form."""
    if not isinstance(model, DEF):
        raise ArgumentError(f"model must be a forestmix.DEF; got {type(model).__name__}.")
    if len(model.layers) > 1 or not isinstance(model.prior.family, Gaussian):
        raise ArgumentError(
            f"{name} is for models with one layer of Gaussian latents; got {len(model.layers)} layers of latents with "
            f"{model.prior.family!r} on top. Use fm_bound(model, x, q), which finds the best parameters of any model."
        )


def explicit_rows(model: DEF, data: Observations, q: GaussianFactors, auxiliary: Auxiliary) -> Array:
    """Return ``sum_j epsilon_ij E log p_hat(x_i | y_j)`` of each row, 0 where x is missing (paper, equation 3).

    ``p_hat`` has the natural parameter ``b_hat_ij + w_ij y_j / epsilon_ij``. A row without parents contributes its
    log-likelihood at ``b_i``; a parent with ``epsilon_ij = 0`` but ``w_ij != 0`` makes the bound minus infinity.
    """
    layer, b = model.layers[0], np.broadcast_to(model.layers[0].bias, model.n_observed)
    check_auxiliary(auxiliary)
    used = _entries("epsilon", auxiliary.epsilon, layer.weights)
    i, j = used.tocoo().coords
    others = _entries("b_hat", auxiliary.b_hat, layer.weights), layer.weights.rows()
    # SciPy answers an empty selection with a sparse array rather than a dense one.
    b_hat, w = (np.asarray(matrix[i, j]) if len(i) else np.zeros(0, layer.dtype) for matrix in others)
    parents = layer.weights.support().forward(np.ones(layer.n_parents, layer.dtype))
    sizes = np.abs(b) + abs(layer.weights).forward(np.abs(q.mean[0]))
    _check_rows(i, used.data, b_hat, b, parents, sizes)
    mean, spread = b_hat + w * q.mean[0, j] / used.data, np.abs(w) * q.sd[0, j] / used.data
    terms = used.data * layer.family.take(i).expectations(data.x[0, i], mean, spread).log_likelihood
    rows = np.bincount(i, terms, minlength=layer.size).astype(layer.dtype)
    alone = layer.family.expectations(data.x[0], b, np.zeros_like(b)).log_likelihood
    rows = np.where(np.bincount(i, minlength=layer.size) == 0, alone, rows)
    left_out = np.bincount(i[w != 0], minlength=layer.size) < parents
    rows = np.where(left_out, np.array(-np.inf, layer.dtype), rows)
    return rows if data.observed is None else np.where(data.observed[0], rows, np.zeros((), layer.dtype))


def check_auxiliary(auxiliary: Any) -> None:
    """Raise unless auxiliary parameters are an ``Auxiliary``."""
    if not isinstance(auxiliary, Auxiliary):
        raise ArgumentError(
            f"auxiliary must be a forestmix.Auxiliary(epsilon, b_hat) or None; got {type(auxiliary).__name__}."
        )


def _check_rows(i: Array, epsilon: Array, b_hat: Array, b: Array, parents: Array, sizes: Array) -> None:
    """Raise unless epsilon of every row lies on the simplex, and ``sum_j epsilon_ij b_hat_ij = b_i``.

    A row without parents may have none. ``i`` are the rows of epsilon and b_hat. The optimal b_hat is a difference of
    terms of these ``sizes``, ``|b_i| + sum_j |w_ij mu_j|``, and rounded accordingly.
    """
    if len(epsilon) and epsilon.min() < 0:
        raise ArgumentError(f"auxiliary.epsilon must not be negative; got {epsilon.min()}.")
    parts, tolerance = epsilon * b_hat, 1e4 * float(np.finfo(epsilon.dtype).eps)
    total, split, scale = (np.bincount(i, part, len(b)) for part in (epsilon, parts, np.abs(parts)))
    wrong = ((parents > 0) | (total > 0)) & (np.abs(total - 1) > tolerance)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ArgumentError(f"auxiliary.epsilon must have rows that sum to 1; row {row} sums to {total[row]}.")
    wrong = (total > 0) & (np.abs(split - b) > tolerance * (scale + sizes))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ArgumentError(
            f"auxiliary.b_hat must satisfy sum_j epsilon_ij b_hat_ij = b_i; in row {row} the sum is {split[row]} "
            f"and b is {b[row]}."
        )


def _entries(name: str, value: Any, weights: Weights) -> scipy.sparse.csr_array:
    """Return a parameter as a sparse matrix of its entries that are not zero."""
    array: Any = value if scipy.sparse.issparse(value) else numbers(f"auxiliary.{name}", value)
    if array.shape != weights.shape:
        raise ArgumentError(f"auxiliary.{name} must have the shape of W, {weights.shape}; got {array.shape}.")
    matrix = scipy.sparse.csr_array(array)
    matrix.data = in_precision(f"auxiliary.{name}", finite(f"auxiliary.{name}", matrix.data), weights.dtype)
    matrix.eliminate_zeros()
    return matrix
