"""What effects are drawn for: one standard deviation of their column, so that columns on any scale can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from forestmix.arrays import Array

if TYPE_CHECKING:
    from forestmix.regression.fit import Fit

#: Below this share of its size, the spread of a column is rounding: the column is constant.
CONSTANT = 1e-6


def units_of(fit: Fit) -> Array:
    """Return by what the entries of ``fit.summary()`` are multiplied: first fixed effects, then scales.

    The sd of the column, and 1 for columns of 0 and 1, for constants and for scales of the predictor; the scale of the
    slopes of a group has the sd of the column that the slopes are of.
    """
    weights = fit.model.layers[0].weights.in_double()
    given = None if fit.cases.weights is None else fit.cases.weights[~np.isnan(fit.cases.response)]
    share = np.full(weights.shape[0], 1 / weights.shape[0]) if given is None else given / np.sum(given)
    n_fixed = fit.design.n_fixed
    fixed = _units(weights.adjoint(share)[:n_fixed], weights.square().adjoint(share)[:n_fixed])
    blocks = {block.name: block for block in fit.design.blocks}
    scales = []
    for name in fit.priors.unknown:
        unit = np.ones(1)
        if name in blocks and blocks[name].levels is not None:
            inside = np.zeros(weights.shape[1])
            inside[blocks[name].columns] = 1
            column = weights.forward(inside)
            unit = _units(share[None] @ column, share[None] @ column**2)
        elif name in blocks and blocks[name].size == 1:
            unit = fixed[blocks[name].columns]
        scales.append(float(unit[0]))
    return np.array([*fixed, *scales])


def _units(mean: Array, square: Array) -> Array:
    """Return the units of columns by their means and mean squares; those of a column of 0 and 1 are the same."""
    sd = np.sqrt(np.maximum(square - mean**2, 0))
    plain = np.isclose(mean, square, rtol=1e-9, atol=0) | (sd <= CONSTANT * np.abs(mean))
    return np.where(plain, 1.0, sd)
