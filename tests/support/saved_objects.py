"""Models of every family, depth, precision and kind of weights, each with data drawn from it."""

import numpy as np
import scipy

import forestmix as fmx

N_ROWS, N_LATENT = 14, 5
RNG = np.random.default_rng(5)
W = RNG.normal(size=(N_ROWS, N_LATENT))
SPARSE = scipy.sparse.random_array((N_ROWS, N_LATENT), density=0.4, rng=RNG, format="csr") + scipy.sparse.csr_array(
    (np.ones(N_LATENT), (np.arange(N_LATENT), np.arange(N_LATENT))), shape=(N_ROWS, N_LATENT)
)
UPPER = 0.4 * RNG.normal(size=(N_LATENT, 3))
WHICH = np.arange(N_ROWS) % 3
TAU = fmx.scales.HalfNormal(1.0)


def flat(family=None, prior=None, weights=W, bias=0.1):
    family = fmx.Gaussian(0.7) if family is None else family
    return fmx.DEF(fmx.Layer(family, weights, bias), prior=fmx.Prior(fmx.Gaussian(0.5)) if prior is None else prior)


def weighted(family):
    return fmx.DEF(fmx.Layer(family, W, case_weights=np.arange(N_ROWS) % 3), prior=fmx.Prior(fmx.Gaussian(0.5)))


ROWS = {
    "gaussian": lambda: flat(),
    "gaussian, an sd each": lambda: flat(fmx.Gaussian(np.linspace(0.3, 1, N_ROWS))),
    "bernoulli": lambda: flat(fmx.Bernoulli()),
    "binomial": lambda: flat(fmx.Binomial(np.arange(1, N_ROWS + 1))),
    "poisson": lambda: flat(fmx.Poisson()),
    "mixed": lambda: flat(fmx.Mixed([fmx.Gaussian(0.5), fmx.Poisson(), fmx.Bernoulli()], WHICH)),
    "gaussian, case weights": lambda: weighted(fmx.Gaussian(0.5)),
    "poisson, case weights": lambda: weighted(fmx.Poisson()),
}
PRIORS = {
    "bernoulli": lambda: flat(prior=fmx.Prior(fmx.Bernoulli(), -0.5)),
    "poisson": lambda: flat(prior=fmx.Prior(fmx.Poisson(), -0.5)),
    "exponential": lambda: flat(prior=fmx.Prior(fmx.Exponential(2.0))),
    "laplace": lambda: flat(prior=fmx.Prior(fmx.Laplace(0.5), 0.2)),
    "spike and slab": lambda: flat(prior=fmx.Prior(fmx.SpikeSlab(0.3, 2.0))),
    "gaussian, an sd each": lambda: flat(
        prior=fmx.Prior(fmx.Gaussian(np.linspace(0.5, 2, N_LATENT)), np.arange(N_LATENT) / 4)
    ),
}
WEIGHTS = {
    "by columns": lambda: flat(weights=np.asfortranarray(W)),
    "cut out": lambda: flat(weights=np.pad(W, 2)[2:-2, 2:-2]),
    "sparse": lambda: flat(weights=SPARSE),
    "sparse by columns": lambda: flat(weights=SPARSE.tocsc()),
    "windows": lambda: flat(weights=fmx.windows((4, 4), 2)),
    "convolution": lambda: flat(weights=fmx.Convolution(np.ones((2, 1, 3, 3)) / 3, (4, 4))),
    "float32": lambda: flat(weights=W.astype(np.float32)),
    "sparse float32": lambda: flat(fmx.Poisson(), weights=SPARSE.astype(np.float32)),
}
DEPTHS = {
    "two layers": lambda: fmx.DEF(
        fmx.Layer(fmx.Gaussian(0.6), W), fmx.Layer(fmx.Gaussian(0.9), UPPER, 0.2), prior=fmx.Prior(fmx.Gaussian(1.0))
    ),
    "two layers, counts": lambda: fmx.DEF(fmx.Layer(fmx.Poisson(), W), fmx.Layer(fmx.Gaussian(0.5), UPPER)),
    "two layers, float32": lambda: fmx.DEF(
        fmx.Layer(fmx.Gaussian(0.6), W.astype(np.float32)), fmx.Layer(fmx.Gaussian(0.9), UPPER.astype(np.float32))
    ),
    "two layers, binary": lambda: fmx.DEF(
        fmx.Layer(fmx.Gaussian(0.6), W), fmx.Layer(fmx.Bernoulli(), UPPER), prior=fmx.Prior(fmx.Gaussian(1.0))
    ),
    "three layers": lambda: fmx.DEF(
        fmx.Layer(fmx.Gaussian(0.6), W), fmx.Layer(fmx.Gaussian(0.9), UPPER), fmx.Layer(fmx.Gaussian(1.0), np.eye(3))
    ),
}
UNKNOWN = {
    "noise": lambda: flat(fmx.Gaussian()),
    "noise and one sd of several": lambda: flat(
        fmx.Gaussian(fmx.scales.HalfCauchy(1.0)), fmx.Prior(fmx.Gaussian(sd=[2.0, 2.0, *[TAU] * 3]))
    ),
    "one scale twice": lambda: flat(fmx.Gaussian(sd=[TAU] * N_ROWS), fmx.Prior(fmx.Gaussian(sd=TAU))),
    "counts": lambda: flat(fmx.Poisson(), fmx.Prior(fmx.Gaussian(sd=fmx.scales.InverseGamma(2.0, 1.0)))),
    "mixed": lambda: flat(fmx.Mixed([fmx.Gaussian(fmx.scales.HalfStudentT(3, 1.0)), fmx.Poisson()], WHICH % 2)),
}
KNOWN = {
    f"{group}: {name}": make
    for group, table in {"rows": ROWS, "prior": PRIORS, "weights": WEIGHTS, "depth": DEPTHS}.items()
    for name, make in table.items()
}


def known_scales(model):
    return model.with_scales(np.full(len(model.unknown_scales), 0.8)) if model.unknown_scales else model


def data(model, size=None):
    """Data with a missing entry, drawn from the model."""
    x = known_scales(model).sample(3, size).x
    x[..., 2] = np.nan
    return x


def same(first, second):
    """Whether two arrays, or numbers, are the same bit for bit, in the same precision and shape."""
    first, second = np.asarray(first), np.asarray(second)
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()
