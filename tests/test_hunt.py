"""The quick profile of the hunt, and what its oracles rest on, held to mpmath."""

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from hunt.factors import FAMILIES, factor_of_mean, make_factor
from hunt.generate import generate
from hunt.judge import judge
from hunt.known import KNOWN
from hunt.oracle_gaussian import GaussianOracle
from hunt.oracle_rows import RowOracle
from hunt.problems import KINDS
from hunt.quadrature import softplus_expectations

#: Generated problems of each family, smaller and with fewer iterations than those of ``python -m tests.hunt``. Counts
#: under counts take the longest for an iteration.
QUICK, ITERATIONS = 6, 150
QUICK_COUNTS, ITERATIONS_OF_COUNTS = 2, 10


def report(verdict):
    """A failure with the line of code that repeats it."""
    return "\n".join([*(f"{kind}: {text}" for kind, text in verdict.failures), verdict.problem.line()])


@pytest.mark.parametrize("kind", KINDS)
def test_no_wrong_answer_is_called_converged(kind):
    count, iterations = (QUICK_COUNTS, ITERATIONS_OF_COUNTS) if " under " in kind else (QUICK, ITERATIONS)
    for problem in generate([kind], count, seed=18, iterations=iterations, largest=4):
        verdict = judge(problem)
        assert not verdict.failures, report(verdict)


def test_conjugate_gradients_that_get_nowhere_are_no_fall():
    """At a condition of 1e13 a direction, and the plain step, lose more to rounding than they gain."""
    problem = list(generate(["gaussian"], 12, seed=29))[-1]
    assert problem.options["accelerate"] == "cg"
    verdict = judge(problem)
    assert not verdict.failures, report(verdict)


@pytest.mark.parametrize("problem", KNOWN, ids=lambda problem: problem.name)
def test_what_was_once_answered_wrongly(problem):
    verdict = judge(problem)
    assert not verdict.failures, report(verdict)


@pytest.mark.parametrize(
    ("mean", "spread"), [(0.3, 0.01), (-5, 7.9), (-5, 8.1), (30, 100), (-50, 1000), (50, 12), (-40, 3)]
)
def test_expectations_of_softplus(mean, spread):
    kink = -mean / spread
    cuts = [kink + sign * reach / spread for reach in (0, 3, 12, 40) for sign in (-1, 1)]
    with mpmath.workdps(25):
        cuts = sorted({-14, -3, 0, 3, 14, *(cut for cut in cuts if abs(cut) < 14)})
        functions = (lambda e: mpmath.log1p(mpmath.exp(-abs(e))) + max(e, 0), lambda e: 1 / (1 + mpmath.exp(-e)))
        exact = [mpmath.quad(lambda z, f=f: f(mean + spread * z) * mpmath.npdf(z), cuts) for f in functions]
    found = softplus_expectations([mean], [spread])[:2, 0]
    np.testing.assert_allclose(found.astype(float), [float(value) for value in exact], rtol=3e-16)


@pytest.mark.parametrize("family", ["laplace", "exponential"])
@pytest.mark.parametrize(("H", "h"), [(2, 3), (0.5, -4), (30, 100)])
def test_factors_on_a_line(family, H, h):
    prior = {"scale": mpf(2), "bias": mpf("0.5") if family == "laplace" else mpf(0), "rate": mpf("1.5")}

    def density(y):
        own = mpmath.exp(-abs(y - prior["bias"]) / 2) / 4 if family == "laplace" else 1.5 * mpmath.exp(-1.5 * y)
        return own * mpmath.exp(-H * y**2 / mpf(2) + h * y)

    with mpmath.workdps(20):
        cuts = [*([-20, -12, -8, -4] if family == "laplace" else []), 0, 0.5, 2, 4, 8]
        mass, first, second = (mpmath.quad(lambda y, k=k: y**k * density(y), cuts) for k in range(3))
        factor = make_factor(family, prior, mpf(H), mpf(h))
        expected = (mpmath.log(mass), first / mass, second / mass - (first / mass) ** 2)
        np.testing.assert_allclose([float(v) for v in factor[1:4]], [float(v) for v in expected], rtol=1e-12)
        assert abs(factor_of_mean(family, prior, mpf(H), factor.mean).h - h) < 1e-15


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "spike_slab"])
def test_factors_are_derivatives_of_their_log_mass(family):
    prior = {"bias": mpf("0.4"), "inclusion": mpf("0.2"), "sd": mpf(2)}
    with mpmath.workdps(50):
        for H, h in ((mpf("0.5"), mpf(3)), (mpf(100), mpf(451)), (mpf(2), mpf(-4))):
            step = mpf(10) ** -4
            log_mass = [FAMILIES[family](prior, H, h + k * step)[0] for k in (-1, 0, 1)]
            factor = make_factor(family, prior, H, h)
            slope = (log_mass[2] - log_mass[0]) / (2 * step)
            curvature = (log_mass[2] - 2 * log_mass[1] + log_mass[0]) / step**2
            assert float(slope) == pytest.approx(float(factor.mean), rel=1e-6, abs=1e-9)
            assert float(curvature) == pytest.approx(float(factor.variance), rel=1e-4, abs=1e-7)


def test_both_oracles_agree_on_gaussian_rows():
    rng = np.random.default_rng(0)
    W, b, x, sd = rng.standard_normal((5, 4)), rng.standard_normal(5), rng.standard_normal(5), rng.uniform(0.1, 1, 5)
    mean, prior_sd = rng.standard_normal(4), rng.uniform(0.5, 5, 4)
    for objective in ("elbo", "fm"):
        closed = GaussianOracle(W, b, sd, mean, prior_sd, x, objective).optimum()
        newton = RowOracle(["gaussian"] * 5, sd, W, b, mean, prior_sd, x, objective).optimum()
        for name in ("mean", "sd", "value", "exact_sd"):
            np.testing.assert_allclose(getattr(closed, name), getattr(newton, name), rtol=1e-10)


def test_newton_finds_what_no_step_improves():
    rng = np.random.default_rng(1)
    families = ["poisson", "binomial", "bernoulli", "gaussian"]
    oracle = RowOracle(families, np.array([1.0, 1e9, 1.0, 0.1]), rng.standard_normal((4, 3)), np.zeros(4), np.zeros(3),
                       np.full(3, 30.0), np.array([0.0, 3e8, 1.0, 2.0]))  # fmt: skip
    best = oracle.optimum()
    for _ in range(200):
        size = 10.0 ** rng.uniform(-5, 0)
        mean, sd = best.mean + size * best.sd * rng.standard_normal(3), best.sd * np.exp(size * rng.standard_normal(3))
        assert float(oracle.value(mean, sd)) < best.value
