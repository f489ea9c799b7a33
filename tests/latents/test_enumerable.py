"""Models with binary latents, small enough to go over all their states: FM <= ELBO(q) <= log p(x), and monotone."""

import numpy as np
import pytest

import forestmix as fmx
from support import deep_oracles as oracles

ROWS = {
    "gaussian": fmx.Gaussian(0.8),
    "bernoulli": fmx.Bernoulli(),
    "binomial": fmx.Binomial(4),
    "poisson": fmx.Poisson(),
}
SIZES = [(5,), (10,), (4, 3), (5, 4), (3, 3, 3)]


def assert_monotone(result):
    objective = result.trace.objective
    assert (np.diff(objective) >= -1e-11 * (np.abs(objective[:-1]) + 20)).all(), np.diff(objective).min()
    assert result.status not in (fmx.Status.DECREASED, fmx.Status.NON_FINITE)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_fm_below_elbo_below_evidence(rows, sizes):
    rng = np.random.default_rng(sum(sizes) + len(rows))
    model = oracles.binary_model(rng, ROWS[rows], sizes)
    x = model.sample(rng).x
    result = fmx.infer(model, x, max_iter=60)
    probabilities = [layer.mean for layer in result.layers]
    evidence, elbo = oracles.enumerated(model, x, probabilities)
    assert result.elbo == pytest.approx(elbo, abs=1e-9)
    assert fmx.log_evidence(model, x) == pytest.approx(evidence, abs=1e-10)
    assert result.fm_bound <= result.elbo + 1e-9
    assert result.elbo <= evidence + 1e-9
    assert_monotone(result)
    assert fmx.gap(model, x, result).sum() == pytest.approx(result.elbo - result.fm_bound, abs=1e-9)
    assert (fmx.gap(model, x, result) >= -1e-9).all()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("sizes", [(6,), (4, 3)], ids=str)
def test_coordinate_ascent_polishes(rows, sizes):
    """From the end of a forest mixture run, coordinate ascent climbs the exact ELBO."""
    rng = np.random.default_rng(7)
    model = oracles.binary_model(rng, ROWS[rows], sizes)
    x = model.sample(rng).x
    result = fmx.infer(model, x, max_iter=40)
    polished = fmx.infer(model, x, "cavi", init=result)
    assert polished.objective_name == "elbo"
    assert polished.elbo >= result.elbo - 1e-9
    assert_monotone(polished)
    assert polished.elbo <= oracles.enumerated(model, x)[0] + 1e-9
    # Each variable is at its own optimum: no change of one probability raises the ELBO.
    probabilities = [layer.mean.copy() for layer in polished.layers]
    for k, j in [(0, 0), (len(sizes) - 1, 1)]:
        for step in (-1e-3, 1e-3):
            moved = [p.copy() for p in probabilities]
            moved[k][j] = np.clip(moved[k][j] + step, 0, 1)
            assert oracles.enumerated(model, x, moved)[1] <= polished.elbo + 1e-7


@pytest.mark.parametrize("rows", ["bernoulli", "poisson"])
def test_any_q_is_below_the_evidence_also_with_missing_rows(rows):
    rng = np.random.default_rng(3)
    model = oracles.binary_model(rng, ROWS[rows], (5, 4))
    x = model.sample(rng).x
    keep = np.arange(8) != 2
    masked = np.where(keep, x, np.nan)
    q = [rng.uniform(0.05, 0.95, 5), rng.uniform(0.05, 0.95, 4)]
    lower = fmx.Layer(model.layers[0].family, model.layers[0].weights.toarray()[keep], model.layers[0].bias[keep])
    smaller = fmx.DEF(lower, model.layers[1], prior=model.prior)
    evidence, elbo = oracles.enumerated(smaller, x[keep], q)
    assert fmx.elbo(model, masked, q) == pytest.approx(elbo, abs=1e-9)
    assert fmx.fm_bound(model, masked, q) == pytest.approx(fmx.fm_bound(smaller, x[keep], q), abs=1e-9)
    assert fmx.log_evidence(model, masked) == pytest.approx(evidence, abs=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_a_missing_row_is_one_that_is_not_there(seed):
    """Also where all of its bound goes to one parent, and ``a`` is beyond the range of numbers at the others."""
    rng = np.random.default_rng(seed)
    W, b = rng.standard_normal((14, 5)) * (rng.random((14, 5)) < 0.6), 0.3 * rng.standard_normal(14)
    x = rng.poisson(2, 14).astype(float)
    keep = np.arange(14) != 2
    prior = fmx.Prior(fmx.Bernoulli())
    masked = fmx.infer(fmx.DEF(fmx.Layer(fmx.Poisson(), W, b), prior=prior), np.where(keep, x, np.nan))
    smaller = fmx.infer(fmx.DEF(fmx.Layer(fmx.Poisson(), W[keep], b[keep]), prior=prior), x[keep])
    assert masked.converged
    assert smaller.converged
    assert masked.objective == pytest.approx(smaller.objective, abs=1e-8)


def test_gaussian_rows_reach_the_best_of_coordinate_ascent():
    """In at least 95 % of generated models; ``python -m benchmarks latents`` does 200 and states the shortfall."""
    rng = np.random.default_rng(1)
    reached = 0
    for _ in range(40):
        n, m = int(rng.integers(4, 15)), int(rng.integers(2, 13))
        W = rng.uniform(0.3, 1.5) * rng.standard_normal((n, m))
        prior = fmx.Prior(fmx.Bernoulli(), rng.standard_normal(m))
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(rng.uniform(0.4, 1.5)), W), prior=prior)
        x = model.sample(rng).x
        result = fmx.infer(model, x, tol=1e-9)
        best = max(fmx.infer(model, x, a, tol=1e-9).elbo for a in (fmx.CAVI(), fmx.CAVI("random")))
        reached += result.elbo >= best - 1e-8
        assert_monotone(result)
    assert reached >= 38


def test_batches_are_their_observations():
    rng = np.random.default_rng(2)
    model = oracles.binary_model(rng, fmx.Bernoulli(), (5, 3))
    x = model.sample(rng, size=3).x
    x[1, 0] = np.nan
    together = fmx.infer(model, x, max_iter=30)
    for k in range(3):
        alone = fmx.infer(model, x[k], max_iter=30)
        assert together.objective[k] == pytest.approx(alone.objective, abs=1e-6)
    assert together.layers[0].probabilities.shape == (3, 5, 2)


def test_too_many_states_are_refused():
    model = oracles.binary_model(np.random.default_rng(0), fmx.Gaussian(1.0), (30,))
    with pytest.raises(fmx.ArgumentError, match="few Bernoulli latents"):
        fmx.log_evidence(model, np.zeros(8))
