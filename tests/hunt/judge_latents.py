"""The checks for latents that are not Gaussian."""

import mpmath
import numpy as np

from .factors import DIGITS
from .oracle_counts import STATES, CountOracle
from .oracle_latents import CONCAVE, LatentOracle
from .oracle_rows import NotFoundError

#: Sweeps of coordinate ascent that may not gain anything from an end that is called CONVERGED.
SWEEPS = 10
#: Nats that they may gain from one that ended as STALLED, at the limit of rounding.
STUCK = 1.0


def judge_latents(problem, end, verdict, checks):
    """Latents under Gaussian rows: the ELBO of the same q, a fixed point, and the optimum where it is the only one."""
    oracle = LatentOracle(problem.latents, problem.prior, problem.W, problem.b, problem.parameter, problem.x)
    dtype, unit = problem.W.dtype, checks.UNITS * problem.eps
    slack = unit * oracle.slack(end.mean)
    checks.check_trace(end, verdict, dtype, slack)
    checks.check_status(end, verdict, problem.representable and oracle.slack(end.mean) < checks.TERMS[dtype])
    if not np.isfinite(end.mean).all() or dtype != np.float64 or end.iterations == 0:
        return None
    if problem.latents in CONCAVE:
        return judge_concave(problem, end, verdict, checks, oracle, slack)
    with mpmath.workdps(DIGITS):
        factors = oracle.factors(end.mean)
        value = float(oracle.value(factors))
        check_report(end, verdict, checks, dtype, value, slack)
        check_fixed(end, verdict, checks, dtype, oracle, factors, slack)
    return None


def judge_concave(problem, end, verdict, checks, oracle, slack):
    """Laplace and Exponential latents: the optimum is the only one, and known."""
    dtype, unit = problem.W.dtype, checks.UNITS * problem.eps
    try:
        optimum = oracle.optimum()
    except (NotFoundError, ZeroDivisionError, ValueError):
        verdict.unknown += 1
        return None
    with mpmath.workdps(DIGITS):
        factors = oracle.factors(end.mean) if inside(problem, end.mean) else None
        value = -np.inf if factors is None else float(oracle.value(factors))
        if factors is not None and end.status == "STALLED":
            check_fixed(end, verdict, checks, dtype, oracle, factors, slack)
    floor = unit * optimum.floor
    beyond = floor > checks.SDS[dtype]
    verdict.beyond += beyond
    verdict.conditions.append(optimum.condition)
    if not beyond:
        check_report(end, verdict, checks, dtype, value, slack)
    if end.status == "CONVERGED":
        # In nats only: where a prior has a kink, no curvature at one point says how wide the posterior is.
        nats = optimum.value - value
        if not beyond:
            verdict.nats.append(nats)
        if nats > max(checks.NATS[dtype], min(floor, 1e100) ** 2):
            verdict.fail("wrong", checks.wrong(end, f"{nats:.3g} nats", optimum, beyond))
    return checks.sds_together(optimum, floor)


def inside(problem, mean):
    """Whether the means are ones that factors of the family can have."""
    return problem.latents != "exponential" or bool(np.all(mean > 0))


def check_report(end, verdict, checks, dtype, value, slack):
    """The reported ELBO is that of q."""
    allowed = checks.NATS[dtype] + checks.VISIBLE[dtype] * abs(value) + slack
    if not abs(end.bounds[1] - value) <= allowed:
        verdict.fail("misreported", f"elbo {end.bounds[1]:.10g}, that of the same q is {value:.10g}, {end.status}")


def check_fixed(end, verdict, checks, dtype, oracle, factors, slack):
    """Nothing is gained by coordinate ascent from a CONVERGED result, and little from one that says it is stuck."""
    if end.status not in ("CONVERGED", "STALLED"):
        return
    before = oracle.value(factors)
    for _ in range(SWEEPS):
        factors = oracle.sweep(factors)
    gain = float(oracle.value(factors) - before)
    if end.status == "CONVERGED":
        note_gain(end, verdict, checks, dtype, gain, slack)
    elif gain > STUCK + slack:
        verdict.fail("stuck", f"STALLED after {end.iterations} iterations, {SWEEPS} sweeps gain {gain:.3g} nats")


def note_gain(end, verdict, checks, dtype, gain, slack):
    """A point that coordinate ascent leaves was no optimum."""
    verdict.nats.append(gain)
    if gain > checks.NATS[dtype] + slack:
        text = f"{SWEEPS} sweeps of coordinate ascent gain {gain:.3g} nats"
        verdict.fail("wrong", f"CONVERGED after {end.iterations} iterations, {text}")


def judge_counts(problem, end, verdict, checks):
    """Counts under counts: the bounds in their order, and a fixed point of coordinate ascent."""
    dtype = problem.W.dtype
    tables = [np.asarray(table, float) for table in end.tables]
    lengths = tuple(len(table) for table in tables)
    size = np.abs(problem.x * (np.abs(problem.b) + np.abs(problem.W) @ np.abs(end.mean)))
    slack = checks.UNITS * problem.eps * float(1 + np.nansum(size) + abs(end.objective))
    checks.check_trace(end, verdict, dtype, slack)
    checks.check_status(end, verdict, True)
    if np.prod(lengths) > STATES or not np.isfinite(end.mean).all():
        verdict.unknown += 1
        return
    oracle = CountOracle(problem.rows, problem.parameter, problem.W, problem.b, problem.prior["bias"], problem.latents,
                         problem.x, lengths)  # fmt: skip
    value = oracle.value(tables)
    check_report(end, verdict, checks, dtype, value, slack)
    tolerance = checks.NATS[dtype] + slack
    fm, elbo = end.bounds
    if problem.latents == "bernoulli" and elbo > oracle.evidence() + tolerance:
        verdict.fail("above", f"elbo {elbo:.10g} is above the evidence {oracle.evidence():.10g}")
    if fm > elbo + tolerance or end.objective > elbo + tolerance:
        verdict.fail("above", f"fm_bound {fm:.10g} or objective {end.objective:.10g} is above the elbo {elbo:.10g}")
    if end.status == "CONVERGED" and problem.options.get("algorithm") == "cavi":
        for _ in range(SWEEPS):
            tables = oracle.sweep(tables)
        note_gain(end, verdict, checks, dtype, oracle.value(tables) - value, slack)
