"""Random effects beside other libraries: DADVI (pymc-extras), BayesMixedGLM (statsmodels) and gpboost.

Fixed effects and log scales of four data sets against NUTS. DADVI has the same model and priors. BayesMixedGLM
has the same fixed effects, but a normal prior on log scales, here N(0, 1), and no offset and no Gaussian rows. gpboost
maximises the marginal likelihood: no priors, and no uncertainty of a scale. A library that is not installed is left
out, and named.
"""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import forestmix as fmx
from benchmarks.contenders.numpyro_nuts import Reference, run_nuts
from benchmarks.harness.results import Section, Table, Target
from benchmarks.problems import bayesian
from benchmarks.problems.bayesian import Array, Regression

SAMPLING = {"small": 0.0, "default": 25.0, "large": 300.0}
MEAN, SD = 0.1, 0.1
NOTE = """Largest error of a fixed effect's mean, in posterior sds of NUTS, and of its sd; the same for log scales; CPU
seconds of a second run, and for NUTS of 1000 + 1000 transitions of two chains. DADVI has the same model and priors, and
is factorised. BayesMixedGLM has N(0, 1) as prior of log scales, and can state the binary data only. gpboost maximises
the marginal likelihood, without priors, and gives scales no uncertainty."""
#: Seconds for two runs of a contender, with imports and compilation.
PATIENCE = 90.0


class Estimate(NamedTuple):
    """Means and sds of fixed effects, and of log scales (NaN where a library gives none)."""

    mean: Array
    sd: Array
    scale_mean: Array
    scale_sd: Array


def run_forestmix(problem: Regression) -> Estimate:
    """Integrate over the scales."""
    result = fmx.infer(problem.model(), problem.x)
    posterior, scales, p = result.posterior(), list(result.scales.values()), problem.X.shape[1]
    logs = np.array([(scale.log_mean, scale.log_sd) for scale in scales])
    return Estimate(posterior.mean[:p], posterior.sd[:p], *logs.T)


def run_dadvi(problem: Regression) -> Estimate:
    """Run deterministic ADVI with its linear response left out, as pymc-extras has it."""
    import pymc
    from pymc_extras.inference.dadvi.dadvi import fit_dadvi

    with pymc.Model() as model:
        beta = pymc.Normal("beta", 0.0, 1.0, shape=problem.X.shape[1])
        scales = {name: pymc.HalfNormal(name, 1.0) for name in problem.scale_names}
        eta = problem.offset + problem.X @ beta
        for (name, group), count in zip(problem.groups.items(), problem.levels, strict=True):
            effect = pymc.Normal(f"{name}_effect", 0.0, 1.0, shape=count) * scales[name]
            eta += effect[group]
        if problem.family == "gaussian":
            pymc.Normal("x", eta, scales["noise"], observed=problem.x)
        elif problem.family == "poisson":
            pymc.Poisson("x", pymc.math.exp(eta), observed=problem.x)
        else:
            pymc.Bernoulli("x", logit_p=eta, observed=problem.x)
        drawn = fit_dadvi(model, random_seed=0, progressbar=False).posterior
    fixed = drawn["beta"].to_numpy().reshape(-1, problem.X.shape[1])
    logs = np.stack([np.log(drawn[name].to_numpy().ravel()) for name in problem.scale_names])
    return Estimate(fixed.mean(axis=0), fixed.std(axis=0), logs.mean(axis=1), logs.std(axis=1))


def run_mixed_glm(problem: Regression) -> Estimate | None:
    """Run statsmodels' variational Bayes; ``None`` for models that it cannot state."""
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    if problem.family != "bernoulli":
        return None
    Z, p = problem.weights()[:, problem.X.shape[1] :], problem.X.shape[1]
    which = np.repeat(np.arange(len(problem.levels)), problem.levels)
    found = BinomialBayesMixedGLM(problem.x, problem.X, Z.tocsr(), which, vcp_p=1.0, fe_p=1.0).fit_vb()
    return Estimate(found.fe_mean[:p], found.fe_sd[:p], found.vcp_mean, found.vcp_sd)


