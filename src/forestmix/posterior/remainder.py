"""What a Gaussian q leaves out: the evidence above its ELBO, and variances that are a little wider.

At the best ``q = N(mu, Sigma)`` the function ``l(y) = log p(x, y) - log q(y)`` has no parts of order 1 and 2 in the
Hermite polynomials of q (Opper and Archambeau 2009), so all of ``log p(x) - ELBO = log E exp(l - E l)`` comes from
order 3 on. In independent coordinates z of q, those of ``BlockFactor.row_coordinates``, row i has
``eta_i = m_i + c_i . z``. Along one coordinate all orders are known, by one-dimensional quadrature::

    h_a(z) = E[l | z_a = z] - E l = sum_i E[log p(x_i | eta_i) | z_a = z], without its parts of order 0, 1 and 2
    log E exp h_a >= 0        and z_a has the density N(z; 0, 1) exp h_a(z)

Terms that mix coordinates are taken at order 3, with ``T_abc = sum_i E a'''(eta_i) c_ia c_ib c_ic``::

    log p(x) - ELBO ~ sum_a log E exp h_a + sum of T_abc^2 / 12 over a, b, c not all the same
    Cov(z)_ab - [a = b] ~ sum_cd T_acd T_bcd / 2, and for its part T_aaa^2 / 2 the variance of the density above

Groups whose effects are eliminated one by one have a coordinate each, in which only their own rows are: with the other
latents known this is exact for them. For Gaussian rows all of it is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.engines.rows import RowData
from forestmix.posterior.along import NODES, along_coordinates
from forestmix.posterior.full_newton import slopes_of_rows

if TYPE_CHECKING:
    from forestmix.posterior.factor import RowCoordinates
    from forestmix.posterior.full import FullFit

#: What quadratures along the coordinates that are not of groups may take, in nodes times rows, and the estimate from
#: which on one is made, in nats for each node and row. Where all of them are cheap, all are made: rows repeated and
#: weighted then give the same.
MOST_QUADRATURE, WORTH, CHEAP = 1e7, 3e-8, 2e5
#: Products that T may take, and entries of its part for each group; beyond, what mixes coordinates is left out.
MOST_PRODUCTS, MOST_ENTRIES = 2e9, 4e6
#: Bytes of products of coordinates at a time.
MEMORY_BUDGET = 2**25


class Remainder(NamedTuple):
    """``evidence``: estimate of ``log p(x) - ELBO``; variances of z: ``block`` (|block|,) and ``rest`` (p, p)."""

    evidence: float
    block: Array
    rest: Array


def remainder(rows: RowData, fit: FullFit) -> Remainder:
    """Return what is left out at the best q; ``rows`` are those of its one observation."""
    n, p = len(fit.eta), len(fit.covariance.columns.rest)
    mixing, quadratures = n * p**3 <= MOST_PRODUCTS, int(MOST_QUADRATURE // (NODES * max(n, 1)))
    coordinates = fit.covariance.row_coordinates(rest=mixing or quadratures > p // 4)
    third, fourth = slopes_of_rows(rows, fit)
    chosen = _worth(third, fourth, coordinates.rest)[:quadratures]
    block, along = along_coordinates(rows, fit, coordinates._replace(rest=coordinates.rest[chosen]))
    evidence, rest = float(np.sum(block.evidence)), np.eye(len(coordinates.rest))
    mixed_variance = np.zeros(len(block.variance))
    if coordinates.rest.size and mixing:
        tensor = _Third(third, coordinates)
        evidence += tensor.evidence()
        rest, mixed_variance = rest + 0.5 * tensor.squares(), 0.5 * tensor.block_squares()
    own = (coordinates.rest[chosen] ** 3 @ third) ** 2
    rest[chosen, chosen] += along.variance - 1 - (0.5 * own if mixing else 0.0)
    evidence += float(np.sum(along.evidence)) - (float(np.sum(own)) / 12 if mixing else 0.0)
    found = Remainder(evidence, block.variance + mixed_variance, rest)
    return found if _is_proper(found) else Remainder(0.0, np.ones(len(block.variance)), np.eye(len(rest)))


def _is_proper(found: Remainder) -> bool:
    """Return whether these are variances. Under a flat prior that rows hardly hold y in, the series has no meaning."""
    if not (np.isfinite(found.evidence) and np.isfinite(found.rest).all() and np.all(found.block > 0)):
        return False
    eigenvalues = np.linalg.eigvalsh(found.rest)
    return not len(eigenvalues) or eigenvalues[0] > len(eigenvalues) * np.finfo(np.float64).eps * eigenvalues[-1]


class _Third:
    """T in its parts: of rest coordinates alone (p, p, p), and with one or two of a group, ``groups`` and ``pairs``."""

    def __init__(self, third: Array, coordinates: RowCoordinates) -> None:
        c, count = coordinates.rest, coordinates.groups
        p, n = c.shape
        self.alone = np.zeros((p, p * p))
        own = np.flatnonzero(coordinates.column >= 0)
        places = (coordinates.column[own], own)

        def sums(weights: Array) -> scipy.sparse.csr_array:
            return scipy.sparse.csr_array((weights[own], places), shape=(count, n))

        self.pairs = sums(third * coordinates.block**2) @ c.T
        once, self.groups = sums(third * coordinates.block), np.zeros((0, p * p))
        if count and count * p * p <= MOST_ENTRIES:
            self.groups = np.zeros((count, p * p))
        step = max(1, MEMORY_BUDGET // (8 * p * p))
        for start in range(0, n, step):
            part = slice(start, start + step)
            products = (c[:, None, part] * c[None, :, part]).reshape(p * p, -1).T
            self.alone += (c[:, part] * third[part]) @ products
            if len(self.groups):
                self.groups += once[:, part] @ products

    def evidence(self) -> float:
        """Return the sum of ``T_abc^2 / 12`` but for that of three times the same group."""
        return float(3 * np.sum(self.pairs**2) + 3 * np.sum(self.groups**2) + np.sum(self.alone**2)) / 12

    def squares(self) -> Array:
        """Return ``sum_cd T_acd T_bcd`` for the rest coordinates, (p, p)."""
        p = len(self.alone)
        once = self.groups.reshape(-1, p)
        return self.pairs.T @ self.pairs + 2 * once.T @ once + self.alone @ self.alone.T

    def block_squares(self) -> Array:
        """Return ``sum_cd T_jcd^2`` for each group j, but for c = d = j."""
        found = 2 * np.sum(self.pairs**2, axis=1)
        return found + np.sum(self.groups**2, axis=1) if len(self.groups) else found


def _worth(third: Array, fourth: Array, rest: Array) -> list[int]:
    """Return the rest coordinates, the most worthwhile first, that a quadrature is to be made along."""
    square = rest * rest
    estimate = ((square * rest) @ third) ** 2 / 12 + ((square * square) @ fourth) ** 2 / 48
    least = WORTH * NODES * len(third) if NODES * rest.size > CHEAP else 0.0
    return [int(a) for a in np.argsort(-estimate) if estimate[a] > least]
