"""Problems that forestmix once answered wrongly, or never."""

import numpy as np

from .problem import Problem


def _known(name, kind, rows, W, x, prior, latents="gaussian", parameter=1.0, b=0.0, **options):
    W, x = np.asarray(W, options.pop("dtype", float)), np.asarray(x, float)
    n, m = W.shape
    prior = {key: np.broadcast_to(np.asarray(value, float), m) for key, value in {"bias": 0.0, **prior}.items()}
    wide = [np.array(np.broadcast_to(np.asarray(value, float), n)) for value in (parameter, b)]
    return Problem(kind, np.full(n, rows), wide[0], W, wide[1], latents, prior, x, options, name=name)


def _missing(prior_sd, count=40):
    """Well-conditioned regressions with a tenth of the entries missing, as a batch."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((50, 8)).round(3)
    x = (rng.standard_normal((count, 8)) @ W.T + rng.standard_normal((count, 50))).round(3)
    x[rng.random(x.shape) < 0.1] = np.nan
    return _known(f"missing entries, prior sd {prior_sd:g}", "gaussian", "gaussian", W, x, {"sd": prior_sd})


def _windows():
    """Overlapping windows of side 3 on a square of side 7, two observations, with one entry of the first missing."""
    place, window = np.divmod(np.arange(49), 7), np.divmod(np.arange(81), 9)
    covers = [(p[:, None] - w + 2 >= 0) & (p[:, None] - w + 2 < 3) for p, w in zip(place, window, strict=True)]
    rng, W = np.random.default_rng(0), (covers[0] & covers[1]).astype(float)
    x = (100 * rng.standard_normal((2, 81)) @ W.T + 0.5 * rng.standard_normal((2, 49))).round(2)
    x[0, 5] = np.nan
    return _known("a NaN beside a complete observation", "gaussian", "gaussian", W, x, {"sd": 100.0}, parameter=0.5)


def _nearly_equal_counts():
    rng = np.random.default_rng(1)
    W = rng.standard_normal((12, 5)).round(2)
    W[:, 1] = W[:, 0] * (1 + 1e-6 * rng.standard_normal(12))
    x = np.floor(10.0 ** rng.uniform(10, 12, 12))
    return _known("large counts, nearly equal columns", "poisson", "poisson", W, x, {"sd": 10.0})


def _wide_binomial():
    rng = np.random.default_rng(2)
    trials = np.array([5e5, 3e12, 4e8])
    return _known("many trials", "binomial", "binomial", rng.standard_normal((3, 2)).round(2), np.floor(trials * 0.3),
                  {"sd": 10.0}, parameter=trials)  # fmt: skip


def _exponential_wide():
    rng = np.random.default_rng(5)
    W = rng.standard_normal((5, 15)).round(2)
    x = (W @ rng.exponential(size=15) + 0.3 * rng.standard_normal(5)).round(2)
    return _known("Exponential, 5 rows and 15 latents", "exponential latents", "gaussian", W, x, {"rate": 1.0},
                  "exponential", 0.3, max_iter=1500)  # fmt: skip


KNOWN = [
    _exponential_wide(),
    _known("Laplace runs away", "laplace latents", "gaussian", [[1.0, 1.5]], [3.0], {"scale": 1.0}, "laplace", 0.1),
    _known("Laplace above the evidence", "laplace latents", "gaussian", [[100.0]], [1.0], {"scale": 1e4}, "laplace",
           1e-6, -200.0),
    _known("Laplace, wide", "laplace latents", "gaussian",
           np.random.default_rng(0).standard_normal((3, 6)).round(2), [1.0, -2.0, 0.5], {"scale": 1.0}, "laplace",
           0.01),
    _known("Exponential, wide", "exponential latents", "gaussian",
           np.random.default_rng(0).standard_normal((4, 8)).round(2), [1.0, -2.0, 0.5, 3.0], {"rate": 1.0},
           "exponential", 0.3),
    _known("Poisson, a large weight", "poisson", "poisson", [[100.0]], [3.0], {"sd": 1.0, "bias": 1.0}),
    _known("Poisson, a sum and a difference", "poisson", "poisson", [[1.0, 1.0], [1.0, -1.0]], [17000.0, 6.6e12],
           {"sd": 10.0}),
    _known("little noise", "gaussian", "gaussian", [[1.0, 2.0, 3.0], [1.0, -1.0, 0.5]], [1.0, 2.0], {"sd": 1.0},
           parameter=1e-8),
    _known("one row of little noise", "gaussian", "gaussian",
           np.random.default_rng(3).standard_normal((6, 4)).round(2), [1.0, 2.0, -1.0, 0.3, 0.5, 2.0], {"sd": 1.0},
           parameter=[1e-8, 1.0, 1.0, 1.0, 1.0, 1.0]),
    *[_missing(prior_sd) for prior_sd in (100.0, 1e3, 1e5)],
    _known("a column twice", "gaussian", "gaussian", [[1.0, 1.0, 0.3], [0.5, 0.5, 2.0], [2.0, 2.0, -1.0]],
           [1.0, 2.0, 3.0], {"sd": 1e8}),
    _windows(),
    _known("no counts, wide prior", "poisson", "poisson", [[1.0]], [0.0], {"sd": 100.0}, max_iter=300),
    _known("no counts, wider prior", "poisson", "poisson", [[1.0]], [0.0], {"sd": 1000.0}, max_iter=300),
    _wide_binomial(),
    _nearly_equal_counts(),
    _known("a weight near overflow", "gaussian", "gaussian", [[1e160]], [1.0], {"sd": 1.0}),
    _known("float32, all but certain inclusion", "spike_slab latents", "gaussian", [[1.0, 0.5]], [1.0],
           {"inclusion": 1 - 1e-9, "sd": 1.0}, "spike_slab", dtype=np.float32),
    _known("float32, a rate below its range", "exponential latents", "gaussian", [[1.0, 0.5]], [1.0], {"rate": 1e-60},
           "exponential", dtype=np.float32),
    _known("counts under counts, certain too early", "poisson under poisson", "poisson", [[1.0, 1.0]], [0.0],
           {"bias": [0.0987, 1.76]}, "poisson", algorithm="cavi"),
    _known("a W of zeros", "bernoulli under poisson", "poisson", [[0.0], [0.0]], [2.0, 0.0], {"bias": 0.5},
           "bernoulli"),
    _known("cg from far below", "gaussian", "gaussian", np.random.default_rng(4).standard_normal((8, 6)).round(2),
           [1e4, -2e4, 1.5e4, 3e3, 1e4, 2e4, -1e4, 5e3], {"sd": 1e4}, parameter=1e-2, accelerate="cg"),
]  # fmt: skip