def run_gpboost(problem: Regression) -> Estimate:
    """Maximise the (Laplace approximated) marginal likelihood; scales come with no uncertainty."""
    import gpboost

    likelihood = {"bernoulli": "bernoulli_logit"}.get(problem.family, problem.family)
    model = gpboost.GPModel(group_data=np.column_stack(list(problem.groups.values())), likelihood=likelihood)
    offset = None if np.ndim(problem.offset) == 0 else np.asarray(problem.offset)
    model.fit(y=problem.x, X=problem.X, offset=offset)
    coefficients = np.asarray(model.get_coef(std_err=True, format_pandas=False))
    variances = np.ravel(model.get_cov_pars(std_err=False, format_pandas=False))
    return Estimate(coefficients[0], coefficients[1], 0.5 * np.log(variances), np.full(len(variances), np.nan))


CONTENDERS = {
    "forestmix": ("forestmix", run_forestmix),
    "DADVI (pymc-extras)": ("pymc_extras", run_dadvi),
    "BayesMixedGLM (statsmodels)": ("statsmodels", run_mixed_glm),
    "gpboost": ("gpboost", run_gpboost),
}


def twice(connection: Any, run: Callable[[Regression], Estimate | None], problem: Regression) -> None:
    """Run a contender twice, and send what it found and the CPU seconds of the second run, or what went wrong."""
    warnings.simplefilter("ignore")
    try:
        run(problem)
        began = time.process_time()
        found = run(problem)
        connection.send((found, time.process_time() - began))
    except Exception as failure:  # a library may fail where others do not
        connection.send(f"failed: {type(failure).__name__}")


def limited(run: Callable[[Regression], Estimate | None], problem: Regression) -> tuple[Estimate | None, float] | str:
    """Return what a contender finds in a process of its own, and the seconds; what went wrong, as text, otherwise."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=twice, args=(theirs, run, problem), daemon=True)
    process.start()
    answer = ours.recv() if ours.poll(PATIENCE) else f"not done in {PATIENCE:.0f} s"
    process.terminate()
    process.join()
    return answer


def line(name: str, problem: Regression, found: Estimate, reference: Reference, seconds: float) -> list[str]:
    """Return the largest errors of a contender, and its time."""
    p, k = problem.X.shape[1], len(problem.scale_names)
    mean, sd, scale_mean, scale_sd = reference.mean[:p], reference.sd[:p], reference.mean[-k:], reference.sd[-k:]
    spread = np.abs(found.scale_sd / scale_sd - 1).max()
    return [
        problem.title, name, f"{np.max(np.abs(found.mean - mean) / sd):.3f}",
        f"{np.max(np.abs(found.sd / sd - 1)):.1%}",
        f"{np.max(np.abs(found.scale_mean - scale_mean) / scale_sd):.3f}",
        f"{spread:.1%}" if np.isfinite(spread) else "none", f"{seconds:.2f}",
    ]  # fmt: skip


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run all contenders on all data sets, each twice; the second run, without compilation, is timed."""
    warnings.simplefilter("ignore")
    problems = [
        bayesian.votes(), bayesian.any_visit(), bayesian.sea_temperature(), bayesian.cancer_by_county()
    ]  # fmt: skip
    missing = [name for name, (package, _) in CONTENDERS.items() if find_spec(package) is None]
    section = Section("beside", "Random effects beside other libraries")
    rows, worst = [], [0.0, 0.0]
    for problem in problems:
        say(f"{problem.title}: NUTS")
        reference = run_nuts(problem, SAMPLING[size])
        error = f"{reference.mean_error.max():.3f}", f"{reference.sd_error.max():.1%}"
        rows.append([problem.title, "NUTS, its own error", *error, *error, f"{reference.usual_seconds:.2f}"])
        for name, (_, run) in CONTENDERS.items():
            if name in missing:
                continue
            say(f"{problem.title}: {name}")
            answer = limited(run, problem)
            if isinstance(answer, str):
                rows.append([problem.title, name, answer, "", "", "", ""])
                continue
            found, seconds = answer
            if found is None:
                continue
            rows.append(line(name, problem, found, reference, seconds))
            if name == "forestmix":
                worst = [max(worst[0], float(rows[-1][2])), max(worst[1], float(rows[-1][3].rstrip("%")) / 100)]
    section.notes = [NOTE + (f" Not installed: {', '.join(missing)}." if missing else "")]
    columns = ["data", "library", "mean", "sd", "log scale, mean", "sd", "CPU seconds"]
    section.tables.append(Table("", columns, rows))
    section.targets = [
        Target("fixed effects beside groups, means", f"within {MEAN:g} sd", f"{worst[0]:.3f} sd", worst[0] <= MEAN),
        Target("fixed effects beside groups, sds", f"within {SD:.0%}", f"{worst[1]:.1%}", worst[1] <= SD),
    ]
    return section
