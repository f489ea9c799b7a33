"""What ``posterior()`` reports against NUTS (NumPyro), on Bayesian regressions with real data.

Each model is stated once (``benchmarks.problems.bayesian``). Models whose scales are all known run ``infer`` twice: as
it is by default, corrected by linear response, and with ``covariance="full"``. Those with unknown scales are integrated
over. Errors of every latent and of every log scale::

    |mean - NUTS mean| / NUTS sd        |sd / NUTS sd - 1|

A reference has a Monte Carlo error of its own, which is stated beside: the largest of hundreds of errors of a perfect
posterior is some three times that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

import forestmix as fmx
from benchmarks.contenders.numpyro_nuts import Reference, run_nuts
from benchmarks.harness.results import Section, Table, Target
from benchmarks.problems.bayesian import REGRESSIONS, Array, Regression

#: CPU seconds after which no block of draws is begun, unless errors are still large.
SAMPLING = {"small": 0.0, "default": 40.0, "large": 600.0}
#: Later runs of forestmix, as long as the last took less than so many seconds.
REPEATS, LONG = 3, 3.0
#: Targets: means and sds of latents, of log scales.
MEAN, SD, SCALE_MEAN, SCALE_SD = 0.05, 0.05, 0.15, 0.10

ERRORS = ["data", "posterior", "mean", "sd", "log scale, mean", "sd", "NUTS: error of means", "of sds"]
ERRORS_NOTE = """Largest error over all latents, with the median in brackets, in posterior standard deviations for means
and relative for standard deviations; the same for the logarithms of unknown scales. The last two columns are the
largest Monte Carlo standard errors of the reference itself. All data are real. With crossed random intercepts: affairs
by occupations (hers and her husband's), votes (education and income), any doctor visit (share paid and number of
diseases), sea temperature (year and month) and investment (firm and year), the last two with unknown noise."""
TUNED_NOTE = """One constant, that says when a quadrature is made, was chosen on the data marked "tuned on". They are no
test of it, and do not count for the targets. Votes and any doctor visit were added afterwards: their models were
written down before they were first fitted, and nothing was changed since."""
TIMES = ["data", "rows x latents", "rows", "posterior", "forestmix", "first call", "NUTS", "JAX compiles",
         "NUTS / forestmix", "draws", "R-hat", "divergences"]  # fmt: skip
TIMES_NOTE = """CPU seconds of one process, which forestmix and NUTS share. forestmix: the median of later calls. NUTS:
two chains one after another of 1000 + 1000 transitions, compiled; what compiling took is a column of its own, and the
reference goes on for as many draws as the table says. Where the data say little of the scale of a group, steps are so
short that 99 % are accepted: with longer ones NUTS diverges."""


@dataclass(frozen=True)
class Outcome:
    """Errors of one kind of posterior: of latents and of log scales, in means and sds; CPU seconds of a later run."""

    kind: str
    mean: Array
    sd: Array
    scale_mean: Array
    scale_sd: Array
    seconds: float
    first_seconds: float


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what a call returns, the CPU seconds of the first and the median of later ones."""
    times, found = [], None
    for _ in range(1 + REPEATS):
        began = time.process_time()
        found = run()
        times.append(time.process_time() - began)
        if len(times) > 1 and times[-1] > LONG:
            break
    return found, times[0], median(times[1:])


def fitted(problem: Regression, covariance: str) -> tuple[Any, Any]:
    """Return the result and the posterior, with its sds computed."""
    result = fmx.infer(problem.model(), problem.x, covariance=covariance)
    posterior = result.posterior()
    posterior.sd  # noqa: B018 - it is computed when first asked for
    return result, posterior


def outcome(problem: Regression, kind: str, reference: Reference) -> Outcome:
    """Return the errors of one kind of posterior."""
    covariance = "full" if kind == "full" else "factorised"
    (result, posterior), first, seconds = timed(lambda: fitted(problem, covariance))
    m, scales = len(posterior.mean), list((result.scales or {}).values())
    mean = np.r_[posterior.mean, [scale.log_mean for scale in scales]]
    sd = np.r_[posterior.sd, [scale.log_sd for scale in scales]]
    distance, ratio = np.abs(mean - reference.mean) / reference.sd, np.abs(sd / reference.sd - 1)
    return Outcome(kind, distance[:m], ratio[:m], distance[m:], ratio[m:], seconds, first)


