"""Generated problems, ill-scaled on purpose. ``KINDS`` has a generator for every kind of model."""

import numpy as np

from .problem import Problem

#: What is drawn, as powers of ten; the table of docs/ranges.md is about these.
NOISE = (-8.0, 4.0)
PRIOR_SD = (-3.0, 8.0)
PRIOR_SD_OF_COUNTS = (-3.0, 3.0)
COLUMNS = (-4.0, 4.0)
COLUMNS_OF_COUNTS = (-2.0, 2.0)
NEARLY_EQUAL = (-10.0, -1.0)
LARGEST_COUNT = 12.0
LARGEST = 12
#: Iterations at most: of steps that are cheap, of those of other latents, and of Newton's, which need few.
ITERATIONS, LATENT_ITERATIONS, NEWTON_ITERATIONS = 2000, 500, 300

#: Options of ``infer`` with how often they are drawn.
GAUSSIAN_OPTIONS = [
    (6, {}), (2, {"accelerate": "cg"}), (2, {"accelerate": "direct"}), (1, {"accelerate": False}),
    (2, {"objective": "fm"}), (1, {"objective": "fm", "accelerate": False}), (1, {"algorithm": "cavi"}),
    (1, {"algorithm": "block"}),
]  # fmt: skip
ROW_OPTIONS = [
    (6, {}), (1, {"accelerate": False}), (2, {"objective": "fm"}), (1, {"objective": "fm", "accelerate": False}),
    (1, {"algorithm": "cavi"}),
]  # fmt: skip
LATENT_OPTIONS = [(6, {}), (2, {"accelerate": False}), (2, {"algorithm": "cavi"})]
COUNT_OPTIONS = [(3, {}), (2, {"algorithm": "cavi"})]


def power(rng, low, high, size=None):
    """Return ten to a uniform power, with three digits."""
    return digits(10.0 ** rng.uniform(low, high, size))


def digits(values, count=3):
    """Return the values with few digits, so that a line of code that repeats them stays short."""
    array = np.asarray(values, float)
    with np.errstate(all="ignore"):
        scale = 10.0 ** (count - 1 - np.floor(np.log10(np.abs(array))))
        return np.where((array == 0) | ~np.isfinite(scale), array, np.round(array * scale) / scale)


def choose(rng, options, newton=False, plain_limit=ITERATIONS):
    """Return one of the options, by weight, with the limit of iterations."""
    weights = np.array([weight for weight, _ in options], float)
    chosen = options[rng.choice(len(options), p=weights / weights.sum())][1]
    plain = "algorithm" in chosen or chosen.get("accelerate") is False
    return {**chosen, "max_iter": NEWTON_ITERATIONS if newton and not plain else plain_limit}


def shape(rng, largest):
    """Return the number of rows and of latents; each order of the two is as likely."""
    n, m = rng.integers(1, largest + 1, 2)
    return (n, n) if rng.random() < 0.25 else (n, m)


def weights(rng, n, m, columns):
    """Return W with some of: sparse entries, columns of very different size, nearly equal, equal and zero columns."""
    W = digits(rng.standard_normal((n, m)))
    if rng.random() < 0.3:
        W = W * (rng.random((n, m)) < 0.5)
    if rng.random() < 0.35:
        W = digits(W * power(rng, *columns, m))
    elif rng.random() < 0.3:
        W = digits(W * power(rng, *columns))
    for _ in range(2):
        if m >= 2 and rng.random() < 0.25:
            j, k = rng.choice(m, 2, replace=False)
            W[:, k] = W[:, j] * (1 + power(rng, *NEARLY_EQUAL) * digits(rng.standard_normal(n)))
    if m >= 2 and rng.random() < 0.1:
        j, k = rng.choice(m, 2, replace=False)
        W[:, k] = W[:, j] * rng.choice([1.0, -1.0])
    if rng.random() < 0.1:
        W[:, rng.integers(m)] = 0
    if rng.random() < 0.1:
        W[rng.integers(n)] = 0
    return W


def scales(rng, low, high, size, spread=0.4):
    """Return one scale for all, or with some probability one for each."""
    if rng.random() < spread:
        return np.clip(power(rng, low, high) * power(rng, -4, 4, size), 10.0**low, 10.0**high)
    return np.full(size, power(rng, low, high))


def noise(rng, n):
    """Return the noise of rows: alike, very different, or one row that is all but exact."""
    sd = scales(rng, *NOISE, n)
    if rng.random() < 0.15:
        sd[rng.integers(n)] = 10.0 ** NOISE[0]
    return sd


def location(rng, sd):
    """Return prior means: zero, on the prior's scale, or far off."""
    size = len(sd)
    kind = rng.random()
    if kind < 0.5:
        return np.zeros(size)
    return digits(rng.standard_normal(size) * (sd if kind < 0.75 else power(rng, -2, 3)))


