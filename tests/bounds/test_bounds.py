"""The bounds against high precision, and against each other, over generated models."""

import numpy as np
import pytest
from hypothesis import given, settings

import forestmix as fmx
from support import oracles
from support.strategies import gaussian_cases

pytestmark = pytest.mark.filterwarnings("error")


def size_of(*values):
    return 1 + sum(abs(value) for value in values)


@settings(max_examples=150, deadline=None)
@given(gaussian_cases())
def test_elbo_equals_the_oracle(case):
    expected = oracles.elbo(case)
    assert fmx.elbo(case.model, case.x, case.q) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=150, deadline=None)
@given(gaussian_cases())
def test_fm_bound_below_elbo_below_evidence(case):
    fm, elbo = fmx.fm_bound(case.model, case.x, case.q), fmx.elbo(case.model, case.x, case.q)
    evidence = oracles.log_evidence(case)
    slack = 1e-12 * size_of(fm, elbo, evidence)
    assert fm <= elbo + slack
    assert elbo <= evidence + slack


@settings(max_examples=150, deadline=None)
@given(gaussian_cases())
def test_gap_is_the_difference_and_never_negative(case):
    gap = fmx.gap(case.model, case.x, case.q)
    fm, elbo = fmx.fm_bound(case.model, case.x, case.q), fmx.elbo(case.model, case.x, case.q)
    assert gap.shape == case.x.shape
    assert (gap >= 0).all()
    assert gap.sum() == pytest.approx(elbo - fm, abs=1e-10 * size_of(fm, elbo))


@settings(max_examples=100, deadline=None)
@given(gaussian_cases())
def test_gap_of_a_row_with_one_parent_is_zero(case):
    alone = (case.W != 0).sum(axis=1) <= 1
    gap, scale = fmx.gap(case.model, case.x, case.q), (np.abs(case.W) @ case.q_sd / case.sd) ** 2
    assert (gap[alone] <= 1e-14 * scale[alone]).all()


@settings(max_examples=100, deadline=None)
@given(gaussian_cases(log_scale=2.0))
def test_log_evidence_equals_the_oracle(case):
    expected = oracles.log_evidence(case)
    assert fmx.log_evidence(case.model, case.x) == pytest.approx(expected, rel=1e-8, abs=1e-8)


@settings(max_examples=150, deadline=None)
@given(gaussian_cases())
def test_optimal_auxiliary_attains_the_bound(case):
    auxiliary = fmx.optimal_auxiliary(case.model, case.q)
    explicit, optimal = (fmx.fm_bound(case.model, case.x, case.q, a) for a in (auxiliary, None))
    assert explicit == pytest.approx(optimal, abs=1e-10 * size_of(optimal) + rounding(case, auxiliary))


@settings(max_examples=150, deadline=None)
@given(gaussian_cases())
def test_bound_is_the_elbo_of_the_matching_forest_mixture_model(case):
    """Paper, section 4.1, at the optimal auxiliary parameters: the oracle knows only the forest mixture model."""
    auxiliary = fmx.optimal_auxiliary(case.model, case.q)
    expected = oracles.forest_mixture_elbo(case, auxiliary.epsilon, auxiliary.b_hat)
    slack = 1e-10 * size_of(expected) + rounding(case, auxiliary)
    assert fmx.fm_bound(case.model, case.x, case.q) == pytest.approx(expected, abs=slack)


@settings(max_examples=150, deadline=None)
@given(gaussian_cases(log_scale=2.0))
def test_any_auxiliary_gives_the_forest_mixture_elbo_and_never_beats_the_optimum(case):
    auxiliary = random_auxiliary(case, np.random.default_rng(7))
    explicit = fmx.fm_bound(case.model, case.x, case.q, auxiliary)
    expected = oracles.forest_mixture_elbo(case, auxiliary.epsilon, auxiliary.b_hat)
    slack = 1e-10 * size_of(expected) + rounding(case, auxiliary)
    assert explicit == pytest.approx(expected, abs=slack)
    assert explicit <= fmx.fm_bound(case.model, case.x, case.q) + slack


