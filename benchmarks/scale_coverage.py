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
MODELS, SEED, LEVELS = {"small": 3, "default": 500, "large": 2000}, 3, (0.9, 0.5)
FAMILIES = {
    "Gaussian, unknown noise": lambda: fmx.Gaussian(sd=fmx.scales.HalfNormal(1.0)),
    "Bernoulli": fmx.Bernoulli,
    "Binomial(8)": lambda: fmx.Binomial(8),
    "Poisson": fmx.Poisson,
}
TITLES = ["rows", "scale", "90 %", "50 %", "ranks", "latents, 90 %", "50 %"]


def random_model(family, rng):
    """Return a model with an intercept, covariates and groups of unknown sd."""
    group = rng.integers(0, N_GROUPS, N_ROWS)
    X = np.c_[np.ones(N_ROWS), rng.standard_normal((N_ROWS, N_FIXED - 1))]
    Z = scipy.sparse.csr_array((np.ones(N_ROWS), (np.arange(N_ROWS), group)), (N_ROWS, N_GROUPS))
    W = scipy.sparse.csr_array(scipy.sparse.hstack([X, Z]))
    sds = [*[0.5] * N_FIXED, *[fmx.scales.HalfNormal(1.0)] * N_GROUPS]
    return fmx.DEF(fmx.Layer(family, W), prior=fmx.Prior(fmx.Gaussian(sd=sds)))


def simulate(family, models, rng):
    """Return the scales' names, the shares of each and of latents in 90 % and 50 % intervals, and the scales' ranks."""
    scales, latents, ranks, p = [], [], [], np.linspace(0.001, 0.999, 999)
    for _ in range(models):
        model = random_model(family(), rng)
        values = np.abs(rng.standard_normal(len(model.unknown_scales)))
        drawn = model.with_scales(values).sample(rng)
        posterior = fmx.infer(model, drawn.x).posterior()
        found = posterior.scales
        ends = [[scale.interval(level) for level in LEVELS] for scale in found.values()]
        scales.append([[low <= truth <= high for low, high in own] for own, truth in zip(ends, values, strict=True)])
        inside = [posterior.interval(level) for level in LEVELS]
        latents.append([(low <= drawn.latents[0]) & (drawn.latents[0] <= high) for low, high in inside])
        ranks.append([np.interp(one, own.quantile(p), p) for own, one in zip(found.values(), values, strict=True)])
    return list(found), np.mean(scales, axis=0), np.mean(latents, axis=(0, 2)), np.transpose(ranks)


def measure(size, say):
    """Return the section of the page."""
    models, rows, of_latents, of_scales = MODELS[size], [], [], []
    for family_name, family in FAMILIES.items():
        say(family_name)
        names, scales, latents, ranks = simulate(family, models, np.random.default_rng(SEED))
        of_latents.append(latents[0])
        for name, shares, own in zip(names, scales, ranks, strict=True):
            distance = scipy.stats.kstest(own, "uniform").statistic
            kind = "noise" if name == "noise" else "sd of the groups"
            rows.append([
                family_name, kind, *(f"{share:.1%}" for share in shares), f"{distance:.3f}",
                *(f"{share:.1%}" for share in latents),
            ])  # fmt: skip
            of_scales.append(shares[0])
    error = np.sqrt(0.09 / models)
    section = Section("scale_coverage", "Coverage with unknown scales")
    section.notes.append(
        f"{models} models of each family with scales and latents drawn from their priors, {N_ROWS} rows, {N_FIXED} "
        f"coefficients and a random intercept of {N_GROUPS} groups: the share of true scales, and of true latents, "
        f"inside their intervals. The standard error of a scale's share of 90 % is {error:.1%}. Ranks: the largest "
        "distance of the distribution of the ranks of true scales from the uniform one, which for exact posteriors is "
        f"below {scipy.stats.kstwo.ppf(0.95, models):.3f} in 95 of 100 cases."
    )
    section.tables.append(Table("", TITLES, rows))
    section.targets = [
        covers("90 % intervals of latents cover, scales unknown", of_latents, 0.02),
        covers("90 % intervals of unknown scales cover", of_scales, 3 * error),
    ]
    return section


def covers(claim, shares, most):
    """Return whether the share furthest from 90 % is at most so far away."""
    furthest = max(shares, key=lambda share: abs(share - 0.9))
    wanted = f"{90 - 100 * most:.0f} to {90 + 100 * most:.0f} %"
    return Target(claim, wanted, f"{furthest:.1%} at worst", bool(abs(furthest - 0.9) <= most))
