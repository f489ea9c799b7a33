"""The compiled engine: the formulas of ``engines.reference`` in one reading of W, on threads.

One observation over a dense W or a sparse one by rows takes one pass over W. All else takes products before the rows
and products after them, with the terms of the rows compiled in between.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.compiled import rows as row_kernels
from forestmix.engines.compiled import threaded
from forestmix.engines.compiled.passes import has_pass, normal_pass, one_pass
from forestmix.engines.compiled.products import products_of
from forestmix.engines.compiled.rows import RowTable, quadratic_rows, row_table, terms_of_rows
from forestmix.engines.compiled.sweeping import CoordinateSweeps
from forestmix.engines.products import Products
from forestmix.engines.protocol import Capability, Moments, RowTerms, Spread, Statistics, Want
from forestmix.engines.reference import ReferenceEngine
from forestmix.families.expectations import quiet
from forestmix.model import Layer, Observations
from forestmix.weights.base import Weights
from forestmix.weights.storage import SparseStorage

_SPREADS = {
    Spread.NONE: row_kernels.NO_SPREAD,
    Spread.ABSOLUTE: row_kernels.ABSOLUTE_SPREAD,
    Spread.SQUARED: row_kernels.SQUARED_SPREAD,
}


class CompiledEngine(CoordinateSweeps, ReferenceEngine):
    """Weights in NumPy's or SciPy's arrays, compiled by Numba; what is not one pass is as in the reference engine."""

    name = "compiled"
    capabilities = frozenset({Capability.SWEEP})

    def observe(self, layer: Layer, observations: Observations) -> RowTable:
        """Return the rows with their data."""
        return row_table(layer, observations)

    def products(self, weights: Weights, count: int) -> Products:
        """Return how products with W are made for so many observations."""
        return products_of(weights, count)

    @quiet
    def statistics(
        self, layer: Layer, rows: RowTable, q: Moments, want: Want, spread: Spread | Any
    ) -> tuple[Statistics, RowTerms]:
        """Return the sums over rows that are wanted at q, and the terms of the rows."""
        storage = layer.weights.storage()
        if len(q.mean) > 1 or not isinstance(spread, Spread) or not has_pass(storage):
            return super().statistics(layer, rows, q, want, spread)
        found = one_pass(
            storage, rows, _plain(layer, q.mean[0]), _plain(layer, q.sd[0]),
            spreads=spread is not Spread.NONE or Want.CURVATURE in want, spread=_SPREADS[spread],
            sums=3 if Want.INFORMATION in want else 2 if Want.CURVATURE in want else int(Want.GRADIENT in want),
        )  # fmt: skip
        terms = RowTerms(*(term[np.newaxis] for term in found[2:]))
        return Statistics.of(want, found.totals[:1], found.totals[1:], *found.sums[:, np.newaxis]), terms

    @quiet
    def row_terms(self, rows: RowTable, image: Array, spread: Array) -> tuple[Array, Array, RowTerms]:
        """Return the bound and the size of its terms, (N,) each, and the terms of rows; ``image`` is ``W mean``."""
        eta = np.array(image, order="C")
        error, kappa, (count, n) = np.empty_like(eta), np.empty_like(eta), eta.shape
        totals, spread = np.zeros((2, count)), np.require(spread, np.float64, ["C", "W"])
        number = threaded.threads(threaded.ENTRIES_OF_ROW * n)
        for k in range(count):
            parts, found = np.zeros((number, 2)), (eta[k], error[k], kappa[k])
            given = rows.observation(k), spread[k if len(spread) > 1 else 0], found, rows.terms
            threaded.over_ranges(terms_of_rows, threaded.even_cuts(n, number), *given, parts=[parts])
            totals[:, k] = parts.sum(axis=0)
        return *totals, RowTerms(eta, error, kappa[:1] if rows.shares_curvature else kappa)

    @quiet
    def curvatures(self, layer: Layer, kappa: Array, sd: Array, want: Want) -> tuple[Any, Any]:
        """Return ``D_j sigma_j`` and ``H_j`` at given ``kappa``, of the two those that are wanted."""
        storage, curvature, information = layer.weights.storage(), Want.CURVATURE in want, Want.INFORMATION in want
        if len(kappa) > 1 or len(sd) > 1 or not (curvature or information) or not has_pass(storage):
            return super().curvatures(layer, kappa, sd, want)
        # A pass over quadratic rows with these factors; at a mean of 0 they have no gradient.
        width = _plain(layer, sd[0])
        found = one_pass(
            storage, quadratic_rows(kappa[0]), np.zeros_like(width), width,
            spreads=curvature, spread=row_kernels.NO_SPREAD, sums=3 if information else 2,
        )  # fmt: skip
        return found.sums[1:2] if curvature else None, found.sums[2:3] if information else None

    @quiet
    def normal_product(self, layer: Layer, kappa: Array, p: Array) -> tuple[Array, Array]:
        """Return ``W^T K W p``, (N, m), and ``p^T W^T K W p``, (N,).

        In one pass over a dense W they are minus the gradient, and minus twice the value, of the quadratic rows
        ``-kappa_i eta_i^2 / 2`` at ``eta = W p``.
        """
        storage = layer.weights.storage()
        if len(p) > 1 or not has_pass(storage):
            return super().normal_product(layer, kappa, p)
        direction = _plain(layer, p[0])
        if isinstance(storage, SparseStorage):
            return normal_pass(storage, _plain(layer, kappa[0]), direction)
        found = one_pass(
            storage, quadratic_rows(kappa[0]), direction, direction,
            spreads=False, spread=row_kernels.NO_SPREAD, sums=1,
        )  # fmt: skip
        return -found.sums[:1], -2 * found.totals[:1]


def _plain(layer: Layer, array: Any) -> Array:
    """Return a vector as kernels take it, of one entry where one serves all."""
    return np.atleast_1d(np.require(array, layer.dtype, ["C", "W"]))
