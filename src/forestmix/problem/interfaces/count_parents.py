"""Bernoulli, Binomial and Poisson rows under Bernoulli or Poisson parents: the forest mixture bound (paper, section 4).

For any epsilon on the simplex and any b_hat with ``sum_j epsilon_ij b_hat_ij = b_i``::

    E a(eta_i) <= sum_j epsilon_ij E a(b_hat_ij + w_ij y_j / epsilon_ij)

which separates the parents, so that all of them are updated at once, each by a table over its values::

    log q_j(y) = log p(y) + sum_i [ E t(y_i) w_ij y - epsilon_ij a(b_hat_ij + w_ij y / epsilon_ij) ] + const
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.families.row_terms import log_partition
from forestmix.latents import Batch, BernoulliFactors, Factors
from forestmix.latents.poisson import grown
from forestmix.model import Layer, Observations
from forestmix.problem.interfaces.base import Interface, Place
from forestmix.problem.interfaces.solver import BRIEF, FULL, RowSolver


class Entries:
    """The entries of W, row by row: row, column and weight of each, and sums over rows and over columns."""

    def __init__(self, layer: Layer) -> None:
        self.row, self.column, weight = layer.weights.entries()
        self.weight, self.shape = weight.astype(np.float64), layer.weights.shape
        each, ones = np.arange(len(weight)), np.ones(len(weight))
        self._by_row, self._by_column = (
            scipy.sparse.csr_array((ones, (place, each)), shape=(size, len(each)))
            for place, size in zip((self.row, self.column), self.shape, strict=True)
        )

    def sum_rows(self, values: Array) -> Array:
        """Return the sum over each row of W, (N, nnz) -> (N, n)."""
        return (self._by_row @ values.T).T

    def largest_in_row(self, values: Array) -> Array:
        """Return the largest of each row of W, (N, nnz) -> (N, n); 0 for a row without entries."""
        largest = np.zeros((len(values), self.shape[0]))
        if len(self.row):
            first = np.flatnonzero(np.diff(self.row, prepend=-1))
            largest[:, self.row[first]] = np.maximum.reduceat(values, first, axis=1)
        return largest

    def sum_columns(self, values: Array) -> Array:
        """Return the sum over each column of W, (N, nnz) -> (N, m)."""
        return (self._by_column @ values.T).T


@dataclass(frozen=True)
class RowAuxiliary(Batch):
    """``epsilon`` and ``c = epsilon b_hat`` of every entry of W, (N, nnz)."""

    epsilon: Array
    c: Array


class CountParents(Interface):
    """Rows that are not Gaussian, under parents that are counts."""

    def __init__(self, layer: Layer, above: Any, data: Observations | None) -> None:
        super().__init__(layer, above, data, "fm")
        self.entries = Entries(layer)

    @property
    def family(self) -> Any:
        """The family of the row of each entry."""
        return self.layer.family.take(self.entries.row)

    def start(self, parents: Factors, *, best: bool = False) -> RowAuxiliary:
        """Return epsilon proportional to |w|, which keeps the argument of ``a`` within the row's range; or the best."""
        entries = self.entries
        size = np.abs(entries.weight)
        epsilon = np.broadcast_to(size / entries.sum_rows(size[None])[0][entries.row], (len(parents.mean), len(size)))
        eta, mean = self.eta(parents)[:, entries.row], parents.mean[:, entries.column]
        safe = RowAuxiliary(epsilon.copy(), epsilon * eta - entries.weight * mean)
        return self.improve(parents, safe, FULL) if best else safe

    def improve(self, parents: Factors, auxiliary: RowAuxiliary, barriers: tuple[float, ...] = BRIEF) -> RowAuxiliary:
        """Return better auxiliary parameters by Newton's method, row by row, or the old ones where it finds none."""
        return RowAuxiliary(*self._solver(parents).solve(auxiliary.epsilon, auxiliary.c, barriers))

    def _solver(self, parents: Factors) -> RowSolver:
        table = parents.log_table  # type: ignore[attr-defined]
        return RowSolver(self.entries, self.family, np.exp(table)[:, self.entries.column])

    def excess(self, parents: Factors, auxiliary: RowAuxiliary) -> Array:
        """Return ``sum_j epsilon_ij E a(b_hat_ij + w_ij y_j / epsilon_ij) - a(m_i)``; 0 for a row without parents."""
        bound = self.entries.sum_rows(self._solver(parents).terms(auxiliary.epsilon, auxiliary.c))
        parentless = np.bincount(self.entries.row, minlength=self.entries.shape[0]) == 0
        return self.masked(np.where(parentless, 0.0, bound - self.layer.family.log_partition(self.eta(parents))))

    def target(self, place: Place) -> Factors:
        """Return the maximiser of the bound in each parent, which with the auxiliary parameters held is exact."""
        seen, parents, auxiliary, eta, _ = place
        entries = self.entries
        statistic = np.broadcast_to(self.layer.family.statistic(seen), (len(parents.mean), self.layer.size))
        statistic, there = statistic[:, entries.row], True if self.observed is None else self.observed[:, entries.row]
        a = partial(log_partition, self.family.without_data(entries.weight), 0)

        def table(values: Array) -> Array:
            columns = []
            for y in values:
                inside = (auxiliary.c + entries.weight * y) / auxiliary.epsilon
                told = statistic * entries.weight * y - auxiliary.epsilon * a(inside)
                # A missing row says nothing, also where its ``a`` is beyond the range of numbers.
                columns.append(entries.sum_columns(np.where(there, told, 0.0)) + y * eta)
            return np.stack(columns, axis=-1)

        return self.kind.from_table(log_weights(self.kind, table))  # type: ignore[attr-defined]


def log_weights(kind: type[Factors], table: Callable[[Array], Array]) -> Array:
    """Return ``table`` at the values of a count, 0 and 1 or as many as matter, and ``-log y!`` with the latter."""
    if kind is BernoulliFactors:
        return table(np.arange(2.0))
    return grown(lambda y: table(y) - scipy.special.gammaln(y + 1))
