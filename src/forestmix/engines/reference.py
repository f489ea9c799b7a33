"""The formulas of the method as they are written, with two products before the rows and up to three after them.

This is the engine to read beside the paper; it runs arrays of any library where they are, and small problems without
compiling anything. For each row i, with ``q_j = N(mu_j, sigma_j^2)``::

    m_i = b_i + sum_j w_ij mu_j                    mean of eta_i
    s_i = sum_j |w_ij| sigma_j                     spread of the forest mixture bound
    v_i = sum_j w_ij^2 sigma_j^2                   variance of eta_i, which the ELBO has
    e_i = t(x_i) - E a'(m_i + r_i z)               kappa_i = E a''(m_i + r_i z),  r_i = s_i or sqrt(v_i)
"""

from __future__ import annotations

from typing import Any

import array_api_compat

from forestmix.arrays import total
from forestmix.engines.products import Products, Three, needed_by_rows, spread_of_rows, wanted_of_rows
from forestmix.engines.protocol import Capability, Moments, RowTerms, Spread, Statistics, Want
from forestmix.engines.rows import expected_terms, row_data
from forestmix.families.expectations import quiet
from forestmix.model import Layer, Observations
from forestmix.weights.base import Weights


class ReferenceEngine:
    """Any weights with products, any array library, no compiling."""

    name = "reference"
    capabilities = frozenset({Capability.ARRAYS})

    def observe(self, layer: Layer, observations: Observations) -> Any:
        """Return the rows with their data, in the library and on the device of W."""
        return row_data(layer, observations)

    def products(self, weights: Weights, count: int) -> Products:
        """Return how products with W are made for so many observations."""
        return Products(weights)

    @quiet
    def statistics(
        self, layer: Layer, rows: Any, q: Moments, want: Want, spread: Spread | Any
    ) -> tuple[Statistics, RowTerms]:
        """Return the sums over rows that are wanted at q, and the terms of the rows."""
        products = self.products(layer.weights, q.mean.shape[0])
        sums = products.project(needed_by_rows(q, want, spread))
        value, magnitude, terms = self.row_terms(rows, sums.plain, spread_of_rows(sums, spread))
        back = products.collect(wanted_of_rows(want, sums.absolute, terms.kappa, terms.error))
        return Statistics.of(want, value, magnitude, *back), terms

    @quiet
    def row_terms(self, rows: Any, image: Any, spread: Any) -> tuple[Any, Any, RowTerms]:
        """Return the bound and the size of its terms, (N,) each, and the terms of rows; ``image`` is ``W mean``."""
        eta, xp = image + rows.bias, array_api_compat.array_namespace(image)
        log_likelihood, *found = expected_terms(rows, eta, spread)
        error, kappa = (xp.astype(term, eta.dtype) for term in found)
        size = xp.abs(log_likelihood) + xp.abs(error) * (xp.abs(eta) + xp.abs(rows.bias))
        return total(log_likelihood), total(size), RowTerms(eta, error, kappa)

    @quiet
    def curvatures(self, layer: Layer, kappa: Any, sd: Any, want: Want) -> tuple[Any, Any]:
        """Return ``D_j sigma_j = sum_i |w_ij| s_i kappa_i`` and ``H_j = sum_i w_ij^2 kappa_i``, those wanted."""
        products = self.products(layer.weights, max(kappa.shape[0], sd.shape[0]))
        s = products.project(Three(None, sd if Want.CURVATURE in want else None, None)).absolute
        _, curvature_sd, information = products.collect(wanted_of_rows(want, s, kappa))
        return curvature_sd, information

    @quiet
    def normal_product(self, layer: Layer, kappa: Any, p: Any) -> tuple[Any, Any]:
        """Return ``W^T K W p``, (N, m), and ``p^T W^T K W p``, (N,)."""
        products, xp = self.products(layer.weights, p.shape[0]), array_api_compat.array_namespace(p)
        image = products.project(Three(p, None, None)).plain
        weighted = xp.astype(kappa * image, image.dtype, copy=False)
        return products.collect(Three(weighted, None, None)).plain, total(image * weighted)


def forest_mixture_spread(weights: Any, sd: Any) -> Any:
    """Return ``s_i = sum_j |w_ij| sigma_j``, (N or 1, n).

    It is what Theorem 1 of the paper comes to. Its ``epsilon_ij = |w_ij| sigma_j / s_i`` and
    ``b_hat_ij = m_i - w_ij mu_j / epsilon_ij`` make the argument of a in every tree of a row, ``b_hat_ij + w_ij y_j /
    epsilon_ij``, the same ``m_i + s_i z``: so the best forest mixture bound has the rows
    ``g(x_i) + t(x_i) m_i - E a(m_i + s_i z)``, for every convex a.
    """
    return abs(weights).forward(sd)


def mean_field_spread(weights: Any, sd: Any) -> Any:
    """Return ``sqrt(sum_j w_ij^2 sigma_j^2)``, (N or 1, n): the standard deviation of ``eta_i`` under q."""
    return weights.square().forward(sd * sd) ** 0.5
