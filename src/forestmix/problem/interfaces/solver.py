"""The best auxiliary parameters of each row: a small convex problem, for all rows at once (docs/deep.md).

With ``c = epsilon b_hat`` the row's part of the bound is a sum of perspectives, jointly convex in (epsilon, c)::

    minimise  sum_j f_j,   f_j = epsilon_j E a(h_j),   h_j = (c_j + w_j y_j) / epsilon_j
    with      sum_j epsilon_j = 1,  epsilon_j > 0,  sum_j c_j = b

Newton's method in ``v = d epsilon / epsilon`` and p, the change of h's centre ``k = E a''(h) h / E a''(h)``, so that
``d c = epsilon (p + k v)``. In these the Hessian is diagonal, and nothing in it cancels::

    d f / d p = epsilon E a'(h)                     d2 f / d p2 = epsilon E a''(h)
    d f / d v = epsilon E [a(h) - (h - k) a'(h)]    d2 f / d v2 = epsilon E a''(h) (h - k)^2

The constraints ``sum epsilon v = 0`` and ``sum epsilon (p + k v) = 0`` are made orthogonal by taking from k its mean
over the row, weighted with ``epsilon^2 / (d2 f / d v2)``; each then has a multiplier by itself.

For Bernoulli rows an epsilon may be 0 at the optimum, where ``f`` is ``E max(0, c + w y)`` and has a kink. So the rows
have a barrier, ``-tau sum_j log epsilon_j``, which in v has slope ``-tau`` and curvature ``tau`` whatever epsilon is,
and tau goes down step by step; at the end the row is within tau times its number of parents of its optimum. It also
takes care of parents that are all but certain, in whose v there is next to no curvature.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.families.row_terms import log_partition
from forestmix.problem.backtracking import longest_step

#: A step goes at most this share of the way to where an epsilon would be zero.
TO_THE_BOUNDARY = 0.9
#: Halvings of a step at most, and the share of the predicted fall that a step must bring.
HALVINGS, ARMIJO = 30, 1e-4
#: The barrier, relative to the row's sum: for a full solve, and for a row that has changed a little since the last.
FULL = tuple(10.0 ** (-0.5 * k) for k in range(1, 24))
BRIEF = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
#: Newton steps at most for each barrier; it goes on to the next when the predicted fall is this share of the barrier.
INNER, NEAR = 20, 0.1

#: The least curvature of a parent, relative to the largest in its row.
LEAST_CURVATURE = 1e-3


class Derivatives(NamedTuple):
    """Gradient and diagonal Hessian of every entry in (p, v), and the centre k, each (N, nnz)."""

    slope_p: Array
    slope_v: Array
    curvature_p: Array
    curvature_v: Array
    centre: Array


class RowSolver:
    """The rows' problems, flat over the entries of W.

    Args:
        entries: rows, columns and weights of the entries of W.
        family: the rows' family, one for each entry.
        probabilities: of each entry's parent, (N, nnz, K + 1).

    """

    def __init__(self, entries: Any, family: Any, probabilities: Array) -> None:
        self.entries, self.probabilities = entries, probabilities
        rows = family.without_data(entries.weight)
        self.a, self.slope, self.curvature = (partial(log_partition, rows, order) for order in range(3))
        #: Values that no parent takes are not looked at; 0 always is, for a W without entries has no parents at all.
        self.values = np.flatnonzero(np.any(probabilities > 0, axis=(0, 1)) | (np.arange(probabilities.shape[2]) == 0))

    def terms(self, epsilon: Array, c: Array) -> Array:
        """Return ``f`` of every entry, (N, nnz)."""
        return epsilon * self._expected(epsilon, c, lambda h: (self.a(h),))[0]

    def derivatives(self, epsilon: Array, c: Array) -> Derivatives:
        """Return gradient and Hessian in (p, v)."""

        def around_zero(h: Array) -> tuple[Array, ...]:
            curvature = self.curvature(h)
            return self.slope(h), curvature, curvature * h

        slope, curvature, moment = self._expected(epsilon, c, around_zero)
        centre = np.divide(moment, curvature, out=np.zeros_like(moment), where=curvature > 0)

        def around_centre(h: Array) -> tuple[Array, ...]:
            distance = h - centre
            return self.a(h) - distance * self.slope(h), self.curvature(h) * distance**2

        rest, spread = self._expected(epsilon, c, around_centre)
        return Derivatives(epsilon * slope, epsilon * rest, epsilon * curvature, epsilon * spread, centre)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def solve(self, epsilon: Array, c: Array, barriers: tuple[float, ...] = FULL) -> tuple[Array, Array]:
        """Return parameters at which each row's sum is lower, or the same ones for a row that finds none."""
        first, before = (epsilon, c), self.entries.sum_rows(self.terms(epsilon, c))
        for barrier in barriers:
            # Relative to the sum as it is now: a start can be larger than the optimum by many orders.
            tau = barrier * np.maximum(self.entries.sum_rows(self.terms(epsilon, c)), 1e-300)
            for _ in range(INNER):
                step_epsilon, step_c, fall = self._direction(epsilon, c, tau)
                if np.all(fall <= NEAR * tau):
                    break
                epsilon, c = self._search(epsilon, c, tau, step_epsilon, step_c, fall)
        worse = ~(self.entries.sum_rows(self.terms(epsilon, c)) <= before)[:, self.entries.row]
        return np.where(worse, first[0], epsilon), np.where(worse, first[1], c)

    def _expected(self, epsilon: Array, c: Array, functions: Any) -> list[Array]:
        """Return the expectations of functions of h; a value of probability 0 adds nothing, also where it overflows."""
        sums: list[Array] = []
        for y in self.values:
            p = self.probabilities[..., y]
            # What overflows where the probability is 0 is not used, and elsewhere is a step refused.
            with np.errstate(over="ignore", invalid="ignore"):
                parts = functions((c + self.entries.weight * y) / epsilon)
                weighted = [np.where(p > 0, p * part, 0.0) for part in parts]
            sums = weighted if not sums else [total + part for total, part in zip(sums, weighted, strict=True)]
        return sums

    def _direction(self, epsilon: Array, c: Array, tau: Array) -> tuple[Array, Array, Array]:
        """Return the Newton step in epsilon and c, and the fall that it predicts for each row, (N, n)."""
        sums, row = self.entries.sum_rows, self.entries.row
        at = self.derivatives(epsilon, c)
        slope_v = at.slope_v - tau[:, row]
        # Where a is all but linear at one parent, its curvature is taken for a share of the row's; a row that is linear
        # at all of them is left alone.
        largest = self.entries.largest_in_row(at.curvature_p / epsilon)[:, row]
        curvature_p = np.maximum(at.curvature_p, LEAST_CURVATURE * epsilon * largest)
        along_p = np.divide(1.0, curvature_p, out=np.zeros_like(epsilon), where=curvature_p > 1e-200)
        along_v = 1 / (at.curvature_v + tau[:, row])
        weight = epsilon**2 * along_v
        mean = _quotient(sums(weight * at.centre), sums(weight))
        offset = at.centre - mean[:, row]
        first = _quotient(sums(epsilon * slope_v * along_v), sums(weight))
        norm = sums(epsilon**2 * along_p + weight * offset**2)
        second = _quotient(sums(epsilon * (at.slope_p * along_p + offset * slope_v * along_v)), norm)
        p = -(at.slope_p - epsilon * second[:, row]) * along_p
        v = -(slope_v - epsilon * (first[:, row] + offset * second[:, row])) * along_v
        # What rounding leaves of the constraints is taken out, so that it does not build up.
        v = v - sums(epsilon * v)[:, row]
        u = p + at.centre * v
        u = u - sums(epsilon * u)[:, row]
        fall = -sums(at.slope_p * (u - at.centre * v) + slope_v * v)
        return epsilon * v, epsilon * u, np.maximum(np.nan_to_num(fall), 0.0)

    def _barred(self, epsilon: Array, c: Array, tau: Array) -> Array:
        """Return each row's sum with its barrier."""
        return self.entries.sum_rows(self.terms(epsilon, c) - tau[:, self.entries.row] * np.log(epsilon))

    def _search(
        self, epsilon: Array, c: Array, tau: Array, step_epsilon: Array, step_c: Array, fall: Array
    ) -> tuple[Array, Array]:
        """Take, in each row, the longest of the steps 1, 1/2, 1/4, ... that lowers it by enough."""
        row, value = self.entries.row, self._barred(epsilon, c, tau)
        room = np.where(step_epsilon < 0, -TO_THE_BOUNDARY * epsilon / step_epsilon, np.inf)
        share = np.where(fall > NEAR * tau, 1.0, 0.0)
        for k in range(len(share)):
            np.minimum.at(share[k], row, room[k])
        share[~np.isfinite(self.entries.sum_rows(step_epsilon + step_c))] = 0.0

        def at(share: Array) -> tuple[Array, Array]:
            wide = share[:, row]
            moves = wide > 0
            return np.where(moves, epsilon + wide * step_epsilon, epsilon), np.where(moves, c + wide * step_c, c)

        def lower(new: tuple[Array, Array], share: Array) -> Array:
            return (self._barred(*new, tau) <= value - ARMIJO * share * fall) | ~(share > 0)

        new, _, found = longest_step(at, lower, share, HALVINGS)
        taken = found[:, row]
        return np.where(taken, new[0], epsilon), np.where(taken, new[1], c)


def _quotient(numerator: Array, denominator: Array) -> Array:
    """Return the quotient, 0 for a row without entries."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
