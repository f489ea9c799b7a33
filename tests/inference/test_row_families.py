"""Rows of every family: a generic optimiser's optimum, monotone runs, all algorithms, and where the default stops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forestmix as fmx
from support.regression_models import PROBLEMS, design, generic_optimum, problem

ALGORITHMS = {
    "accelerated": lambda m: fmx.ForestMixture(),
    "accelerated, paper": lambda m: fmx.ForestMixture("fm"),
    "plain": lambda m: fmx.ForestMixture(accelerate=False),
    "plain, paper": lambda m: fmx.ForestMixture("fm", accelerate=False),
    "groups": lambda m: fmx.ForestMixture(groups=np.array_split(np.arange(m), min(m, 3))),
    "groups, paper": lambda m: fmx.ForestMixture("fm", groups=np.array_split(np.arange(m), min(m, 3))),
    "cavi": lambda m: fmx.CAVI(),
    "cavi, random": lambda m: fmx.CAVI("random"),
    "cavi, greedy": lambda m: fmx.CAVI("greedy"),
    "blocks": lambda m: fmx.BlockCoordinate(),
}


@pytest.mark.parametrize("objective", ["elbo", "fm"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_reaches_the_optimum_that_a_generic_optimiser_finds(name, objective):
    model, x = PROBLEMS[name](np.random.default_rng(0))
    result = fmx.infer(model, x, objective=objective, tol=1e-10)
    assert result.converged, result.message
    # From the end of the run, where anything left to gain would be found, and from the start.
    cold = fmx.infer(model, x, objective=objective, max_iter=0)
    best = max(generic_optimum(model, x, objective, (start.mean, start.sd)) for start in (result, cold))
    assert result.objective >= best - 1e-8 * abs(best)
    assert np.isfinite(result.mean).all()
    assert (result.sd > 0).all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_default_tolerance_stops_close_to_the_optimum(name):
    """What tol = 1e-6 means in practice: within 1e-9 of the optimum's value, and a thousandth of an sd in the means."""
    model, x = PROBLEMS[name](np.random.default_rng(1))
    default, tight = (fmx.infer(model, x, tol=tol) for tol in (1e-6, 1e-11))
    assert default.converged, default.message
    assert default.objective >= tight.objective - 1e-9 * max(1, abs(tight.objective))
    assert np.abs((default.mean - tight.mean) / tight.sd).max() < 1e-3
    assert default.sd == pytest.approx(tight.sd, rel=1e-3)


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(list(PROBLEMS)), st.sampled_from(list(ALGORITHMS)), st.integers(0, 2**32 - 1), st.booleans())
def test_objective_is_monotone_and_never_nan(name, algorithm, seed, warm):
    """1,000 generated runs over families, algorithms and starts."""
    rng = np.random.default_rng(seed)
    model, x = PROBLEMS[name](rng)
    m = model.n_latent
    init = (rng.standard_normal(m) * 0.1, np.full(m, 1e-3)) if warm and "scaled" not in name else None
    result = fmx.infer(model, x, ALGORITHMS[algorithm](m), max_iter=4, init=init)
    objective = result.trace.objective
    assert np.isfinite(objective).all()
    assert (np.diff(objective) >= -1e-11 * (np.abs(objective[:-1]) + sum(model.layers[0].weights.shape))).all()
    for array in (result.mean, result.sd, result.elbo, result.fm_bound, result.trace.gradient_norm):
        assert not np.isnan(array).any()
    assert result.status is not fmx.Status.DECREASED


