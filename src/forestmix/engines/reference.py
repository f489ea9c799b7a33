"""The formulas of the method as they are written, with two products before the rows and up to three after them.

This is the engine to read beside the paper; it runs arrays of any library where they are, and small problems without
compiling anything. For each row i, with ``q_j = N(mu_j, sigma_j^2)``::

    m_i = b_i + sum_j w_ij mu_j                    mean of eta_i
    s_i = sum_j |w_ij| sigma_j                     spread of the forest mixture bound, objective "fm"
    v_i = sum_j w_ij^2 sigma_j^2                   variance of eta_i, objective "elbo"
    e_i = t(x_i) - E a'(m_i + r_i z)               kappa_i = E a''(m_i + r_i z),  r_i = s_i or sqrt(v_i)
"""

from __future__ import annotations

from typing import Any

import array_api_compat

from forestmix.engines.protocol import Capability, Moments, Objective, RowTerms, Statistics, Want
from forestmix.engines.rows import RowData, double, expected_terms, row_data
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
        self, layer: Layer, data: RowData, q: Moments, want: Want, objective: Objective, terms: RowTerms | None = None
    ) -> tuple[Statistics, RowTerms]:
        """Return the sums over rows that are wanted at q, and the row terms."""
        weights = layer.weights
        rows = row_terms(weights, data, q, objective) if terms is None else terms
        sums = {}
        if Want.VALUE in want:
            sums["value"], sums["magnitude"] = _value(data, rows)
        if Want.GRADIENT in want:
            sums["gradient"] = weights.adjoint(rows.error)
        if Want.CURVATURE in want:
            s = rows.spread if objective == "fm" else forest_mixture_spread(weights, q.sd)
            sums["curvature_sd"] = abs(weights).adjoint(s * rows.kappa)
        if Want.INFORMATION in want:
            sums["information"] = weights.square().adjoint(rows.kappa)
        return Statistics(want, **sums), rows

    def normal_product(self, layer: Layer, row_weights: Any, p: Any) -> tuple[Any, Any]:
        """Return ``W^T K W p``, (N, m), and ``p^T W^T K W p``, (N,)."""
        image = layer.weights.forward(p)
        weighted = row_weights * image
        return layer.weights.adjoint(weighted), _total(array_api_compat.array_namespace(image), image * weighted)


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


def row_terms(weights: Any, data: RowData, q: Moments, objective: Objective) -> RowTerms:
    """Return the terms of every row at q; 0 where x is missing."""
    spread_of = forest_mixture_spread if objective == "fm" else mean_field_spread
    eta, spread = weights.forward(q.mean) + data.bias, spread_of(weights, q.sd)
    xp = array_api_compat.array_namespace(eta)
    log_likelihood, error, kappa = expected_terms(data, eta, spread)
    return RowTerms(eta, spread, log_likelihood, xp.astype(error, eta.dtype), xp.astype(kappa, eta.dtype))


def _value(data: RowData, rows: RowTerms) -> tuple[Any, Any]:
    """Return the sum of log-likelihoods, (N,), and the size of what rounding acts on."""
    xp = array_api_compat.array_namespace(rows.eta)
    size = xp.abs(rows.eta) + xp.abs(data.bias)
    return _total(xp, rows.log_likelihood), _total(xp, xp.abs(rows.log_likelihood) + xp.abs(rows.error) * size)


def _total(xp: Any, terms: Any) -> Any:
    """Return the sum over rows in double precision."""
    return xp.sum(terms, axis=-1, dtype=double(xp, array_api_compat.device(terms)))
