"""Densities along single coordinates of a Gaussian q, with all orders of what it leaves out (``remainder.py``).

Of each row that is ``sum_{k > 2} -b_k rho^k p_k(z)`` (``row_series.py``), with rho the share of a coordinate in the
spread of the row. The few pairs of a row and a coordinate that the orders of the series do not suffice for, large
shares of wide rows, are taken from the expectations of the row at each node themselves.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.engines.rows import RowData, expected_terms
from forestmix.posterior.row_series import FIRST, LAST, polynomials, row_series

if TYPE_CHECKING:
    from forestmix.posterior.factor import RowCoordinates
    from forestmix.posterior.full import FullFit

#: Nodes of the quadrature along one coordinate.
NODES = 13
#: What the series may leave out of one row, in nats, and the last orders that this is estimated by.
LEFT_OUT, JUDGED = 1e-11, 4
#: Rows whose series are in memory together; pairs of a row and a coordinate.
ROWS, PAIRS = 2**17, 2**14


class Along(NamedTuple):
    """Of the densities along coordinates: ``log E exp h`` and the variance, (K,) each."""

    evidence: Array
    variance: Array


class _Pairs(NamedTuple):
    """Rows, (P,), with the coordinate of each, and ``shift``: ``eta_i = m_i + shift z + ...``."""

    row: Array
    coordinate: Array
    shift: Array

    def take(self, keep: Array | slice) -> _Pairs:
        return _Pairs(*(one[keep] for one in self))


def along_coordinates(rows: RowData, fit: FullFit, coordinates: RowCoordinates) -> tuple[Along, Along]:
    """Return what is along the coordinate of each group, which only its own rows have, and along each of the rest."""
    block, rest = np.zeros((NODES, coordinates.groups)), np.zeros((NODES, len(coordinates.rest)))
    for start in range(0, len(fit.eta) if block.size or rest.size else 0, ROWS):
        places = np.arange(start, min(start + ROWS, len(fit.eta)))
        some = _Rows(rows if len(places) == len(fit.eta) else rows.take_rows(places), fit, places)
        own, column = np.flatnonzero(coordinates.column[places] >= 0), coordinates.column[places]
        block += some.along(_Pairs(own, column[own], coordinates.block[places[own]]), block.shape[1])
        for k, shift in enumerate(coordinates.rest[:, places]):
            rest[:, k] += some.along(_Pairs(np.arange(len(places)), np.zeros(len(places), int), shift), 1)[:, 0]
    return _tilted(block), _tilted(rest)


class _Rows:
    """Some rows at q."""

    def __init__(self, rows: RowData, fit: FullFit, places: Array) -> None:
        self.rows, self.eta, self.variance = rows, fit.eta[places], fit.variance[places]
        self.error, self.kappa = fit.error[places], fit.kappa[places]
        self.spread = np.sqrt(self.variance)
        self.series = row_series(rows, self.eta, self.spread)
        self.last = np.max(np.abs(self.series[-JUDGED:]), axis=0)

    def along(self, pairs: _Pairs, count: int) -> Array:
        """Return h at the nodes along coordinates, (NODES, count), by sums over pairs."""
        spread = self.spread[pairs.row]
        share = np.divide(pairs.shift, spread, out=np.zeros_like(spread), where=spread > 0)
        enough = np.abs(share) ** (LAST + 1) * self.last[pairs.row] <= LEFT_OUT
        own, share, sums = pairs.take(enough), share[enough], []
        power = share ** (FIRST - 1)
        for terms in self.series:
            power = power * share
            sums.append(np.bincount(own.coordinate, power * terms[own.row], minlength=count))
        h, others = -_polynomials().T @ np.stack(sums), np.flatnonzero(~enough)
        for start in range(0, len(others), PAIRS):
            h += self._by_expectations(pairs.take(others[start : start + PAIRS]), count)
        return h

    def _by_expectations(self, pairs: _Pairs, count: int) -> Array:
        """Return the same by the rows' expectations at each node, without their parts of order 0, 1 and 2."""
        row, _, shift = pairs
        rows, square = self.rows.take_rows(row), shift**2
        z = np.append(_hermite()[0], 0.0)[:, None]
        variance = np.where(np.arange(len(z))[:, None] < NODES, self.variance[row] - square, self.variance[row])
        values = expected_terms(rows, self.eta[row] + shift * z, np.sqrt(np.maximum(variance, 0.0)))[0]
        parts = values - values[-1] - self.error[row] * shift * z + 0.5 * self.kappa[row] * square * (z**2 - 1)
        return np.stack([np.bincount(pairs.coordinate, part, minlength=count) for part in parts[:-1]])


def _tilted(h: Array) -> Along:
    """Return ``log E exp h`` and the variance under ``N(z; 0, 1) exp h`` from h at the nodes, (nodes, K).

    Where h is not finite, far out of the range of the rows, nothing is taken to be left out.
    """
    nodes, log_weights = _hermite()
    h = np.where(np.isfinite(h).all(axis=0), h, 0.0)
    log_terms = h + log_weights[:, None]
    evidence = scipy.special.logsumexp(log_terms, axis=0) if h.size else np.zeros(h.shape[1])
    weights = np.exp(log_terms - evidence)
    mean = nodes @ weights
    return Along(evidence, nodes**2 @ weights - mean**2)


@cache
def _hermite() -> tuple[Array, Array]:
    """Return nodes and log weights of Gauss-Hermite quadrature for the standard normal distribution."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes, np.log(weights / np.sum(weights))


@cache
def _polynomials() -> Array:
    """Return the polynomials of the series at the nodes, (orders, nodes)."""
    return np.stack(list(polynomials(_hermite()[0]))[FIRST:])