@pytest.mark.parametrize("name", ["bernoulli", "binomial", "poisson", "mixed"])
def test_every_algorithm_ends_at_the_same_optimum(name):
    model, x = PROBLEMS[name](np.random.default_rng(2))
    m = model.n_latent
    best = {objective: fmx.infer(model, x, objective=objective, tol=1e-11) for objective in ("elbo", "fm")}
    others = {
        "hogwild": lambda m: fmx.Hogwild(2),
        "hogwild, synchronous": lambda m: fmx.Hogwild(2, synchronous=True),
        "damped": lambda m: fmx.Damped(0.2),
    }
    for label, make in (ALGORITHMS | others).items():
        if label == "groups, paper":
            continue  # its bound lies between the two
        result = fmx.infer(model, x, make(m), tol=1e-8)
        assert result.converged, (label, result.message)
        assert result.mean == pytest.approx(best[result.objective_name].mean, abs=1e-5), label
        assert result.sd == pytest.approx(best[result.objective_name].sd, rel=1e-5), label


@pytest.mark.parametrize("name", ["bernoulli, sparse", "poisson", "mixed"])
@pytest.mark.parametrize("algorithm", ["accelerated", "accelerated, paper", "plain", "cavi", "groups", "cavi, greedy"])
def test_batches_missing_entries_and_single_precision(name, algorithm):
    rng = np.random.default_rng(3)
    model, _ = PROBLEMS[name](rng)
    x = model.sample(rng, size=4).x
    x[1, ::3] = np.nan
    make = ALGORITHMS[algorithm](model.n_latent)
    batch = fmx.infer(model, x, make, tol=1e-8)
    for k in range(4):
        alone = fmx.infer(model, x[k], make, tol=1e-8)
        assert batch.mean[k] == pytest.approx(alone.mean, abs=1e-5)
        assert batch.sd[k] == pytest.approx(alone.sd, rel=1e-5)
        assert batch.elbo[k] == pytest.approx(alone.elbo, rel=1e-9)
    layer = model.layers[0]
    single = fmx.DEF(fmx.Layer(layer.family, layer.weights.toarray().astype(np.float32), layer.bias), prior=model.prior)
    result = fmx.infer(single, x.astype(np.float32), make)
    assert result.mean.dtype == result.sd.dtype == np.float32
    assert result.mean == pytest.approx(batch.mean, abs=5e-3)


def test_missing_entries_equal_dropped_rows():
    model, x = PROBLEMS["mixed"](np.random.default_rng(4))
    layer = model.layers[0]
    x = x.copy()
    x[::4] = np.nan
    kept = np.flatnonzero(~np.isnan(x))
    family = fmx.Mixed([fmx.Gaussian(0.5), fmx.Bernoulli(), fmx.Binomial(9), fmx.Poisson()], layer.family.which[kept])
    smaller = fmx.DEF(fmx.Layer(family, layer.weights.toarray()[kept]), prior=model.prior)
    first, second = fmx.infer(model, x, tol=1e-9), fmx.infer(smaller, x[kept], tol=1e-9)
    assert first.mean == pytest.approx(second.mean, abs=1e-7)
    assert first.elbo == pytest.approx(second.elbo, rel=1e-10)


def test_fm_bound_below_elbo_and_gap_for_every_family():
    for name, build in PROBLEMS.items():
        model, x = build(np.random.default_rng(5))
        q = fmx.infer(model, x, max_iter=2)
        elbo, fm = fmx.elbo(model, x, q), fmx.fm_bound(model, x, q)
        slack = 1e-10 * (1 + abs(elbo) + abs(fm))
        assert fm <= elbo + slack, name
        assert fmx.gap(model, x, q).sum() == pytest.approx(elbo - fm, abs=slack), name


def test_bounds_lie_below_the_evidence_of_a_single_latent():
    """log p(x) by one-dimensional quadrature."""
    from scipy import integrate, special, stats

    rng = np.random.default_rng(6)
    w = rng.standard_normal(8)
    for family, log_mass in (
        (fmx.Bernoulli(), lambda x, eta: x * eta - np.logaddexp(0, eta)),
        (fmx.Poisson(), lambda x, eta: x * eta - np.exp(eta) - special.gammaln(x + 1)),
    ):
        model = fmx.DEF(fmx.Layer(family, w[:, None]))
        x = model.sample(rng).x

        def joint(y, x=x, log_mass=log_mass):
            return np.exp(np.sum(log_mass(x, w * y)) + stats.norm.logpdf(y))

        evidence = np.log(integrate.quad(joint, -8, 8, epsabs=1e-14)[0])
        result = fmx.infer(model, x, tol=1e-10)
        assert result.fm_bound == pytest.approx(result.elbo, rel=1e-10), "with one latent there is nothing to separate"
        assert evidence - 0.1 < result.elbo < evidence