def random_auxiliary(case, rng):
    """Any point of the simplex, zeros of W included, and any split of the bias."""
    epsilon = rng.dirichlet(np.ones(case.W.shape[1]), size=len(case.x))
    b_hat = rng.standard_normal(case.W.shape)
    b_hat += (case.b - (epsilon * b_hat).sum(axis=1))[:, None]
    return fmx.Auxiliary(epsilon, b_hat)


def rounding(case, auxiliary):
    """What double precision can lose: b_hat and w mu / epsilon may be large and cancel."""
    epsilon = np.where(auxiliary.epsilon > 0, auxiliary.epsilon, 1)
    part = np.abs(auxiliary.b_hat) + np.abs(case.W * case.mean) / epsilon
    residual = np.abs(case.x)[:, None] + part
    return 1e-13 * float((auxiliary.epsilon * residual**2 / case.sd[:, None] ** 2).sum())


def test_auxiliary_is_dense_or_sparse_like_the_weights():
    dense = fmx.windows((4, 4), 2).toarray()
    for W, kind in ((dense, np.ndarray), (fmx.windows((4, 4), 2), type(fmx.windows((4, 4), 2)))):
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W))
        auxiliary = fmx.optimal_auxiliary(model, (np.ones(25), np.full(25, 0.5)))
        assert isinstance(auxiliary.epsilon, kind)
        assert isinstance(auxiliary.b_hat, kind)
        assert np.asarray(auxiliary.epsilon.sum(axis=1)) == pytest.approx(np.ones(16))


def test_a_parent_left_out_makes_the_bound_minus_infinity():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.ones((1, 2)), 0.0))
    auxiliary = fmx.Auxiliary(np.array([[1.0, 0.0]]), np.zeros((1, 2)))
    assert fmx.fm_bound(model, np.zeros(1), (np.zeros(2), np.ones(2)), auxiliary) == -np.inf


@pytest.mark.parametrize(
    ("epsilon", "b_hat", "words"),
    [
        ([[0.5, 0.4]], [[0.0, 0.0]], "sum to 1; row 0 sums to 0.9"),
        ([[1.5, -0.5]], [[0.0, 0.0]], "not be negative"),
        ([[0.5, 0.5]], [[1.0, 0.0]], "b_hat must satisfy"),
        ([[0.5, 0.5, 0.0]], [[0.0, 0.0]], "shape of W"),
        ([[np.nan, 0.5]], [[0.0, 0.0]], "finite"),
    ],
)
def test_auxiliary_that_breaks_its_constraints_is_refused(epsilon, b_hat, words):
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.ones((1, 2)), 0.0))
    with pytest.raises(fmx.ArgumentError, match=words):
        fmx.fm_bound(model, np.zeros(1), (np.zeros(2), np.ones(2)), fmx.Auxiliary(np.array(epsilon), np.array(b_hat)))


def test_batches_and_missing_entries_of_the_bounds():
    rng = np.random.default_rng(0)
    W, b, sd = rng.standard_normal((5, 3)), rng.standard_normal(5), rng.uniform(0.5, 2, 5)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd), W, b))
    x = rng.standard_normal((4, 5))
    x[1, 2] = x[3, 0] = x[3, 4] = np.nan
    q = rng.standard_normal((4, 3)), rng.uniform(0.1, 1, (4, 3))
    for bound in (fmx.elbo, fmx.fm_bound, lambda m, x, q: fmx.log_evidence(m, x)):
        values = bound(model, x, q)
        for k in range(4):
            kept = ~np.isnan(x[k])
            smaller = fmx.DEF(fmx.Layer(fmx.Gaussian(sd[kept]), W[kept], b[kept]))
            assert values[k] == pytest.approx(bound(smaller, x[k, kept], (q[0][k], q[1][k])), rel=1e-12)
    assert (fmx.gap(model, x, q)[np.isnan(x)] == 0).all()
    assert fmx.gap(model, x, q).sum(axis=1) == pytest.approx(fmx.elbo(model, x, q) - fmx.fm_bound(model, x, q))
