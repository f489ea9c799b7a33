"""What a result is held to, and what is said where it does not hold."""

import sys
import time
import warnings
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from .judge_latents import judge_counts, judge_latents
from .oracle_gaussian import GaussianOracle, stacked
from .oracle_rows import NotRepresentableError, RowOracle
from .problems import KINDS

#: How far a CONVERGED result may lie from the optimum, in exact posterior sds and in nats, by precision.
SDS = {np.dtype(np.float64): 0.01, np.dtype(np.float32): 0.05}
NATS = {np.dtype(np.float64): 1e-3, np.dtype(np.float32): 0.05}
#: A fall of the objective is visible beyond this part of it, and beyond what rounding of the rows' means explains.
VISIBLE = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-4}
#: Units of rounding that are granted in every term.
UNITS = 64
#: How far an observation of a batch may end from where it ends alone, in sds.
TOGETHER = 1e-3
#: A problem whose terms exceed this is not representable well enough to ask for anything but numbers.
TERMS = {np.dtype(np.float64): 1e100, np.dtype(np.float32): 1e25}
BAD = {"DECREASED", "NON_FINITE", "DIVERGED"}


@dataclass
class Verdict:
    """How one problem went: one entry for each observation in the lists."""

    problem: object
    statuses: list = field(default_factory=list)
    iterations: list = field(default_factory=list)
    sds: list = field(default_factory=list)
    nats: list = field(default_factory=list)
    conditions: list = field(default_factory=list)
    failures: list = field(default_factory=list)
    beyond: int = 0
    unknown: int = 0
    seconds: float = 0.0

    def fail(self, kind, text):
        """Note a failure."""
        self.failures.append((kind, text))


@dataclass(frozen=True)
class End:
    """One observation's end: mean and sd of all latents, the objective, how it ended, and its trace."""

    mean: np.ndarray
    sd: np.ndarray
    objective: float
    status: str
    iterations: int
    trace: np.ndarray
    norms: np.ndarray
    bounds: tuple
    tables: list | None


def judge(problem):
    """Run a problem and return its verdict."""
    verdict = Verdict(problem)
    began = time.perf_counter()
    ends = run(problem, verdict)
    verdict.seconds = time.perf_counter() - began
    for k, end in enumerate(ends):
        one = problem if problem.single else problem.alone(k)
        check_numbers(end, verdict, k)
        sd = None
        if problem.kind in JUDGES:
            with np.errstate(all="ignore"):
                sd = JUDGES[problem.kind](one, end, verdict)
        if not problem.single:
            check_alone(one, end, end.sd if sd is None else sd, verdict, k)
    return verdict


def run(problem, verdict):
    """Run a problem; an error or a warning is a failure, but for latents whose tables would be too long."""
    from forestmix import ForestmixError

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = problem.run()
            ends = ends_of(result)
        except ForestmixError as error:
            if "tables of more than" not in str(error) and problem.representable:
                verdict.fail("raised", f"{type(error).__name__}: {error}")
            verdict.statuses.append("REFUSED")
            return []
        except Exception as error:
            verdict.fail("raised", f"{type(error).__name__}: {error}")
            verdict.statuses.append("RAISED")
            return []
    for warning in caught:
        verdict.fail("warned", str(warning.message))
    verdict.statuses += [end.status for end in ends]
    verdict.iterations += [end.iterations for end in ends]
    return ends


def ends_of(result):
    """Return the end of each observation."""
    mean = np.concatenate([np.atleast_2d(layer.mean) for layer in result.layers], axis=1).astype(float)
    sd = np.concatenate([np.atleast_2d(layer.sd) for layer in result.layers], axis=1).astype(float)
    traces = [np.reshape(t, (len(t), -1)).astype(float) for t in (result.trace.objective, result.trace.gradient_norm)]
    objective, iterations, elbo, fm = (
        np.atleast_1d(v) for v in (result.objective, result.n_iter, result.elbo, result.fm_bound)
    )
    layer = result.layers[0]
    tables = np.reshape(layer.probabilities, (len(mean), mean.shape[1], -1)) if layer.discrete else None
    statuses = [s.name for s in np.atleast_1d(np.array(result.status, dtype=object))]
    return [
        End(mean[k], sd[k], float(objective[k]), statuses[k], int(iterations[k]), traces[0][:, k], traces[1][:, k],
            (float(fm[k]), float(elbo[k])), None if tables is None else list(tables[k]))
        for k in range(len(mean))
    ]  # fmt: skip


def check_numbers(end, verdict, k):
    """Ask for numbers, and for bounds in their order."""
    parts = {"mean": end.mean, "sd": end.sd, "objective": end.objective, "trace.objective": end.trace,
             "trace.gradient_norm": end.norms, "fm_bound and elbo": end.bounds}  # fmt: skip
    for name, values in parts.items():
        if np.isnan(values).any():
            verdict.fail("nan", f"{name} of observation {k} has NaN, status {end.status}")
    if not np.isfinite(end.mean).all() or not np.isfinite(end.sd).all():
        verdict.fail("nan", f"mean or sd of observation {k} is not finite, status {end.status}")


def check_status(end, verdict, representable):
    """No status that blames the problem where it can be represented."""
    if representable and end.status in BAD:
        verdict.fail(end.status, f"after {end.iterations} iterations, objective {end.objective:.10g}")


