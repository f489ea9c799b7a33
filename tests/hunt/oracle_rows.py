"""The optimum for rows of any family under Gaussian latents, by Newton's method on the mean and sd of q.

The objective is concave in both together, so its optimum is the only one. Rows are in long double, and the linear
systems have a hundred digits.
"""

from functools import partial

import mpmath
import numpy as np

from .oracle_gaussian import Optimum, condition_number
from .precise import LONG, cholesky, exact, inverse, precision, rounded, solve
from .quadrature import softplus_expectations

STEPS = 300
#: Newton's decrement, in squared posterior sds, at which the optimum is as good as found.
SETTLED, USABLE = 1e-16, 1e-8
#: How far beyond the logarithm of a count its exponential is kept, one after another, on the way to the mode.
CAPS = (2.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0)
#: Natural parameters beyond which an exponential overflows a float.
OVERFLOW = 700.0


class NotFoundError(ArithmeticError):
    """The oracle did not reach its optimum."""


class NotRepresentableError(ArithmeticError):
    """The optimum itself has terms near overflow."""


def long(value):
    """Return a number of mpmath's as a long double."""
    high = float(value)
    return LONG(high) + LONG(float(value - high))


class RowOracle:
    """Rows of the families "gaussian", "bernoulli", "binomial", "poisson", named for each row; parameters likewise.

    ``parameter`` is the noise sd of Gaussian rows and the trials of Binomial ones.
    """

    def __init__(self, families, parameter, W, b, prior_mean, prior_sd, x, objective="elbo"):
        seen = ~np.isnan(x)
        self.fm = objective == "fm"
        self.families = np.asarray(families)[seen]
        arrays = (parameter[seen], W[seen], b[seen], prior_mean, prior_sd, x[seen])
        self.parameter, self.W, self.b, self.prior_mean, self.prior_sd, self.x = (np.asarray(a, LONG) for a in arrays)
        self.parameter = np.where(self.families == "bernoulli", 1, self.parameter)
        self.base = self._log_base()
        with precision():
            self.exact_W, self.prior_precision = exact(self.W), 1 / exact(self.prior_sd) ** 2

    def _log_base(self):
        """Return what does not depend on eta: Poisson's largest log-likelihood, and ``log C(trials, x)``."""
        out = np.zeros(len(self.x), LONG)
        with mpmath.workdps(40):
            for i, (family, trials, x) in enumerate(zip(self.families, self.parameter, self.x, strict=True)):
                x, trials = mpmath.mpf(float(x)), mpmath.mpf(float(trials))
                if family == "poisson" and x > 0:
                    out[i] = long(x * mpmath.log(x) - x - mpmath.loggamma(x + 1))
                elif family == "binomial":
                    terms = mpmath.loggamma(trials + 1) - mpmath.loggamma(x + 1) - mpmath.loggamma(trials - x + 1)
                    out[i] = long(terms)
        return out

    def rows(self, m, r, cap=None):
        """Return each row's expected log-likelihood, its slope in m, and the expected derivatives 2 to 4 of a.

        With a cap, exponentials go on as parabolas ``cap`` beyond the logarithm of the count, which Newton's steps take
        quickly, where the slope of an exponential would take one for each unit of eta.
        """
        out = np.zeros((5, len(self.x)), LONG)
        for family, terms in (("gaussian", _gaussian), ("poisson", _poisson)):
            which = self.families == family
            out[:, which] = terms(self.x[which], self.parameter[which], m[which], r[which])
        which = np.isin(self.families, ["bernoulli", "binomial"])
        if which.any():
            out[:, which] = _softplus(self.x[which], self.parameter[which], m[which], r[which])
        out[0] += self.base
        if cap is not None:
            end = np.log(np.maximum(self.x, 0) + 1) + cap
            over = (self.families == "poisson") & (m > end)
            if over.any():
                at = self.rows(np.where(over, end, m), r)
                d = m - end
                straight = np.array([at[0] + d * at[1] - d**2 / 2 * at[2], at[1] - d * at[2], at[2], 0 * d, 0 * d])
                out[:, over] = straight[:, over]
        return out

    def spread(self, sd):
        """Return the spread of each row."""
        return np.abs(self.W) @ sd if self.fm else np.sqrt(self.W**2 @ sd**2)

    def value(self, mean, sd):
        """Return the objective of ``q_j = N(mean_j, sd_j^2)``."""
        mean, sd = np.asarray(mean, LONG), np.asarray(sd, LONG)
        with np.errstate(all="ignore"):
            rows = self.rows(self.b + self.W @ mean, self.spread(sd))[0]
            ratio = sd / self.prior_sd
            divergence = (((mean - self.prior_mean) / self.prior_sd) ** 2 + ratio**2 - 1) / 2 - np.log(ratio)
            total = np.sum(rows) - np.sum(divergence)
        return total if np.isfinite(total) and abs(total) < 1e300 else LONG(-np.inf)

    def optimum(self):
        """Return the optimum, from the mode of the posterior by Newton steps that backtrack."""
        mean = self._mode()
        kappa = self.rows(self.b + self.W @ mean, np.zeros(len(self.x), LONG))[2]
        sd = 1 / np.sqrt(self.prior_sd**-2 + self.W.T**2 @ kappa)
        # Newton's steps double an sd that is too small, and take long to come down the slope of an exponential.
        sd = sd / max(1, np.max(self.spread(sd)[self.families == "poisson"], initial=0) / 2)
        mean, sd = self._climb(mean, sd)
        slope, kappa = self.rows(self.b + self.W @ mean, self.spread(sd))[1:3]
        with precision():
            # By linear response of means and sds together; where they make up for each other, the posterior is wider.
            matrix, size = self._joint_system(mean, sd)[1], len(mean)
            covariance = rounded(inverse(cholesky(matrix)))[:size, :size]
            condition = condition_number(rounded(matrix[:size, :size]))
        floor = self._floor(mean, slope, kappa, np.abs(covariance))
        exact_sd = np.sqrt(np.diag(covariance)).astype(float)
        value = float(self.value(mean, sd))
        mean, sd = mean.astype(float), sd.astype(float)
        return Optimum(mean, sd, value, exact_sd, floor, self.slack(mean, sd), condition)

    def _mode(self):
        """Return the mode of the posterior of y, from weighted least squares as for generalised linear models."""
        x, trials = self.x, self.parameter
        with np.errstate(all="ignore"):
            odds = np.log((x + 0.5) / (trials - x + 0.5))
            target = np.select([self.families == "gaussian", self.families == "poisson"], [x, np.log(x + 0.5)], odds)
            weight = np.select(
                [self.families == "gaussian", self.families == "poisson"],
                [trials**-2, x + 0.5],
                (x + 0.5) * (trials - x + 0.5) / (trials + 1),
            )
        with precision():
            scaled = self.exact_W.T * exact(weight)
            factor = cholesky(np.diag(self.prior_precision) + scaled @ self.exact_W)
            right = self.prior_precision * exact(self.prior_mean) + scaled @ exact(target - self.b)
            mean = rounded(solve(factor, right))
        for cap in CAPS:
            mean = self._newton(mean, np.zeros(0, LONG), partial(self._log_joint, cap), partial(self._mean_system, cap))
        if np.any((self.b + self.W @ mean)[self.families == "poisson"] > OVERFLOW / 2):
            raise NotRepresentableError("The mode of the posterior has a rate near overflow.")
        return mean

    def _log_joint(self, cap, mean, sd):
        rows = self.rows(self.b + self.W @ mean, np.zeros(len(self.x), LONG), cap)[0]
        return np.sum(rows) - np.sum(((mean - self.prior_mean) / self.prior_sd) ** 2) / 2

    def _mean_system(self, cap, mean, sd):
        terms = self.rows(self.b + self.W @ mean, np.zeros(len(self.x), LONG), cap)
        gradient = self.exact_W.T @ exact(terms[1]) - self.prior_precision * exact(mean - self.prior_mean)
        return gradient, np.diag(self.prior_precision) + (self.exact_W.T * exact(terms[2])) @ self.exact_W

    def _climb(self, mean, sd):
        both = self._newton(mean, sd, self.value, self._joint_system)
        return both[: len(mean)], both[len(mean) :]

    def _joint_system(self, mean, sd):
        """Return the gradient in (mean, sd) and the negative Hessian."""
        m = self.b + self.W @ mean
        _, slope, kappa, third, fourth = (exact(term) for term in self.rows(m, self.spread(sd)))
        W, sigma, r = self.exact_W, exact(sd), exact(self.spread(sd))
        prior, size = self.prior_precision, abs(self.exact_W)
        gradient_mean = W.T @ slope - prior * exact(mean - self.prior_mean)
        if self.fm:
            gradient_sd = -(size.T @ (r * kappa)) - prior * sigma + 1 / sigma
            cross = (W.T * (r * third)) @ size
            block = (size.T * (kappa + r**2 * fourth)) @ size
        else:
            gradient_sd = -sigma * (W.T**2 @ kappa) - prior * sigma + 1 / sigma
            weighted = W**2 * sigma
            cross = (W.T * third) @ weighted
            block = np.diag(W.T**2 @ kappa) + (weighted.T * fourth) @ weighted
        top = np.hstack([np.diag(prior) + (W.T * kappa) @ W, cross])
        bottom = np.hstack([cross.T, block + np.diag(prior + 1 / sigma**2)])
        return np.concatenate([gradient_mean, gradient_sd]), np.vstack([top, bottom])

    def _newton(self, mean, sd, value, system):
        """Climb by Newton steps, halved until they gain; return the means, and behind them the sds if any are given."""
        joint = len(sd) > 0
        point, size = np.concatenate([mean, sd]), len(mean)
        best, decrement = value(mean, sd), np.inf
        for _ in range(STEPS):
            with precision():
                gradient, matrix = system(point[:size], point[size:])
                step = solve(cholesky(matrix), gradient)
                decrement = float(gradient @ step)
                step = rounded(step)
            if decrement <= SETTLED:
                return point + step
            if decrement <= USABLE and not np.any(point[size:] + step[size:] <= 0):
                # So near, steps are right in full, and rounding would refuse some of them.
                point = point + step
                continue
            length = LONG(1)
            if joint:
                shrinks = step[size:] < 0
                length = min(length, LONG(0.9) * np.min(-point[size:][shrinks] / step[size:][shrinks], initial=np.inf))
            for _ in range(60):
                new = point + length * step
                reached = value(new[:size], new[size:])
                if reached >= best + LONG(1e-4) * length * LONG(decrement):
                    break
                length = length / 2
            else:
                break
            point, best = new, reached
        if decrement > USABLE:
            raise NotFoundError(f"Newton's decrement is {decrement:.3g} at the end.")
        return point

    def _floor(self, mean, slope, kappa, covariance):
        """As in ``GaussianOracle``: rounding of the rows' natural parameters and slopes, and of the gradient's sum."""
        eta = np.abs(self.W) @ np.abs(mean) + np.abs(self.b)
        kinds = [self.families == "gaussian", self.families == "poisson"]
        with np.errstate(all="ignore"):
            counts = np.minimum(self.x, self.parameter - self.x)
            size = np.select(kinds, [np.abs(self.x) / self.parameter**2, self.x], counts)
            rows = np.sqrt(kappa) * eta + np.where(size > 0, size / np.sqrt(kappa), 0)
        terms = np.abs(self.W).T @ np.abs(slope)
        return float(np.sqrt(np.sum(rows**2)) + np.sqrt(terms @ covariance @ terms))

    def slack(self, mean, sd):
        """Return the nats that one unit of rounding in the rows' natural parameters is worth.

        A quarter of the terms ``x eta`` and ``a''`` of counts is added: a few units of their rounding are granted.
        """
        mean = np.asarray(mean, LONG)
        with np.errstate(all="ignore"):
            terms = self.rows(self.b + self.W @ mean, self.spread(np.asarray(sd, LONG)))
        eta = np.abs(self.W) @ np.abs(mean) + np.abs(self.b)
        prior = np.abs(mean - self.prior_mean) * (np.abs(mean) + np.abs(self.prior_mean)) / self.prior_sd**2
        counts = np.where(self.families == "gaussian", 0, self.x * np.abs(self.b + self.W @ mean) + terms[2])
        return float(1 + np.sum(np.abs(terms[1]) * eta) + np.sum(prior) + np.sum(np.abs(terms[0])) + np.sum(counts) / 4)


