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
from forestmix.engines.protocol import Capability, Moments, RowTerms, Spread, Statistics, Want
from forestmix.engines.rows import RowData, expected_terms, row_data
from forestmix.families.expectations import quiet
from forestmix.model import Layer, Observations


class ReferenceEngine:
    """Any weights with products, any array library, no compiling."""

    name = "reference"
    capabilities = frozenset({Capability.ARRAYS})

    def observe(self, layer: Layer, observations: Observations) -> RowData:
        """Return the rows with their data, in the library and on the device of W."""
        return row_data(layer, observations)

    @quiet
    def statistics(
        self, layer: Layer, rows: RowData, q: Moments, want: Want, spread: Spread | Any
    ) -> tuple[Statistics, RowTerms]:
        """Return the sums over rows that are wanted at q, and the terms of the rows."""
        image = layer.weights.forward(q.mean)
        value, magnitude, terms = self.row_terms(rows, image, spread_of_rows(layer.weights, q.sd, image, spread))
        sums: dict[str, Any] = {"value": value, "magnitude": magnitude} if Want.VALUE in want else {}
        if Want.GRADIENT in want:
            sums["gradient"] = layer.weights.adjoint(terms.error)
        curvature_sd, information = self.curvatures(layer, terms.kappa, q.sd, want)
        return Statistics(want, **sums, curvature_sd=curvature_sd, information=information), terms

    @quiet
    def row_terms(self, rows: RowData, image: Any, spread: Any) -> tuple[Any, Any, RowTerms]:
        """Return the bound and the size of its terms, (N,) each, and the terms of rows; ``image`` is ``W mean``."""
        eta, xp = image + rows.bias, array_api_compat.array_namespace(image)
        log_likelihood, *found = expected_terms(rows, eta, spread)
        error, kappa = (xp.astype(term, eta.dtype) for term in found)
        size = xp.abs(log_likelihood) + xp.abs(error) * (xp.abs(eta) + xp.abs(rows.bias))
        return total(log_likelihood), total(size), RowTerms(eta, error, kappa)

    def curvatures(self, layer: Layer, kappa: Any, sd: Any, want: Want) -> tuple[Any, Any]:
        """Return ``D_j sigma_j = sum_i |w_ij| s_i kappa_i`` and ``H_j = sum_i w_ij^2 kappa_i``, those wanted."""
        weights, curvature_sd, information = layer.weights, None, None
        if Want.CURVATURE in want:
            curvature_sd = abs(weights).adjoint(forest_mixture_spread(weights, sd) * kappa)
        if Want.INFORMATION in want:
            information = weights.square().adjoint(kappa)
        return curvature_sd, information

    def normal_product(self, layer: Layer, kappa: Any, p: Any) -> tuple[Any, Any]:
        """Return ``W^T K W p``, (N, m), and ``p^T W^T K W p``, (N,)."""
        image = layer.weights.forward(p)
        weighted = kappa * image
        return layer.weights.adjoint(weighted), total(image * weighted)


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


def spread_of_rows(weights: Any, sd: Any, eta: Any, spread: Spread | Any) -> Any:
    """Return the spread ``r_i`` that enters the rows, (N or 1, n), which may be given."""
    if not isinstance(spread, Spread):
        return spread
    if spread is Spread.NONE:
        return array_api_compat.array_namespace(eta).zeros_like(eta[:1, :])
    return (forest_mixture_spread if spread is Spread.ABSOLUTE else mean_field_spread)(weights, sd)
