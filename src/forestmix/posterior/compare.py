"""Comparing models by how well they predict rows that are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from forestmix.errors import ArgumentError
from forestmix.posterior.loo import LeaveOneOut, standard_error
from forestmix.posterior.table import Table


def compare(models: Mapping[str, Any]) -> Table:
    """Return a table of models by their expected log predictive density, the best first.

    Differences are to the best, with standard errors from the differences of each row: rows that are hard for every
    model cancel. One of a few standard errors or less, or of less than about 4, says that the data do not tell the
    models apart (Sivula et al., *Uncertainty in Bayesian leave-one-out cross-validation based model comparison*, 2020).

    Args:
        models: by name, a ``Posterior`` or another object that has ``loo()``, or what that returned; all of the same
            observations.

    Returns:
        A ``Table`` with columns ``elpd``, ``difference``, ``se of difference``, ``se`` and ``untrusted``, a number of
        rows.

    """
    if not isinstance(models, Mapping) or not models:
        raise ArgumentError(f'models must be a dictionary such as {{"name": posterior}}; got {type(models).__name__}.')
    found = {str(name): _loo(name, model) for name, model in models.items()}
    first_name, first = next(iter(found.items()))
    for name, one in found.items():
        if one.fingerprint != first.fingerprint:
            raise ArgumentError(
                f"models must be fitted to the same observations to be compared; {first_name!r} has "
                f"{len(first.pointwise)} rows, and {name!r} has {len(one.pointwise)} that are not the same."
            )
    order = sorted(found, key=lambda name: -found[name].elpd)
    best = found[order[0]]
    differences = [found[name].pointwise - best.pointwise for name in order]
    columns = {
        "elpd": [found[name].elpd for name in order],
        "difference": [float(np.sum(one)) for one in differences],
        "se of difference": [0.0, *(standard_error(one) for one in differences[1:])],
        "se": [found[name].se for name in order],
        "untrusted": [len(found[name].untrusted) for name in order],
    }
    title = f"Expected log predictive density, leaving one of {len(best.pointwise)} rows out"
    return Table(order, columns, title)


def _loo(name: object, model: Any) -> LeaveOneOut:
    if isinstance(model, LeaveOneOut):
        return model
    found = model.loo() if callable(getattr(model, "loo", None)) else None
    if not isinstance(found, LeaveOneOut):
        raise ArgumentError(f"models[{name!r}] must be a Posterior or have loo(); got {type(model).__name__}.")
    return found
