"""Do intervals cover what they say? Latents and data are drawn from models of each family, and inferred again.

Latents come from the prior, so 90 % intervals of the exact posterior cover 90 % of them (simulation-based calibration,
Talts et al. 2018). The columns of W are correlated, which is where a factorised q is too narrow. For each family: the
share of true latents in 90 % and in 50 % intervals of the corrected posterior and of the factorised q, the largest
distance of the ranks' distribution from the uniform one, and the share of left-out rows in their predictive intervals,
which for counts is at least the level.
"""

import argparse
import time

import numpy as np
import scipy

import forestmix as fmx

#: Rows, latents, observations of each model, and the share of rows that are missing and predicted.
N_ROWS, N_LATENTS, OBSERVATIONS, MISSING = 60, 6, 5, 0.1
#: Weight of the column that all columns share; a correlation of 0.5.
SHARED = 1.0
FAMILIES = {
    "Gaussian": lambda n: fmx.Gaussian(0.8),
    "Bernoulli": lambda n: fmx.Bernoulli(),
    "Binomial(8)": lambda n: fmx.Binomial(8),
    "Poisson": lambda n: fmx.Poisson(),
    "Mixed": lambda n: fmx.Mixed([fmx.Gaussian(0.8), fmx.Poisson(), fmx.Bernoulli()], np.arange(n) % 3),
}


def random_model(family, rng):
    """Return a model with correlated columns."""
    W = rng.standard_normal((N_ROWS, N_LATENTS)) + SHARED * rng.standard_normal((N_ROWS, 1))
    return fmx.DEF(fmx.Layer(family, 0.4 * W, 0.3 * rng.standard_normal(N_ROWS)))


def covered(posterior, truth, level):
    """Return for each latent whether its interval has the truth."""
    low, high = posterior.interval(level)
    return (low <= truth) & (truth <= high)


def simulate(family, models, rng):
    """Return the shares covered, by kind and level, the ranks of the truth, and the share of rows predicted."""
    shares = {(kind, level): [] for kind in ("corrected", "factorised") for level in (0.9, 0.5)}
    ranks, rows = [], []
    for _ in range(models):
        model = random_model(family, rng)
        draw = model.sample(rng, OBSERVATIONS)
        hidden = rng.random(draw.x.shape) < MISSING
        result = fmx.infer(model, np.where(hidden, np.nan, draw.x))
        truth = draw.latents[0]
        posteriors = {kind: result.posterior(kind) for kind in ("corrected", "factorised")}
        for kind, level in shares:
            shares[kind, level].append(covered(posteriors[kind], truth, level))
        posterior = posteriors["corrected"]
        ranks.append(scipy.special.ndtr((truth - posterior.mean) / posterior.sd))
        predicted = posterior.predict(level=0.9)
        rows.append(((predicted.lower <= draw.x) & (draw.x <= predicted.upper))[hidden])
    distance = scipy.stats.kstest(np.ravel(ranks), "uniform").statistic
    return {key: float(np.mean(parts)) for key, parts in shares.items()}, distance, float(np.mean(np.concatenate(rows)))


def main(models=100, seed=0):
    """Print the table."""
    began = time.perf_counter()
    titles = ("corrected 90 %", "corrected 50 %", "factorised 90 %", "factorised 50 %", "ranks", "rows 90 %")
    print(f"{models} models of each family, {OBSERVATIONS} observations each, {N_ROWS} rows, {N_LATENTS} latents")
    print(f"{'rows':<14}" + "".join(f"{title:>17}" for title in titles))
    for name, family in FAMILIES.items():
        shares, distance, rows = simulate(family(N_ROWS), models, np.random.default_rng(seed))
        # The interval of a row of 0 and 1 is that of its probability, which is not where x lies.
        last = f"{rows:>17.1%}" if name not in ("Bernoulli", "Mixed") else f"{'':>17}"
        print(f"{name:<14}" + "".join(f"{share:>17.1%}" for share in shares.values()) + f"{distance:>17.3f}{last}")
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
