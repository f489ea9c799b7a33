"""Site statistics: all that an algorithm asks of a layer, its data below and q above (docs/architecture.md).

For each row i, with ``q_j = N(mu_j, sigma_j^2)``::

    m_i = b_i + sum_j w_ij mu_j                   mean of eta_i
    r_i = s_i = sum_j |w_ij| sigma_j              objective "fm"
          sqrt(sum_j w_ij^2 sigma_j^2)            objective "elbo"
    e_i = t(x_i) - E a'(m_i + r_i z)              kappa_i = E a''(m_i + r_i z)

and, summed over rows, the value, the gradient ``sum_i w_ij e_i`` and the information that q's precision gains from the
rows; and, where an algorithm asks for it, the curvature ``D_j`` that majorises the mean problem for all j at once.
One observation takes a single pass over W where there is a compiled one (``forestmix.passes``), else two.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy

from forestmix.arrays import Array, in_range, plain, total
from forestmix.engines.rows import RowData, expected_terms, row_data
from forestmix.model import Layer, Observations
from forestmix.partition import Partition
from forestmix.passes import Pass, curvatures, fused_pass, has_fused_pass, settle_rows
from forestmix.problem.given import GaussianFactors
from forestmix.small import few_entries
from forestmix.weights.base import Projection
from forestmix.weights.dense import DenseWeights

if TYPE_CHECKING:  # kernels are imported where they are used: Numba takes a second to load
    from forestmix.engines.compiled.columns import Columns
    from forestmix.engines.compiled.rows import RowTable

Objective = Literal["fm", "elbo"]


@dataclass(frozen=True)
class SiteStatistics(Pass):
    """What a pass over W gives, with ``value`` the bound on the expected log-likelihood that ``objective`` names."""

    objective: Objective

    @property
    def information(self) -> Array:
        """What the rows add to the precision of q: ``D`` for objective "fm", ``H`` for "elbo"."""
        information = self.curvature if self.objective == "fm" else self.exact
        assert information is not None
        return information

    def spread_form(self, sd: Array) -> Array:
        """Return ``sum_j sigma_j^2 information_j``, which is ``sum_i kappa_i r_i^2`` for constant curvature, (N,)."""
        return spread_form(sd, self.information)


class Site:
    """A layer with its data below. It knows how to use W; algorithms know only what it returns.

    Args:
        layer: the layer whose rows are observed.
        data: the observations of those rows.
        objective: the bound to evaluate.
        groups: use Jensen's inequality inside these groups only; ``None`` for one group of all latents.
        both: give ``D`` and ``H`` alike, whichever of the two the objective needs for the precision of q.

    """

    def __init__(
        self, layer: Layer, data: Observations, objective: Objective, groups: Partition | None = None,
        *, both: bool = False,
    ) -> None:  # fmt: skip
        self.layer, self.data, self.objective, self.groups = layer, data.shared(), objective, groups
        self.wants_curvature, self.wants_exact = both or objective == "fm", both or objective == "elbo"

    def take(self, keep: Array) -> Site:
        """Return the site of the chosen observations; what was derived from W is shared."""
        chosen = copy(self)
        chosen.data = self.data.take(keep).shared()
        for name in ("row_table", "plain_rows"):
            if self.__dict__.get(name) is not None:
                chosen.__dict__[name] = self.__dict__[name].take(keep)
        return chosen

    @cached_property
    def plain_rows(self) -> RowData | None:
        """The rows as the reference engine knows them, where W is small; ``None`` elsewhere, or for other rows."""
        few = few_entries(self.layer.weights.shape, len(self.data.x))
        return row_data(self.layer, self.data) if few and self.layer.family.primitive(self.data.x) else None

    @cached_property
    def row_table(self) -> RowTable | None:
        """The rows as the compiled kernels know them; ``None`` where the family has no compiled form."""
        from forestmix.engines.compiled import rows

        codes = self.layer.family.row_codes(self.data.x)
        if codes is None:
            return None
        kind, observed = np.atleast_2d(np.asarray(codes.kind, np.int8)), self.data.observed
        if observed is not None:
            kind = np.where(observed, kind, np.int8(rows.MISSING))
        scale, constant = np.asarray(codes.scale, np.float64), np.asarray(codes.constant, np.float64)
        return rows.RowTable(plain(kind), self.data.x, plain(np.atleast_1d(scale)), plain(np.atleast_2d(constant)))

    @cached_property
    def row_bias(self) -> Array:
        """The bias of each row, (n,), or of all of them, (1,)."""
        return plain(np.atleast_1d(np.asarray(self.layer.bias, self.layer.weights.dtype)))

    @cached_property
    def columns(self) -> scipy.sparse.csc_array:
        """W by columns, for coordinate methods."""
        return self.layer.weights.columns()

    @cached_property
    def rows(self) -> scipy.sparse.csr_array:
        """W by rows, for greedy orders."""
        return self.layer.weights.rows()

    @cached_property
    def column_arrays(self) -> Columns:
        """W by columns, as the kernels of sweeps read it; a dense array is read where it lies."""
        from forestmix.engines.compiled.columns import dense_columns, sparse_columns

        weights = self.layer.weights
        return dense_columns(weights.array) if isinstance(weights, DenseWeights) else sparse_columns(self.columns)

    @cached_property
    def row_arrays(self) -> Columns:
        """W by rows, likewise: the columns of its transpose."""
        from forestmix.engines.compiled.columns import dense_columns, sparse_columns

        weights = self.layer.weights
        return dense_columns(weights.array.T) if isinstance(weights, DenseWeights) else sparse_columns(self.rows)

    def spread(self, sd: Array) -> Array:
        """Return the row spread ``r_i`` that enters the objective."""
        if self.objective == "elbo":
            return np.sqrt(self.layer.weights.project(None, sd, squared=True).squared)
        if self.groups is None:
            return self.layer.weights.project(None, sd, absolute=True).absolute
        return self._grouped_spread(self.groups, sd)

    def curvatures(self, sd: Array, kappa: Array, *, curvature: bool, exact: bool) -> tuple[Array | None, Array | None]:
        """Return ``D`` and ``H`` at given ``kappa``, those asked for.

        ``D_j = (1 / sigma_j) sum_i |w_ij| s_i kappa_i`` with the spread of j's own group, and
        ``H_j = sum_i w_ij^2 kappa_i``, the curvature of the exact coordinate update.
        """
        weights = self.layer.weights
        if curvature and self.groups is not None:
            _, H = self.curvatures(sd, kappa, curvature=False, exact=exact)
            return self._grouped_curvature(self.groups, sd, kappa), H
        if max(len(sd), len(kappa)) == 1 and has_fused_pass(weights) and not few_entries(weights.shape):
            both = curvatures(weights, sd[0], kappa[0], curvature=curvature, exact=exact)
            return both.curvature, both.exact
        spread = weights.project(None, sd, absolute=True).absolute * kappa if curvature else None
        found = weights.collect(None, spread, kappa if exact else None)
        return (found.absolute / sd if curvature else None), found.squared

    def statistics(
        self, q: GaussianFactors, known: tuple[GaussianFactors, SiteStatistics] | None = None
    ) -> SiteStatistics:
        """Return the site statistics at q.

        Args:
            q: factors of the latents.
            known: factors and statistics of an earlier call. Where the rows' curvature is constant and the variances
                are the same object, all that depends on the variances only is taken from there.

        """
        curvature, exact = self._known_curvatures(q, known)
        if q.mean.shape[0] == 1 and self.fused:
            return self._one_pass(q, curvature, exact)
        return self._two_passes(q, curvature, exact)

    @property
    def fused(self) -> bool:
        """Whether one observation takes a single pass over W."""
        if self.groups is not None or not has_fused_pass(self.layer.weights) or self.plain_rows is not None:
            return False
        return self.row_table is not None

    def _known_curvatures(
        self, q: GaussianFactors, known: tuple[GaussianFactors, SiteStatistics] | None
    ) -> tuple[Array | None, Array | None]:
        """Return what need not be computed again: for rows of constant curvature D changes with the variances alone."""
        if known is None or not self.layer.family.curvature_is_constant:
            return None, None
        return (known[1].curvature if known[0].sd is q.sd else None), known[1].exact

    def _one_pass(self, q: GaussianFactors, curvature: Array | None, exact: Array | None) -> SiteStatistics:
        assert self.row_table is not None
        found = fused_pass(
            self.layer.weights, self.row_bias, self.row_table, q.mean[0], q.sd[0],
            None if self.layer.family.curvature_is_constant else self.objective,
            curvature=self.wants_curvature and curvature is None, exact=self.wants_exact and exact is None,
        )  # fmt: skip
        return self._assemble(
            q, found,
            found.curvature if curvature is None else curvature,
            found.exact if exact is None else exact,
        )  # fmt: skip

    def _two_passes(self, q: GaussianFactors, curvature: Array | None, exact: Array | None) -> SiteStatistics:
        weights, constant = self.layer.weights, self.layer.family.curvature_is_constant
        absolute = self.wants_curvature and curvature is None and self.groups is None
        ahead = weights.project(
            q.mean, q.sd,
            absolute=absolute or (self.objective == "fm" and self.groups is None and not constant),
            squared=self.objective == "elbo" and not constant,
        )  # fmt: skip
        eta = ahead.linear + self.layer.bias
        value, magnitude, error, kappa = self._settle(eta, None if constant else self._spread_of(q, ahead))
        back = weights.collect(
            error,
            ahead.absolute * kappa if absolute else None,
            kappa if self.wants_exact and exact is None else None,
        )
        if absolute:
            curvature = back.absolute / q.sd
        elif self.wants_curvature and curvature is None and self.groups is not None:
            curvature = self._grouped_curvature(self.groups, q.sd, kappa)
        return self._assemble(
            q,
            Pass(value, magnitude, back.linear, None, None, eta, error, kappa),
            curvature,
            back.squared if exact is None else exact,
        )

    def _settle(self, eta: Array, spread: Array | None) -> tuple[Array, Array, Array, Array]:
        """Return value, magnitude, ``e`` and ``kappa`` of the rows.

        By the reference engine where there are few; by the family itself where no kernel knows it, and for a batch with
        one curvature for all, which is kept once.
        """
        if self.plain_rows is None and self.row_table is not None and (spread is not None or len(eta) == 1):
            return settle_rows(self.row_bias, self.row_table, eta, spread)
        log_likelihood, error, kappa = self.row_terms(eta, np.zeros((), eta.dtype) if spread is None else spread)
        size = np.abs(log_likelihood) + np.abs(error) * (np.abs(eta) + np.abs(self.layer.bias))
        return total(log_likelihood), total(size), error, kappa

    def _spread_of(self, q: GaussianFactors, ahead: Projection) -> Array:
        if self.objective == "elbo":
            return np.sqrt(ahead.squared)
        return ahead.absolute if self.groups is None else self._grouped_spread(self.groups, q.sd)

    def _assemble(
        self, q: GaussianFactors, found: Pass, curvature: Array | None, exact: Array | None
    ) -> SiteStatistics:
        """Return the statistics of a pass, with curvatures that may have been known before."""
        value, magnitude, information = found.value, found.magnitude, curvature if self.objective == "fm" else exact
        if self.layer.family.curvature_is_constant:
            # This saves the products that r_i takes.
            assert information is not None
            half = 0.5 * spread_form(q.sd, information)
            value, magnitude = value - half, magnitude + half
        return SiteStatistics(
            value, magnitude, found.gradient, curvature, exact, found.eta, found.error, found.kappa,
            self.objective,
        )  # fmt: skip

    def expected_log_likelihood(self, q: GaussianFactors) -> Array:
        """Return the bound on ``E log p(x | y)`` of each observation, (N,)."""
        weights, bias = self.layer.weights, self.row_bias
        if q.mean.shape[0] == 1 and self.fused and self.row_table is not None:
            options = {"curvature": False, "exact": False}
            return fused_pass(weights, bias, self.row_table, q.mean[0], q.sd[0], self.objective, **options).value
        return total(self.row_terms(weights.forward(q.mean) + bias, self.spread(q.sd))[0])

    def row_terms(self, eta: Array, spread: Array, rows: Array | None = None) -> tuple[Array, Array, Array]:
        """Return the expected log-likelihood, ``e`` and ``kappa`` of every row or of some; 0 where x is missing."""
        if rows is None and self.plain_rows is not None:
            found, *terms = expected_terms(self.plain_rows, eta, np.atleast_2d(spread))
            error, kappa = (in_range(term, eta.dtype) for term in terms)
            return found, error, kappa
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
        from forestmix.engines.compiled.groups import group_spread_squared

        total = np.zeros((sd.shape[0], self.layer.size), sd.dtype)
        group_spread_squared(self.column_arrays, groups.starts, groups.members, np.ascontiguousarray(sd), total)
        return np.sqrt(total)

    def _grouped_curvature(self, groups: Partition, sd: Array, kappa: Array) -> Array:
        from forestmix.engines.compiled.groups import group_curvature

        sd, kappa = same_rows(sd, kappa)
        out = np.empty_like(sd)
        group_curvature(self.column_arrays, groups.starts, groups.members, sd, kappa, out)
        return out


def spread_form(sd: Array, information: Array) -> Array:
    """Return ``sum_j sigma_j^2 information_j``, (N or 1,); a single row of either serves all."""
    return np.einsum("kj,kj,kj->k", sd, sd, information, dtype=np.float64)


def same_rows(first: Array, second: Array) -> tuple[Array, Array]:
    """Return two batch arrays with the same number of rows; a single row is repeated."""
    count = max(first.shape[0], second.shape[0])
    if first.shape[0] == second.shape[0]:
        return np.ascontiguousarray(first), np.ascontiguousarray(second)
    return tuple(np.ascontiguousarray(np.broadcast_to(part, (count, part.shape[1]))) for part in (first, second))  # type: ignore[return-value]
