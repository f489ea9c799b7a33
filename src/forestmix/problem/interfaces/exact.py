"""The ELBO of Bernoulli, Binomial and Poisson rows under parents that are counts, exactly.

The parents are independent under q, so the characteristic function of ``eta_i`` is a product over them, and::

    Poisson rows:    E exp(eta) = exp(b) prod_j E exp(w_j y_j)
    Bernoulli rows:  E log(1 + exp(eta)) = E eta / 2 + log 2 + int_0^inf (1 - Re E exp(i eta t)) / (t sinh(pi t)) dt

from ``log cosh(x / 2) = int_0^inf (1 - cos(x t)) / (t sinh(pi t)) dt``. The integrand is even, analytic in the strip
``|Im t| < 1`` and falls like ``exp(-pi t)``, so the trapezoidal rule with step h is exact to ``exp(|x| - 2 pi / h)``: a
few hundred nodes suffice for ``|x|`` up to a hundred. It costs that many products over the entries of W, which is
what coordinate ascent pays for the exact objective and the forest mixture bound does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import Poisson
from forestmix.latents import Factors
from forestmix.model import Layer, Observations
from forestmix.partition import Partition
from forestmix.problem.interfaces.base import Interface, Place, with_columns
from forestmix.problem.interfaces.count_parents import log_weights

#: Where the integrand has fallen below rounding, and the digits (in nats) that the step is chosen for.
END, DIGITS = 12.5, 40.0
#: Probabilities below this do not widen the range of a row.
NEGLIGIBLE = 1e-18


class ExactCounts(Interface):
    """Rows under parents that are counts, on the ELBO. There is no parallel step here: ``sweep`` goes one by one."""

    def __init__(self, layer: Layer, above: Any, data: Observations | None) -> None:
        super().__init__(layer, above, data, "elbo")
        n = layer.size
        bias = np.broadcast_to(layer.bias, n).astype(np.float64)
        one = scipy.sparse.csr_array((bias, (np.arange(n), np.zeros(n, int))), shape=(n, 1))
        #: W and, in a last column, the bias: the weight of a parent that is 1 for certain, so no row is without one.
        self.W = scipy.sparse.hstack([layer.weights.rows().astype(np.float64), one], format="csr")
        self.columns = self.W.tocsc()
        self.by_log = isinstance(layer.family.unweighted, Poisson)

    def excess(self, parents: Factors, auxiliary: None) -> Array:
        """Return ``E a(eta_i) - a(m_i)``."""
        tables, rows = parents.log_table, np.arange(self.layer.size)  # type: ignore[attr-defined]
        expected = np.stack([self._of(k)._expected(self.W, rows, table) for k, table in enumerate(tables)])
        return self.masked(np.maximum(expected - self.layer.family.log_partition(self.eta(parents)), 0.0))

    def target(self, place: Place) -> Factors:
        """Return the exact coordinate update of every parent, the others held."""
        return self._updated(place, np.arange(self.layer.n_parents))

    def step(self, place: Place, layers: Any = None) -> Factors:
        """Raise: nothing makes a parallel step safe here."""
        raise ArgumentError(
            "objective must be 'auto' or 'fm' for parallel steps of counts under rows that are not Gaussian; the ELBO "
            "is climbed by algorithm='cavi', also from a result: infer(model, x, 'cavi', init=result)."
        )

    def sweep(self, place: Place, groups: Partition, *, surrogate: bool) -> Factors:
        """Return the parents after each was updated in turn."""
        for members in groups.lists():
            found = with_columns(place.parents, members, self._updated(place, members))
            place = place._replace(parents=found)
        return place.parents

    def _of(self, k: int) -> ExactCounts:
        """Return the interface of one observation, itself where all have the same case weights."""
        return self.take(np.array([k])) if self.layer.family.differs_by_observation else self

    def _updated(self, place: Place, members: Array) -> Factors:
        """Return the exact coordinate update of the chosen parents, each with the others held."""
        seen, q = place.seen, place.parents
        eta, known = np.broadcast_to(place.eta, q.mean.shape), q.log_table
        tables = [[self._of(k)._table(j, k, seen[k], known[k], eta[k, j]) for j in members] for k in range(len(eta))]
        length = max(len(table) for own in tables for table in own)
        padded = [[np.pad(table, (0, length - len(table)), constant_values=-np.inf) for table in own] for own in tables]
        return self.kind.from_table(np.array(padded))  # type: ignore[attr-defined]

    def _expected(self, W: scipy.sparse.csr_array, rows: Array, log_table: Array, shift: Any = 0.0) -> Array:
        """Return ``E a(eta_i + shift_i)`` of some rows, whose weights are W, with these tables of their parents."""
        starts, weight = W.indptr[:-1], W.data.copy()
        weight[W.indptr[1:] - 1] += shift
        values = np.arange(log_table.shape[-1], dtype=np.float64)
        chosen = np.vstack([log_table, _certain(1, len(values))])[W.indices]
        family = self.layer.family.take(rows)
        if self.by_log:
            moments = scipy.special.logsumexp(chosen + weight[:, None] * values, axis=1)
            return family.log_partition(np.zeros(len(rows))) * np.exp(np.add.reduceat(moments, starts))
        p = np.exp(chosen)
        largest = np.max(np.where(p > NEGLIGIBLE, values, 0.0), axis=1)
        reach = np.add.reduceat(np.abs(weight) * largest, starts)
        mean = np.add.reduceat(weight * (p @ values), starts)
        variance = np.add.reduceat(weight**2 * (p @ values**2 - (p @ values) ** 2), starts)
        step = 2 * np.pi / (np.max(reach) + DIGITS)
        t = step * np.arange(1, int(END / step) + 1)
        # exp(i t w y) is a power of exp(i t w), which saves most of the exponentials.
        base = np.exp(1j * weight[:, None] * t)
        characteristic = np.zeros_like(base)
        for y in range(len(values) - 1, -1, -1):
            characteristic = characteristic * base + p[:, y, None]
        product = np.multiply.reduceat(characteristic, starts, axis=0)
        kernel = step / (t * np.sinh(np.pi * t))
        log_cosh = (1 - product.real) @ kernel + 0.5 * step * (variance + mean**2) / (2 * np.pi)
        trials = family.log_partition(np.zeros(len(rows))) / np.log(2)
        return trials * (0.5 * mean + np.log(2) + log_cosh)

    def _table(self, j: int, k: int, seen: Array, log_table: Array, eta: float) -> Array:
        """Return ``log p(y) + sum_i [E t(y_i) w_ij y - E a(eta_i | y_j = y)]`` for y = 0, 1, ..., of observation k."""
        part = slice(*self.columns.indptr[j : j + 2])
        rows, weight = self.columns.indices[part], self.columns.data[part]
        if self.observed is not None:
            there = self.observed[min(k, len(self.observed) - 1), rows]
            rows, weight = rows[there], weight[there]
        W, others = self.W[rows], log_table.copy()
        others[j] = _certain(0, log_table.shape[-1])
        told = self.layer.family.take(rows).statistic(seen[rows])

        def table(values: Array) -> Array:
            out = eta * values
            for place, y in enumerate(values if len(rows) else []):
                out[place] += np.sum(told * weight * y - self._expected(W, rows, others, weight * y))
            return out

        return log_weights(self.kind, table)


def _certain(value: int, length: int) -> Array:
    """Return the logarithms of the probabilities of a count that has one value only."""
    return np.where(np.arange(length) == value, 0.0, -np.inf)