def shown(errors: Array, pattern: str) -> str:
    """Return the largest error and the median one."""
    return f"{errors.max():{pattern}} ({np.median(errors):{pattern}})" if len(errors) else ""


def times_as_long(reference: Reference, one: Outcome) -> str:
    """Return how many times as long as forestmix NUTS takes."""
    ratio = reference.usual_seconds / one.seconds
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


def target(claim: str, bound: float, worst: dict[str, float], noise: float, pattern: str) -> Target:
    """Return whether the worst error is below the bound, with the name of its data and its own standard error."""
    name = max(worst, key=lambda one: worst[one])
    unit = " sd" if pattern.endswith("f") else ""
    measured = (
        f"{worst[name]:{pattern}}{unit} ({name}; Monte Carlo error of a single one up to {noise:{pattern}}{unit})"
    )
    return Target(
        claim, f"within {bound:g}{unit}" if unit else f"within {bound:.0%}", measured, bool(worst[name] <= bound)
    )


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run all data sets."""
    errors: list[list[str]] = []
    times: list[list[str]] = []
    kept: list[tuple[Regression, Reference, list[Outcome]]] = []
    for load in REGRESSIONS:
        problem = load()
        say(f"{problem.title}: NUTS")
        reference = run_nuts(problem, SAMPLING[size])
        say(f"{problem.title}: forestmix")
        kinds = ("integrated",) if problem.scale_names else ("corrected", "full")
        outcomes = [outcome(problem, kind, reference) for kind in kinds]
        kept.append((problem, reference, outcomes))
        title = problem.title + (", tuned on" if problem.tuned else "")
        for one in outcomes:
            errors.append([
                title, one.kind, shown(one.mean, ".3f"), shown(one.sd, ".1%"), shown(one.scale_mean, ".3f"),
                shown(one.scale_sd, ".1%"), f"{reference.mean_error.max():.3f}", f"{reference.sd_error.max():.1%}",
            ])  # fmt: skip
            times.append([
                title, problem.size, problem.family, one.kind, f"{one.seconds:.3f}", f"{one.first_seconds:.2f}",
                f"{reference.usual_seconds:.1f}", f"{reference.compile_seconds:.1f}",
                times_as_long(reference, one), f"{reference.draws:,}", f"{reference.r_hat:.3f}",
                f"{reference.divergences}",
            ])  # fmt: skip
    return report(kept, errors, times)


def report(
    kept: list[tuple[Regression, Reference, list[Outcome]]], errors: list[list[str]], times: list[list[str]]
) -> Section:
    """Return the section; the first kind of each data set, the default, is held to the targets, if not tuned on."""
    section = Section("posteriors", "Against NUTS")
    section.notes = [ERRORS_NOTE, TUNED_NOTE, TIMES_NOTE]
    section.tables = [Table("Errors", ERRORS, errors), Table("Times", TIMES, times)]
    kept = [one for one in kept if not one[0].tuned]
    first = {problem.title: outcomes[0] for problem, _, outcomes in kept}
    scaled = {name: one for name, one in first.items() if len(one.scale_mean)}
    noise = (max(one.mean_error.max() for _, one, _ in kept), max(one.sd_error.max() for _, one, _ in kept))
    section.targets = [
        target("means of latents against NUTS", MEAN, _worst(first, "mean"), noise[0], ".3f"),
        target("sds of latents", SD, _worst(first, "sd"), noise[1], ".1%"),
        target("log scales, means", SCALE_MEAN, _worst(scaled, "scale_mean"), noise[0], ".3f"),
        target("log scales, sds", SCALE_SD, _worst(scaled, "scale_sd"), noise[1], ".1%"),
    ]
    return section


def _worst(outcomes: dict[str, Outcome], field: str) -> dict[str, float]:
    """Return the largest error of each data set."""
    return {name: float(getattr(one, field).max()) for name, one in outcomes.items()}
