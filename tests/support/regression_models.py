"""Generated problems with rows of every family, the hard ones among them, and a generic optimiser to compare with."""

from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse

import forestmix as fmx


class Regression(NamedTuple):
    model: fmx.DEF
    x: np.ndarray


def design(rng, n, m, density=1.0, scale=1.0):
    return scale * rng.standard_normal((n, m)) * (rng.random((n, m)) < density) / np.sqrt(max(m * density, 1))


def problem(family, W, rng, bias=0.0, x=None):
    model = fmx.DEF(fmx.Layer(family, W, bias), prior=fmx.Prior(fmx.Gaussian(rng.uniform(0.5, 2.0, W.shape[1]))))
    return Regression(model, model.sample(rng).x if x is None else x)


def separable(rng):
    """A plane divides the ones from the zeros, so without a prior there is no optimum."""
    W = rng.standard_normal((40, 5))
    return problem(fmx.Bernoulli(), W, rng, x=(W @ np.ones(5) > 0).astype(float))


def huge_counts(rng):
    """Counts of about a million."""
    W = design(rng, 30, 4, scale=0.5)
    return problem(fmx.Poisson(), W, rng, bias=np.log(1e6))


def scaled_columns(family):
    def build(rng):
        W = design(rng, 40, 6) * 10 ** np.linspace(-4, 4, 6)
        model = fmx.DEF(fmx.Layer(family, W))
        y = rng.standard_normal(6) * 10 ** -np.linspace(-4, 4, 6)
        return Regression(model, family.sample(W @ y, rng))

    return build


def mixed(rng):
    which = rng.integers(0, 4, 40)
    family = fmx.Mixed([fmx.Gaussian(0.5), fmx.Bernoulli(), fmx.Binomial(9), fmx.Poisson()], which)
    return problem(family, design(rng, 40, 6), rng)


PROBLEMS = {
    "gaussian": lambda rng: problem(fmx.Gaussian(0.7), design(rng, 30, 5), rng),
    "bernoulli": lambda rng: problem(fmx.Bernoulli(), design(rng, 40, 6, scale=2.0), rng),
    "bernoulli, sparse": lambda rng: problem(fmx.Bernoulli(), sparse.csr_array(design(rng, 60, 8, 0.3)), rng),
    "binomial": lambda rng: problem(fmx.Binomial(rng.integers(1, 30, 40)), design(rng, 40, 6), rng, bias=-1.0),
    "binomial, sparse": lambda rng: problem(fmx.Binomial(12), sparse.coo_array(design(rng, 60, 8, 0.3)), rng),
    "poisson": lambda rng: problem(fmx.Poisson(), design(rng, 40, 6), rng, bias=rng.uniform(-1, 2, 40)),
    "poisson, sparse": lambda rng: problem(fmx.Poisson(), sparse.csc_array(design(rng, 60, 8, 0.3)), rng),
    "poisson, zero counts only": lambda rng: problem(fmx.Poisson(), design(rng, 30, 5), rng, x=np.zeros(30)),
    "poisson, huge counts": huge_counts,
    "bernoulli, separable": separable,
    "bernoulli, all ones": lambda rng: problem(fmx.Bernoulli(), design(rng, 30, 5), rng, x=np.ones(30)),
    "bernoulli, scaled columns": scaled_columns(fmx.Bernoulli()),
    "binomial, scaled columns": scaled_columns(fmx.Binomial(5)),
    "poisson, scaled columns": scaled_columns(fmx.Poisson()),
    "mixed": mixed,
}


def generic_optimum(model, x, objective, start):
    """The best value that SciPy finds, from ``start`` on, with nothing but the public bound and a numerical Hessian.

    The variables are the means in units of the start's standard deviations, and the logarithms of the latter, which is
    only a choice of units; gradients are central differences of the bound, so none of forestmix's own are used.
    """
    bound = {"elbo": fmx.elbo, "fm": fmx.fm_bound}[objective]
    mean0, sd0 = (np.asarray(part, float) for part in start)
    m = len(mean0)

    def negatives(z):
        """Minus the bound at each row of z, in one call."""
        data = np.broadcast_to(x, (len(z), len(x)))
        with np.errstate(all="ignore"):
            values = bound(model, data, (mean0 + sd0 * z[:, :m], sd0 * np.exp(np.clip(z[:, m:], -20, 20))))
        return np.where(np.isfinite(values), -values, 1e300)

    def negative(z):
        return negatives(z[None])[0]

    def gradient(z):
        steps = np.diag(np.finfo(float).eps ** (1 / 3) * np.maximum(1, np.abs(z)))
        above, below = np.split(negatives(np.concatenate([z + steps, z - steps])), 2)
        return (above - below) / (2 * np.diag(steps))

    options = {"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-10}
    z = optimize.minimize(negative, np.zeros(2 * m), method="L-BFGS-B", jac=gradient, options=options).x
    return -optimize.minimize(negative, z, method="Powell", options={"maxfev": 300, "xtol": 1e-9, "ftol": 1e-15}).fun
