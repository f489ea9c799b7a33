"""Independent answers: high precision, explicit loops and dense linear algebra, none of it forestmix's own code."""

import mpmath
import numpy as np

mpmath.mp.dps = 80


def posterior(W, b, sd, prior_mean, prior_sd, x):
    """Mean and covariance of p(y | x) by dense linear algebra."""
    n, m = W.shape
    sd, prior_sd = np.broadcast_to(sd, n), np.broadcast_to(prior_sd, m)
    precision = np.diag(prior_sd**-2.0) + (W / sd[:, None] ** 2).T @ W
    covariance = np.linalg.inv(precision)
    return covariance @ (prior_mean / prior_sd**2 * np.ones(m) + W.T @ ((x - b) / sd**2)), covariance


def log_evidence(case):
    """log N(x; b + W mu0, diag(sd^2) + W diag(sd0^2) W^T) with 80 digits."""
    W, n = mpmath.matrix(case.W.tolist()), len(case.x)
    prior = mpmath.diag([mpmath.mpf(v) ** 2 for v in case.prior_sd])
    covariance = W * prior * W.T + mpmath.diag([mpmath.mpf(v) ** 2 for v in case.sd])
    mean = W * mpmath.matrix(case.prior_mean.tolist())
    residual = mpmath.matrix([mpmath.mpf(case.x[i]) - mpmath.mpf(case.b[i]) - mean[i] for i in range(n)])
    distance = (residual.T * mpmath.lu_solve(covariance, residual))[0]
    return float(-(distance + mpmath.log(mpmath.det(covariance)) + n * mpmath.log(2 * mpmath.pi)) / 2)


def divergence(case):
    """KL(q || p) of all factors, term by term."""
    total = mpmath.mpf(0)
    for mu, s, m0, s0 in zip(case.mean, case.q_sd, case.prior_mean, case.prior_sd, strict=True):
        mu, s, m0, s0 = map(mpmath.mpf, (mu, s, m0, s0))
        total += mpmath.log(s0 / s) + (s**2 + (mu - m0) ** 2) / (2 * s0**2) - mpmath.mpf(1) / 2
    return total


def expected_log_normal(x, mean, variance, sd):
    """E log N(x; eta, sd^2) for eta of the given mean and variance."""
    x, mean, variance, sd = map(mpmath.mpf, (x, mean, variance, sd))
    return -mpmath.log(2 * mpmath.pi) / 2 - mpmath.log(sd) - ((x - mean) ** 2 + variance) / (2 * sd**2)


def elbo(case):
    """E_q log p(x, y) + H(q), from the mean and variance of eta_i under q."""
    total = -divergence(case)
    for i, row in enumerate(case.W):
        mean = mpmath.mpf(case.b[i]) + sum(mpmath.mpf(w) * mpmath.mpf(mu) for w, mu in zip(row, case.mean, strict=True))
        variance = sum((mpmath.mpf(w) * mpmath.mpf(s)) ** 2 for w, s in zip(row, case.q_sd, strict=True))
        total += expected_log_normal(case.x[i], mean, variance, case.sd[i])
    return float(total)


def forest_mixture_elbo(case, epsilon, b_hat):
    """The ELBO of a forest mixture model (paper, equation 1) with p(e_i) = q(e_i) = epsilon_i.

    Each x_i has one parent j, drawn from epsilon_i, and then x_i ~ N(b_hat_ij + w_ij y_j / epsilon_ij, sd_i^2). A row
    whose variable has no parent at all is N(b_i, sd_i^2).
    """
    total = -divergence(case)
    for i, row in enumerate(case.W):
        parents = [j for j in range(len(row)) if epsilon[i, j] > 0]
        if not parents:
            total += expected_log_normal(case.x[i], case.b[i], 0, case.sd[i])
        # sum_j q(e_ij) log(p(e_ij) / q(e_ij)) is zero, the two being the same.
        for j in parents:
            weight = mpmath.mpf(row[j]) / mpmath.mpf(epsilon[i, j])
            mean = mpmath.mpf(b_hat[i, j]) + weight * mpmath.mpf(case.mean[j])
            variance = (weight * mpmath.mpf(case.q_sd[j])) ** 2
            total += mpmath.mpf(epsilon[i, j]) * expected_log_normal(case.x[i], mean, variance, case.sd[i])
    return float(total)


def ridge(W, b, x, mean, sd=1.0, prior_sd=1.0):
    """The ridge regression objective of the paper's section 7."""
    return 0.5 * np.sum(((x - b - W @ mean) / sd) ** 2) + 0.5 * np.sum((mean / prior_sd) ** 2)
