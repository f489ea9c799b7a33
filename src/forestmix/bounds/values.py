"""The two bounds on log p(x), the gap between them, and how forest-like a model is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, total
from forestmix.bounds.auxiliary import Auxiliary, explicit_rows, require_one_gaussian_layer
from forestmix.engines.choice import choose_engine
from forestmix.errors import ArgumentError
from forestmix.model import DEF, Observations, observations
from forestmix.problem.given import as_layers
from forestmix.problem.make import make_problem
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
    data = observations(model, x)
    factors: Any = as_layers("q", q, model, data.x.shape[0])[0]
    if data.x.shape[0] != 1:
        raise ArgumentError(f"auxiliary goes with one observation; got x with {data.x.shape[0]}.")
    rows = explicit_rows(model, data, factors, auxiliary)
    prior = model.prior
    return float(total(rows) - total(factors.relative_entropy(prior.family, prior.bias))[0])


def gap(model: DEF, x: npt.ArrayLike, q: Any) -> Array:
    """Return ``E a(m_i + s_i z) - E a(m_i + sqrt(v_i) z) >= 0`` for each observed variable, (n,) or (N, n).

    Its sum is ``elbo - fm_bound`` (paper, section 6); a missing entry has none. For a deep model the variables of the
    latent layers that have parents follow those of x, the lowest layer first.
    """
    data = observations(model, x)
    (wide, at), (narrow, at_narrow) = (_problem(model, data, q, bound) for bound in ("fm", "elbo"))
    parts = [
        mine.gap(wide.place(at, k), other, narrow.place(at_narrow, k))
        for k, (mine, other) in enumerate(zip(wide.interfaces, narrow.interfaces, strict=True))
    ]
    difference = np.concatenate(parts, axis=1)
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
    problem, factors = _problem(model, data, q, objective)
    with np.errstate(all="ignore"):
        values = problem.evaluate(factors).objective
    return float(values[0]) if data.single else values


def _problem(model: DEF, data: Observations, q: Any, objective: str) -> tuple[Any, Any]:
    """Return the problem whose objective is a bound, in arrays of NumPy, and q in its form."""
    model = model.on_host()
    problem = make_problem(model, data, choose_engine("auto", model, len(data.x)), objective)
    return problem, problem.start(q, "q")