def _gaussian(x, sd, m, r):
    value = -((x - m) ** 2 + r**2) / (2 * sd**2) - np.log(sd) - np.log(2 * LONG(np.pi)) / 2
    return np.array([value, (x - m) / sd**2, sd**-2, 0 * m, 0 * m])


def _poisson(x, _, m, r):
    """For ``x > 0`` as ``-x (exp(u) - 1 - u) - x r^2 / 2``, ``u = m + r^2 / 2 - log x``; the rest is in the base."""
    with np.errstate(all="ignore"):
        rate = np.exp(m + r**2 / 2)
        u = m + r**2 / 2 - np.log(x)
        excess = np.where(np.abs(u) < 1e-2, _tail_of_exp(u), np.expm1(u) - u)
        value = np.where(x > 0, -x * excess - x * r**2 / 2, -rate)
        slope = np.where(x > 0, -x * np.expm1(u), -rate)
    return np.array([value, slope, rate, rate, rate])


def _tail_of_exp(u):
    """Return ``exp(u) - 1 - u`` for small u, by its series."""
    return u**2 / 2 * (1 + u / 3 * (1 + u / 4 * (1 + u / 5 * (1 + u / 6 * (1 + u / 7 * (1 + u / 8 * (1 + u / 9)))))))


def _softplus(x, trials, m, r):
    """As ``-(trials - x) softplus(eta) - x softplus(-eta)``, so that nothing cancels where x is 0 or all trials."""
    up, down = softplus_expectations(m, r), softplus_expectations(-m, r)
    value = -(trials - x) * up[0] - x * down[0]
    return np.array([value, x * down[1] - (trials - x) * up[1], trials * up[2], trials * up[3], trials * up[4]])