def bias(rng, n, size=3.0):
    """Return the biases of rows."""
    return digits(rng.standard_normal(n) * power(rng, -1, size)) if rng.random() < 0.3 else np.zeros(n)


def observations(rng, draw, n):
    """Return one observation or a batch, with entries missing in some."""
    count = rng.integers(1, 5) if rng.random() < 0.2 else 0
    x = np.array([draw() for _ in range(max(count, 1))])
    if rng.random() < 0.25:
        missing = rng.random(x.shape) < rng.uniform(0.05, 0.5)
        x[missing] = np.nan
    return x if count else x[0]


def gaussian_x(rng, W, b, sd, y):
    """Return a function that draws x from the model, given a way to draw y, or far from it."""
    n, m = W.shape
    size, kind = power(rng, -3, 6), rng.random()

    def draw():
        if kind < 0.35:
            return digits(size * rng.standard_normal(n), 5)
        # Latents of a size of one under a prior that is wider or narrower are the third way.
        latents = y() if kind < 0.7 else rng.standard_normal(m)
        return digits(W @ latents + b + sd * rng.standard_normal(n), 5)

    return draw


def as_float32(rng, problem, share=0.1):
    """Return some problems with float32 weights, and everything else rounded to float32."""
    if rng.random() >= share:
        return problem
    from dataclasses import replace

    def single(values):
        return np.asarray(values, np.float32).astype(float)

    prior = {name: single(values) for name, values in problem.prior.items()}
    above = problem.above and (problem.above[0].astype(np.float32), *map(single, problem.above[1:]))
    return replace(
        problem, W=problem.W.astype(np.float32), b=single(problem.b), parameter=single(problem.parameter), prior=prior,
        x=single(problem.x), above=above,
    )  # fmt: skip


def gaussian(rng, largest):
    """Gaussian rows and latents."""
    n, m = shape(rng, largest)
    W, sd, prior_sd, b = weights(rng, n, m, COLUMNS), noise(rng, n), scales(rng, *PRIOR_SD, m), bias(rng, n)
    mean = location(rng, prior_sd)
    draw = gaussian_x(rng, W, b, sd, lambda: mean + prior_sd * rng.standard_normal(m))
    problem = Problem("gaussian", np.full(n, "gaussian"), sd, W, b, "gaussian", {"sd": prior_sd, "bias": mean},
                      observations(rng, draw, n), choose(rng, GAUSSIAN_OPTIONS))  # fmt: skip
    return as_float32(rng, problem)


def deep(rng, largest):
    """Two layers of Gaussian latents under Gaussian rows."""
    n, m, k = rng.integers(1, min(largest, 7) + 1, 3)
    W, W1 = weights(rng, n, m, (-2, 2)), weights(rng, m, k, (-2, 2))
    sd, sd1 = np.clip(noise(rng, n), 1e-4, None), scales(rng, -3, 3, m)
    prior_sd, b, b1 = scales(rng, -3, 5, k), bias(rng, n), bias(rng, m)
    mean = location(rng, prior_sd)

    def y():
        return W1 @ (mean + prior_sd * rng.standard_normal(k)) + b1 + sd1 * rng.standard_normal(m)

    draw = gaussian_x(rng, W, b, sd, y)
    options = [(6, {}), (1, {"accelerate": "cg"}), (1, {"accelerate": "direct"}), (1, {"accelerate": False}),
               (1, {"algorithm": "cavi"})]  # fmt: skip
    return Problem("deep", np.full(n, "gaussian"), sd, W, b, "gaussian", {"sd": prior_sd, "bias": mean},
                   observations(rng, draw, n), choose(rng, options), (W1, b1, sd1))  # fmt: skip


def count_x(rng, family, trials, eta):
    """Return counts drawn from the model at eta, or far from it: zeros, all trials, and counts of any size."""
    n = len(eta)
    far = power(rng, 0, LARGEST_COUNT, n).astype(np.int64) * (rng.random(n) < 0.8)
    if family == "poisson":
        rate = np.exp(np.clip(eta, -50, np.log(10.0**LARGEST_COUNT)))
        return (rng.poisson(rate) if rng.random() < 0.6 else far).astype(float)
    drawn = rng.binomial(trials.astype(np.int64), 1 / (1 + np.exp(-np.clip(eta, -50, 50))))
    return (drawn if rng.random() < 0.7 else far % (trials.astype(np.int64) + 1)).astype(float)