def test_explicit_auxiliary_parameters_for_every_family():
    """The optimal ones attain the bound (for every convex a: docs/paper_to_code.md), and others never beat it."""
    rng = np.random.default_rng(7)
    for name in ("bernoulli", "binomial", "poisson", "mixed"):
        model, x = PROBLEMS[name](rng)
        q = fmx.infer(model, x, max_iter=3)
        best = fmx.fm_bound(model, x, q)
        auxiliary = fmx.optimal_auxiliary(model, q)
        assert fmx.fm_bound(model, x, q, auxiliary) == pytest.approx(best, rel=1e-9)
        epsilon = 0.9 * auxiliary.epsilon + 0.1 * rng.dirichlet(np.ones(model.n_latent), size=len(x))
        b_hat = auxiliary.b_hat + 0.1 * rng.standard_normal(epsilon.shape)
        b_hat += (np.broadcast_to(model.layers[0].bias, len(x)) - (epsilon * b_hat).sum(axis=1))[:, None]
        assert fmx.fm_bound(model, x, q, fmx.Auxiliary(epsilon, b_hat)) <= best + 1e-9 * abs(best)


@pytest.mark.parametrize("family", [fmx.Bernoulli(), fmx.Poisson()])
def test_acceleration_needs_far_fewer_passes(family):
    """At least ten times fewer than the plain algorithm, where that needs more than 300; benchmarks/ has large ones."""
    rng = np.random.default_rng(8)
    model, x = problem(family, design(rng, 200, 40, scale=2.0), rng)
    best = fmx.infer(model, x, tol=1e-12).objective

    def passes(algorithm):
        trace = fmx.infer(model, x, algorithm, tol=1e-12, max_iter=3000).trace
        there = np.flatnonzero(trace.objective >= best - 1e-8 * abs(best))
        return 1 + trace.sweeps[there[0]] if len(there) else np.inf

    plain, accelerated = passes(fmx.ForestMixture(accelerate=False)), passes(fmx.ForestMixture())
    assert plain > 300
    assert accelerated <= plain / 10


def test_values_outside_the_support_are_refused():
    for family, x, words in (
        (fmx.Bernoulli(), [0.0, 2.0], "x must be 0 or 1"),
        (fmx.Binomial(3), [0.0, 4.0], "from 0 to trials"),
        (fmx.Poisson(), [0.5, 1.0], "whole number"),
        (fmx.Mixed([fmx.Gaussian(1.0), fmx.Poisson()], [0, 1]), [0.5, -1.0], r"x in the Poisson\(\) rows"),
    ):
        with pytest.raises(fmx.ArgumentError, match=words):
            fmx.infer(fmx.DEF(fmx.Layer(family, np.ones((2, 1)))), x)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fmx.Mixed([], [0]), "at least one family"),
        (lambda: fmx.Mixed([fmx.Gaussian(1.0)], [0, 1]), "positions from 0 to 0 in families; got 1"),
        (lambda: fmx.Mixed([fmx.Gaussian(1.0)], [0.5]), "one integer for each row"),
        (lambda: fmx.Mixed(["gaussian"], [0]), r"families\[0\] must be a family"),
        (lambda: fmx.Mixed([fmx.Gaussian([1.0, 2.0])], [0]), "sd must be"),
        (lambda: fmx.Layer(fmx.Mixed([fmx.Poisson()], [0]), np.ones((2, 1))), "each of the 2 rows of W; got 1"),
    ],
)
def test_mixed_families_are_checked(make, words):
    with pytest.raises(fmx.ArgumentError, match=words):
        make()
