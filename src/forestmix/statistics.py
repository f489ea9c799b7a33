"""Site statistics: all that an algorithm asks of a layer, its data below and q above (design, part 3).

For each row i, with ``q_j = N(mu_j, sigma_j^2)``::

    m_i = b_i + sum_j w_ij mu_j                   mean of eta_i
    r_i = s_i = sum_j |w_ij| sigma_j              objective "fm"
          sqrt(sum_j w_ij^2 sigma_j^2)            objective "elbo"
    e_i = t(x_i) - E a'(m_i + r_i z)              kappa_i = E a''(m_i + r_i z)

and, summed over rows, the value, the gradient ``sum_i w_ij e_i`` and the information that q's precision gains from the
rows; and, where an algorithm asks for it, the curvature ``D_j`` that majorises the mean problem for all j at once.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import sparse

from forestmix.arrays import Array, total
from forestmix.model import Layer, Observations
from forestmix.partition import Partition
from forestmix.posterior import GaussianFactors
from forestmix.weights import Weights

Objective = Literal["fm", "elbo"]


@dataclass(frozen=True)
class SiteStatistics:
    """Sums over the rows of a layer, for each observation of a batch.

    ``value``: expected log-likelihood bound, (N,); ``gradient``: its slope in the means, (N, m); ``information``: what
    the rows add to the precision of q, ``D`` for objective "fm" and ``sum_i w_ij^2 kappa_i`` for "elbo", (N or 1, m);
    ``eta``: the row means, (N, n); ``error`` and ``kappa``: ``e`` and ``kappa`` of each row; ``magnitude``: size of the
    terms that were added up, which sets the rounding of ``value``.
    """

    value: Array
    gradient: Array
    information: Array
    eta: Array
    error: Array
    kappa: Array
    magnitude: Array


class Site:
    """A layer with its data below. It knows how to use W; algorithms know only what it returns.

    Args:
        layer: the layer whose rows are observed.
        data: the observations of those rows.
        objective: the bound to evaluate.
        groups: use Jensen's inequality inside these groups only; ``None`` for one group of all latents.

    """

    def __init__(self, layer: Layer, data: Observations, objective: Objective, groups: Partition | None = None) -> None:
        self.layer, self.data, self.objective, self.groups = layer, data, objective, groups

    def take(self, keep: Array) -> Site:
        """Return the site of the chosen observations; what was derived from W is shared."""
        chosen = copy(self)
        chosen.data = self.data.take(keep)
        return chosen

    @cached_property
    def absolute(self) -> Weights:
        """The weights |W|."""
        return abs(self.layer.weights)

    @cached_property
    def squared(self) -> Weights:
        """The weights W∘W."""
        return self.layer.weights.square()

    @cached_property
    def columns(self) -> sparse.csc_array:
        """W by columns, for coordinate methods."""
        return self.layer.weights.columns()

    @cached_property
    def rows(self) -> sparse.csr_array:
        """W by rows, for greedy orders."""
        return self.layer.weights.rows()

    @property
    def column_arrays(self) -> tuple[Array, Array, Array]:
        """The three arrays of W by columns, as the kernels take them."""
        return self.columns.indptr, self.columns.indices, self.columns.data

    def spread(self, sd: Array) -> Array:
        """Return the row spread ``r_i`` that enters the objective."""
        if self.objective == "elbo":
            return np.sqrt(self.squared.forward(sd**2))
        return self.absolute.forward(sd) if self.groups is None else self._grouped_spread(self.groups, sd)

    def curvature(self, sd: Array, kappa: Array) -> Array:
        """Return ``D_j = (1 / sigma_j) sum_i |w_ij| s_i kappa_i``, with the spread of j's own group."""
        sd, kappa = same_rows(sd, kappa)
        if self.groups is None:
            return self.absolute.adjoint(self.absolute.forward(sd) * kappa) / sd
        from forestmix import kernels

        out = np.empty_like(sd)
        kernels.group_curvature(*self.column_arrays, self.groups.starts, self.groups.members, sd, kappa, out)
        return out

    def exact_information(self, kappa: Array) -> Array:
        """Return ``H_j = sum_i w_ij^2 kappa_i``, the curvature of the exact coordinate update."""
        return self.squared.adjoint(kappa)

    def statistics(
        self,
        q: GaussianFactors,
        eta: Array | None = None,
        known: tuple[GaussianFactors, SiteStatistics] | None = None,
    ) -> SiteStatistics:
        """Return the site statistics at q.

        Args:
            q: factors of the latents.
            eta: the row means, where the caller has them from an update of its own.
            known: factors and statistics of an earlier call. Where the rows' curvature is constant and the variances
                are the same object, all that depends on the variances only is taken from there.

        """
        constant = self.layer.family.curvature_is_constant
        if eta is None:
            eta = self.layer.weights.forward(q.mean) + self.layer.bias
        spread = np.zeros((), eta.dtype) if constant else self.spread(q.sd)
        log_likelihood, error, kappa = self.row_terms(eta, spread)
        if constant and known is not None and known[0].sd is q.sd:
            information = known[1].information
        else:
            information = self.curvature(q.sd, kappa) if self.objective == "fm" else self.exact_information(kappa)
        value = total(log_likelihood)
        if constant:
            # sum_i kappa_i r_i^2 = sum_j sigma_j^2 information_j, which saves the products that r_i takes.
            value = value - 0.5 * total(q.sd**2 * information)
        size = np.abs(log_likelihood) + np.abs(error) * (np.abs(eta) + np.abs(self.layer.bias) + np.abs(self.data.x))
        gradient = self.layer.weights.adjoint(error)
        return SiteStatistics(value, gradient, information, eta, error, kappa, total(size))

    def log_likelihood(self, q: GaussianFactors) -> Array:
        """Return the bound on ``E log p(x_i | y)`` of every row, (N, n); 0 for a missing entry."""
        eta = self.layer.weights.forward(q.mean) + self.layer.bias
        return self.row_terms(eta, self.spread(q.sd))[0]

    def row_terms(self, eta: Array, spread: Array, rows: Array | None = None) -> tuple[Array, Array, Array]:
        """Return the expected log-likelihood, ``e`` and ``kappa`` of every row or of some; 0 where x is missing."""
        family, x, observed = self.layer.family, self.data.x, self.data.observed
        if rows is not None:
            family, x = family.take(rows), x[:, rows]
            observed = None if observed is None else observed[:, rows]
        expected = family.expectations(x, eta, spread)
        kappa = expected.curvature
        if kappa.ndim < 2:
            kappa = np.broadcast_to(kappa, (1, eta.shape[1]))
        if observed is None:
            return expected.log_likelihood, expected.error, kappa
        zero = np.zeros((), eta.dtype)
        parts = (expected.log_likelihood, expected.error, kappa)
        log_likelihood, error, kappa = (np.where(observed, part, zero) for part in parts)
        return log_likelihood, error, kappa

    def _grouped_spread(self, groups: Partition, sd: Array) -> Array:
        from forestmix import kernels

        total = np.zeros((sd.shape[0], self.layer.size), sd.dtype)
        kernels.group_spread_squared(
            *self.column_arrays, groups.starts, groups.members, np.ascontiguousarray(sd), total
        )
        return np.sqrt(total)


def same_rows(first: Array, second: Array) -> tuple[Array, Array]:
    """Return two batch arrays with the same number of rows; a single row is repeated."""
    count = max(first.shape[0], second.shape[0])
    if first.shape[0] == second.shape[0]:
        return np.ascontiguousarray(first), np.ascontiguousarray(second)
    return tuple(np.ascontiguousarray(np.broadcast_to(part, (count, part.shape[1]))) for part in (first, second))  # type: ignore[return-value]
