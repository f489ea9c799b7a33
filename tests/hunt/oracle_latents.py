"""Latents of other families under Gaussian rows: the ELBO of a q, coordinate ascent from it, and its optimum.

The optimum is sought only where the prior's logarithm is concave, so that it is the only one.
"""

import mpmath
import numpy as np
from mpmath import mpf

from .factors import DIGITS, factor_of_mean, make_factor
from .oracle_gaussian import Optimum, condition_number
from .oracle_rows import NotFoundError

#: Priors whose logarithm is concave: there the ELBO is concave in the means.
CONCAVE = ("laplace", "exponential")
SETTLED, USABLE, STEPS = 1e-16, 1e-8, 80
#: Added to the matrix, relatively, where the curvature of a prior is less than any number of digits shows.
RIDGE = mpf(10) ** -50


class LatentOracle:
    """Rows ``x ~ N(b + W y, sd^2)`` under latents of a family; q is known by its means, since H is the rows' own."""

    def __init__(self, family, prior, W, b, sd, x):
        seen = ~np.isnan(x)
        self.family, self.size = family, W.shape[1]
        self.arrays = [np.asarray(a, float) for a in (W[seen], b[seen], sd[seen], x[seen])]
        W, b, sd, x = self.arrays
        with mpmath.workdps(DIGITS):
            self.W = [[mpf(w) for w in row] for row in W]
            self.rows = [1 / mpf(s) ** 2 for s in sd]
            self.target = [mpf(one) - mpf(bias) for one, bias in zip(x, b, strict=True)]
            self.prior = [{name: mpf(float(values[j])) for name, values in prior.items()} for j in range(self.size)]
            columns = range(self.size)
            self.matrix = [[self._sum(self._column(j), self._column(k)) for k in columns] for j in columns]
            self.slope = [self._sum(self._column(j), self.target) for j in columns]
            constant = sum((mpmath.log(2 * mpmath.pi * mpf(s) ** 2) for s in sd), mpf(0))
            self.constant = -constant / 2 - self._sum(self.target, self.target) / 2

    def _column(self, j):
        return [row[j] for row in self.W]

    def _sum(self, first, second):
        """Return the inner product of two vectors over rows, with the rows' precisions."""
        return sum((r * a * b for r, a, b in zip(self.rows, first, second, strict=True)), mpf(0))

    def factors(self, mean, start=None):
        """Return the factors that have these means."""
        starts = [None] * self.size if start is None else [f.h for f in start]
        return [
            factor_of_mean(self.family, self.prior[j], self.matrix[j][j], mpf(mean[j]), starts[j])
            for j in range(self.size)
        ]

    def value(self, factors):
        """Return the ELBO."""
        mean = [f.mean for f in factors]
        total = self.constant
        for j, f in enumerate(factors):
            image = sum((self.matrix[j][k] * mean[k] for k in range(self.size)), mpf(0))
            total += mean[j] * (self.slope[j] - image / 2) - self.matrix[j][j] * f.variance / 2 - f.divergence
        return total

    def sweep(self, factors):
        """Return the factors after one sweep of coordinate ascent."""
        factors = list(factors)
        for j in range(self.size):
            others = sum((self.matrix[j][k] * factors[k].mean for k in range(self.size) if k != j), mpf(0))
            factors[j] = make_factor(self.family, self.prior[j], self.matrix[j][j], self.slope[j] - others)
        return factors

    def prior_factors(self):
        """Return q after a sweep from the prior's means."""
        return self.sweep([make_factor(self.family, prior, mpf(0), mpf(0)) for prior in self.prior])

    def optimum(self):
        """Return the optimum of a concave problem, by Newton's method on the means after some sweeps."""
        with mpmath.workdps(DIGITS):
            factors = self.prior_factors()
            for _ in range(3):
                factors = self.sweep(factors)
            value = self.value(factors)
            for _ in range(STEPS):
                gradient, matrix = self._system(factors)
                step = mpmath.cholesky_solve(matrix, gradient)
                decrement = float(sum(g * s for g, s in zip(gradient, step, strict=True)))
                if decrement <= SETTLED:
                    break
                factors, new = self._line_search(factors, self._within_reach(factors, gradient, matrix, step), value)
                if new is None:
                    break
                value = new
            if decrement > USABLE:
                raise NotFoundError(f"Newton's decrement is {decrement:.3g} at the end.")
            return self._described(factors, value, matrix)

    def _system(self, factors):
        """Return the gradient in the means, and ``W^T R W + diag(1 / V - H)``, the negative Hessian."""
        gradient, matrix = mpmath.matrix(self.size, 1), mpmath.matrix(self.matrix)
        for j, f in enumerate(factors):
            image = sum((self.matrix[j][k] * factors[k].mean for k in range(self.size) if k != j), mpf(0))
            gradient[j] = self.slope[j] - image - f.h
            matrix[j, j] = (1 + RIDGE) / f.variance
        return gradient, matrix

    def _within_reach(self, factors, gradient, matrix, step):
        """Damp a step until each mean moves by some standard deviations at most, or to the kink of its prior.

        Far from the kink a factor has next to no curvature, and Newton's step would be without end.
        """
        pairs = zip(factors, self.prior, strict=True)
        reach = [abs(f.mean - prior["bias"]) + 3 * mpmath.sqrt(f.variance) for f, prior in pairs]
        damping = mpf("1e-3")
        while any(abs(s) > r for s, r in zip(step, reach, strict=True)):
            damped = matrix.copy()
            for j, r in enumerate(reach):
                damped[j, j] += damping / r**2
            step, damping = mpmath.cholesky_solve(damped, gradient), 8 * damping
        return step

    def _line_search(self, factors, step, value):
        """Halve a step until it gains; the means of non-negative latents stay positive."""
        length, slope = mpf(1), sum(g * s for g, s in zip(self._system(factors)[0], step, strict=True))
        for f, s in zip(factors, step, strict=True):
            if self.family == "exponential" and s < 0:
                length = min(length, -mpf("0.9") * f.mean / s)
        for _ in range(60):
            mean = [f.mean + length * s for f, s in zip(factors, step, strict=True)]
            new = self.factors(mean, factors)
            reached = self.value(new)
            if reached >= value + mpf("1e-4") * length * slope:
                return new, reached
            length /= 2
        return factors, None

    def _described(self, factors, value, matrix):
        covariance = np.array((matrix**-1).tolist(), float)
        mean = np.array([float(f.mean) for f in factors])
        condition = condition_number(np.array(matrix.tolist(), float))
        sd = np.sqrt([float(f.variance) for f in factors])
        floor = self.floor(mean, covariance)
        return Optimum(mean, sd, float(value), np.sqrt(np.diag(covariance)), floor, self.slack(mean), condition)

    def floor(self, mean, covariance):
        """Return the shift of the mean, in sds, that one unit of rounding in each term leads to, at most."""
        W, b, sd, x = self.arrays
        rows = (np.abs(W) @ np.abs(mean) + np.abs(b) + np.abs(x)) / sd
        slope = np.abs(W / sd[:, None] ** 2).T @ np.abs(x - b - W @ mean)
        return float(np.sqrt(np.sum(rows**2)) + np.sqrt(slope @ np.abs(covariance) @ slope))

    def slack(self, mean):
        """Return the nats that one unit of rounding in the rows' means is worth."""
        W, b, sd, x = self.arrays
        size = np.abs(W) @ np.abs(mean) + np.abs(b) + np.abs(x)
        return float(1 + np.sum(np.abs(x - b - W @ mean) * size / sd**2))
