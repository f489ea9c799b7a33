"""The two bounds on log p(x), the gap between them, and how forest-like a model is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, total
from forestmix.bounds.auxiliary import Auxiliary, explicit_rows, require_one_gaussian_layer
from forestmix.engines.choice import choose_engine
from forestmix.engines.reference import mean_field_spread
from forestmix.errors import ArgumentError
from forestmix.latents import GaussianFactors
from forestmix.model import DEF, Observations, observations
from forestmix.problem.flat import Stacked
from forestmix.problem.gaussian import GaussianProblem
from forestmix.problem.given import as_factors, as_layers
from forestmix.problem.interfaces import LayeredFactors, Stack, has_gaussian_latents
from forestmix.weights import as_weights


def elbo(model: DEF, x: npt.ArrayLike, q: Any) -> float | Array:
    """Return the evidence lower bound ``E_q log p(x, y) + H(q)`` of factors q (paper, section 4 and appendix C).

    Args:
        model: the model.
        x: one observation (n,) or a batch (N, n); NaN marks a missing entry.
        q: a ``Result``, or a pair ``(mean, sd)``; for a deep model one entry for each latent layer, see ``infer``.

    Returns:
        A float, or (N,) for a batch.

    """
    return _bound(model, x, q, "elbo")


def fm_bound(model: DEF, x: npt.ArrayLike, q: Any, auxiliary: Auxiliary | None = None) -> float | Array:
    """Return the forest mixture bound (paper, equation 4) of mean-field factors q.

    Args:
        model: the model.
        x: one observation (n,) or a batch (N, n); NaN marks a missing entry.
        q: a ``Result``, or a pair ``(mean, sd)``; for a deep model one entry for each latent layer, see ``infer``.
        auxiliary: explicit auxiliary parameters, for one observation; the optimal ones of Theorem 1 when left out.

    Returns:
        A float, or (N,) for a batch.

    """
    if auxiliary is None:
        return _bound(model, x, q, "fm")
    require_one_gaussian_layer(model, "auxiliary")
    data, factors = _checked(model, x, q)
    if data.x.shape[0] != 1:
        raise ArgumentError(f"auxiliary goes with one observation; got x with {data.x.shape[0]}.")
    rows = explicit_rows(model, data, factors, auxiliary)
    return float(total(rows) - factors.divergence(model.prior)[0])


def gap(model: DEF, x: npt.ArrayLike, q: Any) -> Array:
    """Return ``E a(m_i + s_i z) - E a(m_i + sqrt(v_i) z) >= 0`` for each observed variable, (n,) or (N, n).

    Its sum is ``elbo - fm_bound`` (paper, section 6); a missing entry has none. For a deep model the variables of the
    latent layers that have parents follow those of x, the lowest layer first.
    """
    data = observations(model, x)
    if not has_gaussian_latents(model):
        difference = _excesses(model, data, q, "fm") - _excesses(model, data, q, "elbo")
        return np.array(difference[0] if data.single else difference)
    problem, factors = _gaussian(model, data, q, "fm")
    wide, narrow = problem.row_spread(factors.sd), mean_field_spread(problem.weights, factors.sd)
    eta = problem.weights.forward(factors.mean) + problem.layer.bias
    difference = np.broadcast_to(problem.family.log_partition_gap(eta, wide, narrow), eta.shape)
    if problem.data.observed is not None:
        difference = np.where(problem.data.observed, difference, np.zeros((), eta.dtype))
    return np.array(difference[0] if data.single else difference)


def forest_likeness(W: Any) -> float:
    """Return how forest-like the weights are: 1 for a forest, towards 0 as the supports of columns overlap.

    With the columns scaled to length one, ``u_j = |w_j| / ||w_j||``, it is::

        sum_j ||u_j||^2 / || sum_j u_j ||^2  =  1 / (1 + mean_j sum_{k != j} u_j . u_k)

    over the columns that are not zero: the reciprocal of one plus the average overlap of a column with all others. The
    overlaps ``|w_j| . |w_k|`` are what the paper calls forest-like when small (section 6). It is the ratio of the two
    sums of squares in the paper's gap when every column has the same length. It is 1 exactly if every row has at most
    one parent, does not change when columns are scaled or rows or columns permuted, and is at least 1 / m.
    """
    weights = as_weights(W)
    length = np.sqrt(weights.square().adjoint(np.ones(weights.shape[0], weights.dtype)).astype(np.float64))
    used = length > 0
    if not used.any():
        return 1.0
    scale = np.divide(1.0, length, out=np.zeros_like(length), where=used).astype(weights.dtype)
    parents = weights.support().forward(np.ones(weights.shape[1], weights.dtype))
    total = abs(weights).forward(scale).astype(np.float64)
    own = weights.square().forward(scale**2).astype(np.float64)
    overlap = np.sum(np.where(parents > 1, np.maximum(total**2 - own, 0), 0.0))
    return float(1 / (1 + overlap / used.sum()))


def _bound(model: DEF, x: npt.ArrayLike, q: Any, objective: str) -> float | Array:
    data = observations(model, x)
    if not has_gaussian_latents(model):
        stack, layers = _stacked(model, data, q, objective)
        return _shaped(stack.bound(layers)[0], data)
    problem, factors = _gaussian(model, data, q, objective)
    with np.errstate(all="ignore"):
        return _shaped(problem.evaluate(factors).objective, data)


def _stacked(model: DEF, data: Observations, q: Any, objective: str) -> tuple[Stack, LayeredFactors]:
    """Return the interfaces of a model whose latents are not all Gaussian, and q with the best auxiliary parameters."""
    stack = Stack(model, data, objective)
    layers = tuple(part.expanded(len(data.x)) for part in as_layers("q", q, model, len(data.x)))
    return stack, stack.with_auxiliary(layers, solve=True)


def _excesses(model: DEF, data: Observations, q: Any, objective: str) -> Array:
    """Return the excesses of all rows, those of x first and then those of each latent layer that has parents."""
    stack, layers = _stacked(model, data, q, objective)
    parts = zip(stack.interfaces, layers.layers, layers.auxiliary, strict=True)
    return np.concatenate([interface.excess(own, auxiliary) for interface, own, auxiliary in parts], axis=1)


def _gaussian(model: DEF, data: Observations, q: Any, objective: str) -> tuple[GaussianProblem, GaussianFactors]:
    """Return the problem of a model with Gaussian latents, and q in its form."""
    model = model.on_host()
    layers: Any = as_layers("q", q, model, data.x.shape[0])
    stacked, engine = Stacked(model), choose_engine("auto", model, len(data.x))
    return GaussianProblem(stacked, data, engine, objective), stacked.stacked(layers)


def _checked(model: DEF, x: npt.ArrayLike, q: Any) -> tuple[Observations, GaussianFactors]:
    data = observations(model, x)
    return data, as_factors("q", q, model, data.x.shape[0])


def _shaped(values: Array, data: Observations) -> float | Array:
    return float(values[0]) if data.single else values
