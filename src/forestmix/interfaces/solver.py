"""The best auxiliary parameters of each row: a small convex problem, for all rows at once (design 1.6).

With ``c = epsilon b_hat`` the row's part of the bound is a sum of perspectives, jointly convex in (epsilon, c)::

    minimise  sum_j f_j(epsilon_j, c_j),   f_j = epsilon_j E a((c_j + w_j y_j) / epsilon_j)
    with      sum_j epsilon_j = 1,  epsilon_j > 0,  sum_j c_j = b

Gradient and Hessian are expectations too; with ``h = (c + w y) / epsilon``::

    df/dc = E a'(h)          d2f = (1 / epsilon) [  E a''(h)      -E a''(h) h   ]     in the order (c, epsilon)
    df/de = E a(h) - h a'(h)                     [ -E a''(h) h     E a''(h) h^2 ]

The Hessian is made of 2 x 2 blocks, and the two constraints couple them, so a Newton step solves a 2 x 2 system for each
row. A step is halved until it lowers the row's sum; a row that finds no such step stays as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.arrays import Array

#: Relative to the block's own size, what is added to its diagonal: a parent that is certain has a singular block.
RIDGE = 1e-10
#: A step goes at most this share of the way to where an epsilon would be zero.
TO_THE_BOUNDARY = 0.9
#: Halvings of a step at most, and the share of the predicted fall that a step must bring.
HALVINGS, ARMIJO = 40, 1e-4


class RowSolver:
    """The rows' problems, flat over the entries of W.

    Args:
        entries: rows, columns and weights of the entries of W.
        family: the rows' family, one for each entry.
        probabilities: of each entry's parent, (N, nnz, K + 1).

    """

    def __init__(self, entries: Any, family: Any, probabilities: Array) -> None:
        self.entries, self.family, self.probabilities = entries, family, probabilities

    def terms(self, epsilon: Array, c: Array) -> Array:
        """Return ``f`` of every entry, (N, nnz)."""
        total = np.zeros(np.broadcast_shapes(epsilon.shape, c.shape))
        for y in range(self.probabilities.shape[-1]):
            p = self.probabilities[..., y]
            value = self.family.log_partition((c + self.entries.weight * y) / epsilon)
            total += np.where(p > 0, p * value, 0.0)
        return epsilon * total

    def derivatives(self, epsilon: Array, c: Array) -> tuple[Array, ...]:
        """Return the gradient in c and epsilon, and the three entries of the Hessian, each (N, nnz)."""
        sums = [np.zeros(epsilon.shape) for _ in range(5)]
        for y in range(self.probabilities.shape[-1]):
            p = self.probabilities[..., y]
            h = (c + self.entries.weight * y) / epsilon
            value, slope = self.family.log_partition(h), self.family.log_partition_slope(h)
            curvature = self.family.log_partition_curvature(h)
            for total, part in zip(
                sums, (slope, value - h * slope, curvature, -curvature * h, curvature * h**2), strict=True
            ):
                total += np.where(p > 0, p * part, 0.0)
        return sums[0], sums[1], sums[2] / epsilon, sums[3] / epsilon, sums[4] / epsilon

    def solve(self, epsilon: Array, c: Array, steps: int, tol: float = 0.0) -> tuple[Array, Array]:
        """Return better parameters after at most ``steps`` Newton steps; ``tol``: predicted fall of a row to end at."""
        value = self.entries.sum_rows(self.terms(epsilon, c))
        for _ in range(steps):
            step_c, step_epsilon, fall = self._direction(epsilon, c)
            if np.all(fall <= np.maximum(tol, 1e-15 * np.abs(value))):
                break
            epsilon, c, value = self._search(epsilon, c, value, step_epsilon, step_c, fall)
        return epsilon, c

    def _direction(self, epsilon: Array, c: Array) -> tuple[Array, Array, Array]:
        """Return the Newton step and the fall that it predicts for each row, (N, n)."""
        sums, row = self.entries.sum_rows, self.entries.row
        slope_c, slope_e, cc, ce, ee = self.derivatives(epsilon, c)
        # In units of epsilon, so that one ridge suits both diagonals.
        slope_e, ce, ee = slope_e * epsilon, ce * epsilon, ee * epsilon**2
        slope_c, ce, cc = slope_c * epsilon, ce * epsilon, cc * epsilon**2
        ridge = RIDGE * (cc + ee) + 1e-300
        cc, ee = cc + ridge, ee + ridge
        determinant = cc * ee - ce**2
        # Inverse blocks, and their sums against the constraints' slopes, which are epsilon in these units.
        vcc, vce, vee = ee / determinant, -ce / determinant, cc / determinant
        gc, ge = vcc * slope_c + vce * slope_e, vce * slope_c + vee * slope_e
        A, B, C = (sums(v * epsilon**2) for v in (vcc, vce, vee))
        p, q = sums(gc * epsilon), sums(ge * epsilon)
        scale = A * C - B**2
        with np.errstate(divide="ignore", invalid="ignore"):
            first, second = (C * p - B * q) / scale, (A * q - B * p) / scale
        first, second = (np.nan_to_num(part)[:, row] * epsilon for part in (first, second))
        step_c = -(vcc * (slope_c - first) + vce * (slope_e - second))
        step_e = -(vce * (slope_c - first) + vee * (slope_e - second))
        fall = -sums(slope_c * step_c + slope_e * step_e)
        return step_c * epsilon, step_e * epsilon, np.maximum(np.nan_to_num(fall), 0.0)

    def _search(
        self, epsilon: Array, c: Array, value: Array, step_epsilon: Array, step_c: Array, fall: Array
    ) -> tuple[Array, Array, Array]:
        """Take, in each row, the longest of the steps 1, 1/2, 1/4, ... that lowers its sum by enough."""
        row = self.entries.row
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(step_epsilon < 0, -TO_THE_BOUNDARY * epsilon / step_epsilon, np.inf)
        share = np.ones_like(value)
        for k in range(len(share)):
            np.minimum.at(share[k], row, room[k])
        good = ~np.isfinite(self.entries.sum_rows(step_epsilon + step_c))
        share[good] = 0.0
        for _ in range(HALVINGS):
            wide = share[:, row]
            new_epsilon = np.where(wide > 0, epsilon + wide * step_epsilon, epsilon)
            new_c = np.where(wide > 0, c + wide * step_c, c)
            new_value = self.entries.sum_rows(self.terms(new_epsilon, new_c))
            worse = ~(new_value <= value - ARMIJO * share * fall) & (share > 0)
            if not worse.any():
                return new_epsilon, new_c, new_value
            share[worse] /= 2
        kept = worse[:, row]
        epsilon, c = np.where(kept, epsilon, new_epsilon), np.where(kept, c, new_c)
        return epsilon, c, np.where(worse, value, new_value)