def rows_under_gaussian(family):
    """Return the generator for rows of a family, or "mixed", under Gaussian latents."""

    def generate(rng, largest):
        n, m = shape(rng, largest)
        W, prior_sd = weights(rng, n, m, COLUMNS_OF_COUNTS), scales(rng, *PRIOR_SD_OF_COUNTS, m)
        names = np.array(["gaussian", "bernoulli", "binomial", "poisson"])
        rows = rng.choice(names, n) if family == "mixed" else np.full(n, family)
        trials = np.maximum(1, np.floor(power(rng, 0, LARGEST_COUNT, n) if rng.random() < 0.5 else power(rng, 0, 3, n)))
        parameter = np.where(rows == "gaussian", power(rng, -3, 3, n), np.where(rows == "binomial", trials, 1.0))
        mean, b = location(rng, prior_sd), bias(rng, n, 1.0)
        mean = np.clip(mean, -1e3, 1e3)

        def draw():
            eta = W @ (mean + prior_sd * rng.standard_normal(m)) + b
            x = digits(eta + parameter * rng.standard_normal(n), 5)
            for name in ("bernoulli", "binomial", "poisson"):
                x = np.where(rows == name, count_x(rng, name, parameter, eta), x)
            return x

        problem = Problem(family, rows, parameter, W, b, "gaussian", {"sd": prior_sd, "bias": mean},
                          observations(rng, draw, n), choose(rng, ROW_OPTIONS, True))  # fmt: skip
        return problem if np.nanmax(np.abs(parameter)) > 1e6 else as_float32(rng, problem, 0.05)

    return generate


def latents_under_gaussian(family):
    """Return the generator for latents of a family under Gaussian rows."""

    def generate(rng, largest):
        n, m = shape(rng, min(largest, 8))
        W = weights(rng, n, m, (-2, 2))
        sd = scales(rng, -3, 3, n, 0.25)
        prior, draw_y = latent_prior(rng, family, m)
        b = bias(rng, n, 2.0)
        draw = gaussian_x(rng, W, b, sd, draw_y)
        return Problem(f"{family} latents", np.full(n, "gaussian"), sd, W, b, family, prior,
                       observations(rng, draw, n), choose(rng, LATENT_OPTIONS, True, LATENT_ITERATIONS))  # fmt: skip

    return generate


def latent_prior(rng, family, m):
    """Return the parameters of a prior, and a way to draw from it."""
    zero = np.zeros(m)
    if family == "laplace":
        scale = scales(rng, -2, 4, m)
        mean = location(rng, scale)
        return {"scale": scale, "bias": mean}, lambda: mean + scale * rng.laplace(size=m)
    if family == "exponential":
        rate = scales(rng, -4, 2, m)
        return {"rate": rate, "bias": zero}, lambda: rng.exponential(size=m) / rate
    if family == "spike_slab":
        inclusion, sd = np.clip(scales(rng, -6, -0.01, m), 1e-6, 0.97), scales(rng, -2, 3, m)
        mean = location(rng, sd)
        prior = {"inclusion": inclusion, "sd": sd, "bias": mean}
        return prior, lambda: (rng.random(m) < inclusion) * (mean + sd * rng.standard_normal(m))
    if family == "bernoulli":
        logit = digits(rng.standard_normal(m) * power(rng, -1, 1))
        return {"bias": logit}, lambda: (rng.random(m) < 1 / (1 + np.exp(-logit))) * 1.0
    log_rate = digits(np.clip(rng.standard_normal(m) * 1.5, -4, 4))
    return {"bias": log_rate}, lambda: rng.poisson(np.exp(log_rate)) * 1.0


def counts_under_counts(rows, latents):
    """Return the generator for binary latents or counts under rows that are counts."""

    def generate(rng, largest):
        n, m = int(rng.integers(1, 9)), int(rng.integers(1, min(largest, 6) + 1 if latents == "bernoulli" else 3))
        W = np.clip(digits(weights(rng, n, m, (-2, 1.0)), 4), -30, 30)
        W = np.clip(W, -3, 1) if latents == "poisson" else W
        b = bias(rng, n, 0.5)
        trials = np.maximum(1, np.floor(power(rng, 0, 3, n))) if rows == "binomial" else np.ones(n)
        prior, draw_y = latent_prior(rng, latents, m)

        def draw():
            return count_x(rng, rows, trials, W @ draw_y() + b)

        x = observations(rng, draw, n)
        return Problem(f"{latents} under {rows}", np.full(n, rows), trials, W, b, latents, prior, np.minimum(x, 1e6),
                       choose(rng, COUNT_OPTIONS, True, NEWTON_ITERATIONS))  # fmt: skip

    return generate


KINDS = {
    "gaussian": gaussian,
    "deep": deep,
    **{family: rows_under_gaussian(family) for family in ("bernoulli", "binomial", "poisson", "mixed")},
    **{
        f"{family} latents": latents_under_gaussian(family)
        for family in ("laplace", "exponential", "spike_slab", "bernoulli", "poisson")
    },
    **{
        f"{latents} under {rows}": counts_under_counts(rows, latents)
        for latents in ("bernoulli", "poisson")
        for rows in ("bernoulli", "binomial", "poisson")
    },
}