def check_trace(end, verdict, dtype, slack):
    """No visible fall of the objective."""
    trace = end.trace
    with np.errstate(all="ignore"):
        fall = trace[:-1] - trace[1:]
        visible = VISIBLE[dtype] * np.maximum(1, np.abs(trace[:-1])) + slack
        worst = np.nanargmax(fall - visible) if np.isfinite(fall).any() else None
    if worst is not None and fall[worst] > visible[worst]:
        verdict.fail("fell", f"by {fall[worst]:.3g} at iteration {worst + 1}, from {trace[worst]:.10g}")


def check_optimum(problem, end, verdict, oracle, optimum, slack):
    """Hold a CONVERGED result to the optimum, and any result's objective to the oracle's value of its q.

    Returns the sds in which an observation of a batch may move.
    """
    dtype, unit = problem.W.dtype, UNITS * problem.eps
    verdict.conditions.append(optimum.condition)
    floor = unit * optimum.floor
    with np.errstate(over="ignore"):
        size = max(optimum.slack, np.max(optimum.sd.astype(float) ** -2.0))
    beyond = floor > SDS[dtype] or not size < TERMS[dtype]
    verdict.beyond += beyond
    check_status(end, verdict, not beyond)
    if not beyond:
        check_trace(end, verdict, dtype, unit * max(slack, optimum.slack))
    together = sds_together(optimum, floor)
    if not np.isfinite(end.mean).all() or not (end.sd > 0).all():
        return together
    value = float(oracle.value(end.mean, end.sd))
    allowed = NATS[dtype] + VISIBLE[dtype] * abs(value) + unit * slack
    if not beyond and np.isfinite(value) and abs(end.objective - value) > allowed:
        verdict.fail("misreported", f"objective {end.objective:.10g}, that of the same q is {value:.10g}, {end.status}")
    if end.status != "CONVERGED":
        return together
    check_distance(end, verdict, dtype, optimum, value, floor, beyond)
    return together


def sds_together(optimum, floor):
    """Return the sds in which an observation of a batch may move.

    They are q's, or, where latents are correlated, up to exact ones: a gradient within ``tol``, 1e-6, leaves a mean by
    1e-6 times the condition number. Where rounding moves it more they are wider still.
    """
    correlated = np.minimum(optimum.exact_sd, 1e-3 * optimum.condition * optimum.sd)
    return np.maximum(optimum.sd, correlated) * max(1.0, floor / TOGETHER)


def check_distance(end, verdict, dtype, optimum, value, floor, beyond):
    """Hold a CONVERGED result to the optimum, in sds and nats."""
    sds = float(np.max(np.abs(end.mean - optimum.mean) / optimum.exact_sd))
    nats = optimum.value - value
    if not beyond:
        verdict.sds.append(sds)
        verdict.nats.append(nats)
    if sds > max(SDS[dtype], floor) or nats > max(NATS[dtype], min(floor, 1e100) ** 2):
        verdict.fail("wrong", wrong(end, f"{sds:.3g} sds and {nats:.3g} nats", optimum, beyond))


def wrong(end, distance, optimum, beyond):
    """Say how far a result is from the optimum, and whether rounding alone explains some of it."""
    text = f"{distance} from the optimum {optimum.value:.8g}, condition {optimum.condition:.1g}"
    return f"CONVERGED after {end.iterations} iterations, {text}{', beyond' if beyond else ''}"


def judge_gaussian(problem, end, verdict):
    """Against the closed form."""
    prior = problem.prior
    arguments = (problem.W, problem.b, problem.parameter, prior["bias"], prior["sd"], problem.x)
    if problem.above is not None:
        W1, b1, sd1 = problem.above
        arguments = stacked(problem.W, problem.b, problem.parameter, W1, b1, sd1, prior["bias"], prior["sd"], problem.x)
    oracle = GaussianOracle(*arguments, problem.objective)
    return check_optimum(problem, end, verdict, oracle, oracle.optimum(), oracle.slack(end.mean))


def judge_rows(problem, end, verdict):
    """Against Newton's method on the mean and sd of q."""
    prior = problem.prior
    oracle = RowOracle(
        problem.rows, problem.parameter, problem.W, problem.b, prior["bias"], prior["sd"], problem.x, problem.objective
    )
    try:
        optimum = oracle.optimum()
    except NotRepresentableError:
        verdict.beyond += 1
        return None
    except ArithmeticError:
        verdict.unknown += 1
        return None
    return check_optimum(problem, end, verdict, oracle, optimum, oracle.slack(end.mean, end.sd))


def check_alone(problem, end, sd, verdict, k):
    """Each observation of a batch ends as it does alone, in these sds."""
    alone = run(problem, Verdict(problem)) if end.status == "CONVERGED" else []
    if not alone or {end.status, alone[0].status} != {"CONVERGED"}:
        return
    with np.errstate(all="ignore"):
        moved = np.abs(end.mean - alone[0].mean) / np.maximum(sd, np.finfo(float).tiny)
    if np.max(moved) > TOGETHER * SDS[problem.W.dtype] / 0.01:
        verdict.fail("batch", f"observation {k} moves by {np.max(moved):.3g} sds in the batch")


_THIS = sys.modules[__name__]
JUDGES = {
    "gaussian": judge_gaussian,
    "deep": judge_gaussian,
    **dict.fromkeys(("bernoulli", "binomial", "poisson", "mixed"), judge_rows),
    **dict.fromkeys([kind for kind in KINDS if kind.endswith(" latents")], partial(judge_latents, checks=_THIS)),
    **dict.fromkeys([kind for kind in KINDS if " under " in kind], partial(judge_counts, checks=_THIS)),
}
