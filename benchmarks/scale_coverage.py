"""Do intervals cover what they say where scales are unknown? Scales, latents and data are drawn, and inferred again.

As ``coverage``, for models with a random intercept: scales come from their priors too, so 90 % intervals of the exact
posterior cover 90 % of true scales and of true latents.
"""

import numpy as np
import scipy

import forestmix as fmx
from benchmarks.harness.results import Section, Table, Target

#: Rows, coefficients and groups of each model.
N_ROWS, N_FIXED, N_GROUPS = 150, 3, 12
MODELS, SEED = {"small": 3, "default": 200, "large": 1000}, 3
FAMILIES = {
    "Gaussian, unknown noise": lambda: fmx.Gaussian(sd=fmx.scales.HalfNormal(1.0)),
    "Bernoulli": fmx.Bernoulli,
    "Binomial(8)": lambda: fmx.Binomial(8),
    "Poisson": fmx.Poisson,
}
TITLES = ["rows", "sd of the groups, 90 %", "50 %", "latents, 90 %", "50 %", "ranks of the sd"]


def random_model(family, rng):
    """Return a model with an intercept, covariates and groups of unknown sd."""
    group = rng.integers(0, N_GROUPS, N_ROWS)
    X = np.c_[np.ones(N_ROWS), rng.standard_normal((N_ROWS, N_FIXED - 1))]
    Z = scipy.sparse.csr_array((np.ones(N_ROWS), (np.arange(N_ROWS), group)), (N_ROWS, N_GROUPS))
    W = scipy.sparse.csr_array(scipy.sparse.hstack([X, Z]))
    sds = [*[0.5] * N_FIXED, *[fmx.scales.HalfNormal(1.0)] * N_GROUPS]
    return fmx.DEF(fmx.Layer(family, W), prior=fmx.Prior(fmx.Gaussian(sd=sds)))


def simulate(family, models, rng):
    """Return the shares of sds and of latents inside their 90 % and 50 % intervals, and the ranks of the sds."""
    scales, latents, ranks = [], [], []
    for _ in range(models):
        model = random_model(family(), rng)
        values = np.abs(rng.standard_normal(len(model.unknown_scales)))
        known = model.with_scales(values)
        drawn = known.sample(rng)
        posterior = fmx.infer(model, drawn.x).posterior()
        scale, truth = list(posterior.scales.values())[-1], values[-1]
        ends = [(scale.interval(level), posterior.interval(level)) for level in (0.9, 0.5)]
        scales.append([own[0] <= truth <= own[1] for own, _ in ends])
        latents.append([(own[0] <= drawn.latents[0]) & (drawn.latents[0] <= own[1]) for _, own in ends])
        p = np.linspace(0.001, 0.999, 999)
        ranks.append(np.interp(truth, scale.quantile(p), p))
    return np.mean(scales, axis=0), np.mean(latents, axis=(0, 2)), np.array(ranks)


def measure(size, say):
    """Return the section of the page."""
    models, rows, worst = MODELS[size], [], []
    for name, family in FAMILIES.items():
        say(name)
        scales, latents, ranks = simulate(family, models, np.random.default_rng(SEED))
        distance = scipy.stats.kstest(ranks, "uniform").statistic
        rows.append([name, *(f"{share:.1%}" for share in (*scales, *latents)), f"{distance:.3f}"])
        worst.append(latents[0])
    error, furthest = np.sqrt(0.09 / models), max(worst, key=lambda share: abs(share - 0.9))
    section = Section("scale_coverage", "Coverage with unknown scales")
    section.notes.append(
        f"{models} models of each family with scales and latents drawn from their priors, {N_ROWS} rows, {N_FIXED} "
        f"coefficients and a random intercept of {N_GROUPS} groups: the share of true sds of the groups, and of true "
        f"latents, inside their intervals. The standard error of a share of 90 % is {error:.1%} for the sd. The last "
        "column is the largest distance of the distribution of the ranks of the sds from the uniform one."
    )
    section.tables.append(Table("", TITLES, rows))
    section.targets.append(
        Target(
            "90 % intervals of latents cover, scales unknown", "88 to 92 %", f"{furthest:.1%} at worst",
            bool(0.88 <= furthest <= 0.92),
        )
    )  # fmt: skip
    return section
