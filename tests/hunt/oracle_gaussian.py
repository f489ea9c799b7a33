"""The exact mean-field optimum of Gaussian rows and latents, of one layer or two, by dense linear algebra."""

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from .precise import LONG, cholesky, exact, inverse, precision, rounded, solve

#: Passes of the fixed point of the forest mixture bound's variances, whose error at least halves in each.
HALVINGS = 80


@dataclass(frozen=True)
class Optimum:
    """Where the objective is largest, how large it is there, and the exact posterior's standard deviations.

    ``floor`` is how far, in exact posterior sds, relative errors of one unit of rounding in the rows' means and in the
    gradient's terms move the optimum, and ``slack`` how many nats they change the objective by; ``unit`` is 1 for
    them, so that both are multiplied with the precision's own rounding. ``condition`` is that of the posterior's
    correlation matrix.
    """

    mean: np.ndarray
    sd: np.ndarray
    value: float
    exact_sd: np.ndarray
    floor: float
    slack: float
    condition: float


class GaussianOracle:
    """Rows ``x ~ N(b + W y, sd^2)`` with ``y ~ N(prior mean, prior sd^2)``; an infinite prior sd has no prior."""

    def __init__(self, W, b, sd, prior_mean, prior_sd, x, objective="elbo"):
        seen = ~np.isnan(x)
        self.fm = objective == "fm"
        arrays = (W[seen], b[seen], sd[seen], prior_mean, prior_sd, x[seen])
        self.W, self.b, self.sd, self.prior_mean, self.prior_sd, self.x = (np.asarray(a, LONG) for a in arrays)
        with precision():
            self._prepare()

    def _prepare(self):
        self.proper = np.isfinite(self.prior_sd)
        self.exact_W = exact(self.W)
        self.row_precision = 1 / exact(self.sd) ** 2
        self.prior_precision = exact(np.zeros(len(self.prior_sd)))
        self.prior_precision[self.proper] = 1 / exact(self.prior_sd[self.proper]) ** 2
        self.information = self.row_precision @ self.exact_W**2 if len(self.x) else 0 * self.prior_precision

    def value(self, mean, sd):
        """Return the ELBO, or the forest mixture bound, of ``q_j = N(mean_j, sd_j^2)``, as a float."""
        with precision():
            mu, sigma, prior_mean = exact(mean), exact(sd), exact(self.prior_mean)
            total = Decimal(0)
            if len(self.x):
                residual = exact(self.x) - exact(self.b) - self.exact_W @ mu
                spread = (abs(self.exact_W) @ sigma) ** 2 if self.fm else self.exact_W**2 @ sigma**2
                total -= self.row_precision @ (residual**2 + spread) / 2
            total -= self.prior_precision @ ((mu - prior_mean) ** 2 + sigma**2) / 2
            two_pi = np.log(2 * LONG(np.pi))
            logs = np.sum(np.log(np.asarray(sd, LONG))) - np.sum(np.log(self.prior_sd[self.proper]))
            logs -= np.sum(np.log(self.sd)) + two_pi * len(self.x) / 2
            logs += 0.5 * np.sum(self.proper) + 0.5 * (1 + two_pi) * np.sum(~self.proper)
            return float(LONG(float(total)) + logs)

    def optimum(self):
        """Return the optimum: the exact posterior mean, and the standard deviations of the objective's own optimum."""
        with precision():
            matrix = np.diag(self.prior_precision)
            right = self.prior_precision * exact(self.prior_mean)
            if len(self.x):
                weighted = self.exact_W.T * self.row_precision
                matrix = matrix + weighted @ self.exact_W
                right = right + weighted @ (exact(self.x) - exact(self.b))
            factor = cholesky(matrix)
            covariance = inverse(factor)
            mean = rounded(solve(factor, right))
            exact_sd = np.sqrt(rounded(np.diag(covariance)))
            sd = 1 / np.sqrt(rounded(self.prior_precision + self.information))
            condition = condition_number(rounded(matrix))
            floor = self._floor(mean, np.abs(rounded(covariance)).astype(float))
        if self.fm:
            sd = self._fm_sd(sd)
        mean, sd = mean.astype(float), sd.astype(float)
        return Optimum(mean, sd, self.value(mean, sd), exact_sd.astype(float), floor, self.slack(mean), condition)

    def _fm_sd(self, sd):
        """Solve ``1 / sd_j^2 = 1 / sd0_j^2 + (1 / sd_j) sum_i |w_ij| s_i / sd_i^2``; all terms are positive."""
        size, rows = np.abs(self.W), self.sd**-2
        prior = np.where(self.proper, self.prior_sd, np.inf) ** -2
        for _ in range(HALVINGS):
            sd = 1 / np.sqrt(prior + size.T @ (rows * (size @ sd)) / sd)
        return sd

    def _floor(self, mean, covariance):
        """Return the shift of the mean, in exact sds, that one unit of rounding in each term leads to, at most."""
        if not len(self.x):
            return 0.0
        W, sd, x, b = (a.astype(float) for a in (self.W, self.sd, self.x, self.b))
        rows = (np.abs(W) @ np.abs(mean).astype(float) + np.abs(b) + np.abs(x)) / sd
        residual = np.abs((self.x - self.b - self.W @ mean) / self.sd).astype(float)
        slope = np.abs(W / sd[:, None]).T @ residual
        return float(np.sqrt(np.sum(rows**2)) + np.sqrt(slope @ covariance @ slope))

    def slack(self, mean):
        """Return the nats that one unit of rounding in the rows' means is worth at a point."""
        if not len(self.x):
            return 1.0
        size = np.abs(self.W) @ np.abs(mean) + np.abs(self.b) + np.abs(self.x)
        residual = np.abs(self.x - self.b - self.W @ np.asarray(mean, LONG))
        prior = np.abs(np.asarray(mean) - self.prior_mean) * (np.abs(mean) + np.abs(self.prior_mean))
        return float(1 + np.sum(residual * size / self.sd**2) + np.sum(prior / self.prior_sd**2))


def condition_number(matrix):
    """Return the ratio of the extreme eigenvalues of a matrix scaled to a unit diagonal; 1e18 stands for more."""
    scale = 1 / np.sqrt(np.diag(matrix))
    values = np.linalg.eigvalsh((matrix * scale * scale[:, None]).astype(float))
    return float(values[-1] / max(values[0], 1e-18))


def stacked(W, b, sd, W1, b1, sd1, prior_mean, prior_sd, x):
    """Return the arguments of ``GaussianOracle`` for two latent layers: ``0 ~ N(y1 - W1 y2 - b1, sd1^2)`` as rows."""
    (n, m), k = W.shape, W1.shape[1]
    joint = np.block([[W, np.zeros((n, k))], [np.eye(m), -np.asarray(W1)]])
    return (
        joint, np.concatenate([b, -np.asarray(b1)]), np.concatenate([sd, sd1]),
        np.concatenate([np.zeros(m), prior_mean]), np.concatenate([np.full(m, np.inf), prior_sd]),
        np.concatenate([x, np.zeros(m)]),
    )  # fmt: skip
