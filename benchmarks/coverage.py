"""Do intervals cover what they say? Latents and data are drawn from models of each family, and inferred again.

Latents come from the prior, so 90 % intervals of the exact posterior cover 90 % of them (simulation-based calibration,
Talts et al. 2018). The columns of W are correlated, which is where a factorised q is too narrow. For each family: the
share of true latents in 90 % and in 50 % intervals of the corrected posterior and of the factorised q, the largest
distance of the ranks' distribution from the uniform one, and the share of left-out rows in their predictive intervals,
which for counts is at least the level.
"""

from pathlib import Path

import numpy as np
import scipy

import forestmix as fmx
from benchmarks.harness.results import Section, Table, Target

#: Rows, latents, observations of each model, and the share of rows that are missing and predicted.
N_ROWS, N_LATENTS, OBSERVATIONS, MISSING = 60, 6, 5, 0.1
#: Weight of the column that all columns share; a correlation of 0.5.
SHARED = 1.0
MODELS, SEED = {"small": 5, "default": 500, "large": 2000}, 0
PICTURE = Path("docs/coverage.png")
TITLES = ["rows", "corrected 90 %", "corrected 50 %", "factorised 90 %", "factorised 50 %", "ranks", "rows 90 %"]
KINDS = ("corrected", "factorised")
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
    shares = {(kind, level): [] for kind in KINDS for level in (0.9, 0.5)}
    ranks, rows = {kind: [] for kind in KINDS}, []
    for _ in range(models):
        model = random_model(family, rng)
        draw = model.sample(rng, OBSERVATIONS)
        hidden = rng.random(draw.x.shape) < MISSING
        result = fmx.infer(model, np.where(hidden, np.nan, draw.x))
        truth = draw.latents[0]
        posteriors = {kind: result.posterior(kind) for kind in KINDS}
        for kind, level in shares:
            shares[kind, level].append(covered(posteriors[kind], truth, level))
        for kind, posterior in posteriors.items():
            ranks[kind].append(scipy.special.ndtr((truth - posterior.mean) / posterior.sd))
        predicted = posteriors["corrected"].predict(level=0.9)
        rows.append(((predicted.lower <= draw.x) & (draw.x <= predicted.upper))[hidden])
    shares = {key: float(np.mean(parts)) for key, parts in shares.items()}
    return shares, {kind: np.ravel(parts) for kind, parts in ranks.items()}, float(np.mean(np.concatenate(rows)))


def draw(ranks, path):
    """Draw the ranks of the truth in the posterior, which are uniform for one that is right."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(ranks), figsize=(11, 2.4), sharey=True, layout="constrained")
    for axis, (name, kinds) in zip(axes, ranks.items(), strict=True):
        for kind, colour in (("factorised", "#D55E00"), ("corrected", "#0072B2")):
            axis.hist(
                kinds[kind], 20, range=(0, 1), density=True, histtype="step", color=colour, linewidth=1.6, label=kind
            )
        axis.axhline(1.0, color="#999999", linewidth=0.8, linestyle="--")
        axis.set_title(name, loc="left", fontsize="medium")
        axis.set_xlabel("rank of the truth")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("density")
    axes[0].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=110)


def measure(size, say):
    """Return the section of the page; the picture goes beside it."""
    models, rows, ranks, covered_90 = MODELS[size], [], {}, {}
    for name, family in FAMILIES.items():
        say(name)
        shares, ranks[name], predicted = simulate(family(N_ROWS), models, np.random.default_rng(SEED))
        rows.append(line(name, shares, ranks[name]["corrected"], predicted))
        covered_90[name] = shares["corrected", 0.9]
    if size != "small":
        draw(ranks, PICTURE)
    section = Section("coverage", "Coverage of intervals")
    section.notes.append(
        f"{models} models of each family, {OBSERVATIONS} observations each, {N_ROWS} rows, {N_LATENTS} latents whose "
        "columns have a correlation of 0.5: the share of true latents inside their intervals, the largest distance of "
        "the distribution of their ranks from the uniform one, and the share of left-out rows in theirs, which for "
        "counts is at least the level. The picture is in [How far to trust it](trust.md)."
    )
    section.tables.append(Table("", TITLES, rows))
    worst = max(covered_90.values(), key=lambda share: abs(share - 0.9))
    section.targets.append(
        Target("90 % intervals of latents cover", "88 to 92 %", f"{worst:.1%} at worst", bool(0.88 <= worst <= 0.92))
    )
    return section


def line(name, shares, ranks, predicted):
    """Return a line of the table."""
    distance = scipy.stats.kstest(ranks, "uniform").statistic
    # The interval of a row of 0 and 1 is that of its probability, which is not where x lies.
    last = f"{predicted:.1%}" if name not in ("Bernoulli", "Mixed") else ""
    return [name, *(f"{share:.1%}" for share in shares.values()), f"{distance:.3f}", last]
