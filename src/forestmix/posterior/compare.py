"""Comparing models by how well they predict rows that are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.posterior.loo import LeaveOneOut, standard_error
from forestmix.posterior.table import Table

#: What a mixture of models may still gain, in nats a case, and the steps that this may take at most.
STACKED, MOST_STEPS = 1e-6, 5000


def compare(models: Mapping[str, Any]) -> Table:
    """Return a table of models by their expected log predictive density, the best first.

    Differences are to the best, with standard errors from the differences of each row: rows that are hard for every
    model cancel. One of a few standard errors or less, or of less than about 4, says that the data do not tell the
    models apart (Sivula et al., *Uncertainty in Bayesian leave-one-out cross-validation based model comparison*, 2020).
    Weights are those of the mixture of the models that predicts the rows left out best (stacking; Yao et al., *Using
    stacking to average Bayesian predictive distributions*, 2018).

    Args:
        models: by name, a ``Posterior`` or another object that has ``loo()``, or what that returned; all of the same
            observations.

    Returns:
        A ``Table`` with columns ``elpd``, ``difference``, ``se of difference``, ``weight``, ``se`` and ``untrusted``, a
        number of rows.

    """
    if not isinstance(models, Mapping) or not models:
        raise ArgumentError(f'models must be a dictionary such as {{"name": posterior}}; got {type(models).__name__}.')
    found = {str(name): _loo(name, model) for name, model in models.items()}
    first_name, first = next(iter(found.items()))
    for name, one in found.items():
        if one.fingerprint != first.fingerprint:
            raise ArgumentError(
                f"models must be fitted to the same observations to be compared; {first_name!r} has "
                f"{len(first.pointwise)} rows, and {name!r} has {len(one.pointwise)} that are not the same. Their "
                "order, trials and case weights are part of them."
            )
    order = sorted(found, key=lambda name: -found[name].elpd)
    best = found[order[0]]
    differences = [found[name].pointwise - best.pointwise for name in order]
    columns = {
        "elpd": [found[name].elpd for name in order],
        "difference": [float(np.sum(one)) for one in differences],
        "se of difference": [0.0, *(standard_error(one) for one in differences[1:])],
        "weight": stacking(np.stack([found[name].pointwise for name in order]), best.weights),
        "se": [found[name].se for name in order],
        "untrusted": [len(found[name].untrusted) for name in order],
    }
    title = f"Expected log predictive density, leaving one of {len(best.pointwise)} rows out"
    return Table(order, columns, title)


def stacking(pointwise: Array, weights: Array | float = 1.0) -> Array:
    """Return the weights of models, (K,), that make ``sum_i c_i log sum_k w_k p_k(x_i)`` greatest.

    By expectation and maximisation, ``w_k <- w_k g_k`` with ``g_k`` the mean over cases of ``p_k(x_i) / p(x_i)``, which
    ends where no ``g_k`` is above 1: the sum is then within ``max_k g_k - 1`` nats a case of its greatest.

    Args:
        pointwise: ``c_i log p_k(x_i)``, the rows left out, (K, n).
        weights: ``c_i`` of the cases, (n,), or one number.

    """
    cases = np.broadcast_to(weights, pointwise.shape[1])
    some = cases > 0
    cases, logs = cases[some] / np.sum(cases), pointwise[:, some] / cases[some]
    densities = np.exp(logs - np.max(logs, axis=0, initial=-np.inf))
    found = np.full(len(pointwise), 1 / len(pointwise))
    for _ in range(MOST_STEPS):
        gain = densities @ (cases / (found @ densities))
        found = found * gain
        if np.max(gain) <= 1 + STACKED:
            break
    return found / np.sum(found)


def _loo(name: object, model: Any) -> LeaveOneOut:
    if isinstance(model, LeaveOneOut):
        return model
    found = model.loo() if callable(getattr(model, "loo", None)) else None
    if not isinstance(found, LeaveOneOut):
        raise ArgumentError(f"models[{name!r}] must be a Posterior or have loo(); got {type(model).__name__}.")
    return found
