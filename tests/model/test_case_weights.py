"""Case weights: a weight is that many equal rows, on every bound, algorithm and family."""

import numpy as np
import pytest

import forestmix as fmx

FAMILIES = {
    "gaussian": lambda: fmx.Gaussian(0.7),
    "bernoulli": fmx.Bernoulli,
    "binomial": lambda: fmx.Binomial(5),
    "poisson": fmx.Poisson,
}
ALGORITHMS = {
    "accelerated": ("fm", {}),
    "plain": ("fm", {"accelerate": False, "max_iter": 4000}),
    "paper": ("fm", {"objective": "fm"}),
    "cavi": ("cavi", {"max_iter": 4000}),
    "greedy": (fmx.CAVI(order="greedy"), {"max_iter": 4000}),
    "groups": (fmx.ForestMixture(groups=[[0, 1], [2]]), {"max_iter": 4000}),
}
WEIGHTS = np.array([1, 2, 0, 3, 1, 1, 2, 0, 1, 4, 1, 1])


def pair(family, seed=0, prior=None):
    """A weighted model, the same with each row as often as its weight says, and the data of both."""
    rng = np.random.default_rng(seed)
    W, b = rng.standard_normal((len(WEIGHTS), 3)), rng.standard_normal(len(WEIGHTS))
    prior = fmx.Prior(fmx.Gaussian(1.3)) if prior is None else prior
    repeated = np.repeat(np.arange(len(WEIGHTS)), WEIGHTS)
    weighted = fmx.DEF(fmx.Layer(family, W, b, case_weights=WEIGHTS), prior=prior)
    plain = fmx.DEF(fmx.Layer(family, W[repeated], b[repeated]), prior=prior)
    x = family.sample(W @ rng.standard_normal(3) + b, rng)
    return weighted, plain, x, x[repeated]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_weight_is_that_many_rows(family, algorithm):
    weighted, plain, x, repeated = pair(FAMILIES[family]())
    name, options = ALGORITHMS[algorithm]
    ours, theirs = fmx.infer(weighted, x, name, **options), fmx.infer(plain, repeated, name, **options)
    assert ours.mean == pytest.approx(theirs.mean, abs=1e-5)
    assert ours.sd == pytest.approx(theirs.sd, abs=1e-5)
    assert ours.elbo == pytest.approx(theirs.elbo, abs=1e-6)
    assert ours.fm_bound == pytest.approx(theirs.fm_bound, abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_posteriors_and_predictions_are_those_of_the_rows(family):
    weighted, plain, x, repeated = pair(FAMILIES[family](), seed=1)
    ours, theirs = fmx.infer(weighted, x).posterior(), fmx.infer(plain, repeated).posterior()
    assert ours.mean == pytest.approx(theirs.mean, abs=1e-5)
    assert ours.sd == pytest.approx(theirs.sd, rel=1e-5)
    places = np.searchsorted(np.repeat(np.arange(len(WEIGHTS)), WEIGHTS), np.flatnonzero(WEIGHTS))
    chosen = np.flatnonzero(WEIGHTS)
    assert ours.predict(chosen).upper == pytest.approx(theirs.predict(places).upper, abs=1e-5)
    full = fmx.infer(weighted, x, covariance="full").posterior()
    assert full.mean == pytest.approx(fmx.infer(plain, repeated, covariance="full").posterior().mean, abs=1e-5)


@pytest.mark.parametrize("prior", [fmx.Bernoulli(), fmx.Laplace(1.0), fmx.SpikeSlab(0.3)], ids=lambda one: one.name)
def test_latents_of_other_families(prior):
    weighted, plain, x, repeated = pair(fmx.Gaussian(0.7), seed=2, prior=fmx.Prior(prior))
    ours, theirs = fmx.infer(weighted, x), fmx.infer(plain, repeated)
    assert ours.mean == pytest.approx(theirs.mean, abs=1e-5)
    assert ours.objective == pytest.approx(theirs.objective, abs=1e-6)


def test_counts_above_rows_that_are_not_gaussian():
    weighted, plain, x, repeated = pair(fmx.Poisson(), seed=3, prior=fmx.Prior(fmx.Bernoulli()))
    ours, theirs = fmx.infer(weighted, x, "cavi"), fmx.infer(plain, repeated, "cavi")
    assert ours.mean == pytest.approx(theirs.mean, abs=1e-6)
    assert ours.objective == pytest.approx(theirs.objective, abs=1e-6)


def test_the_evidence_counts_rows_as_often_as_they_weigh():
    weighted, plain, x, repeated = pair(fmx.Gaussian(0.7), seed=4)
    assert fmx.log_evidence(weighted, x) == pytest.approx(fmx.log_evidence(plain, repeated), abs=1e-9)


def test_an_unknown_noise_is_that_of_the_rows():
    weighted, plain, x, repeated = pair(fmx.Gaussian(fmx.scales.HalfCauchy(1.0)).with_sd(0.5), seed=5)
    noise = fmx.Gaussian(fmx.scales.HalfCauchy(1.0))
    models = [
        fmx.DEF(fmx.Layer(noise, old.layers[0].weights, old.layers[0].bias, case_weights=weights), prior=old.prior)
        for old, weights in ((weighted, WEIGHTS), (plain, None))
    ]
    ours, theirs = fmx.infer(models[0], x).posterior(), fmx.infer(models[1], repeated).posterior()
    assert ours.mean == pytest.approx(theirs.mean, abs=1e-4)
    (own,), (other,) = ours.scales.values(), theirs.scales.values()
    assert own.mean == pytest.approx(other.mean, rel=1e-3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), r"case_weights must have one entry for each of the 12 rows of W; got \(3,\)"),
        (-np.ones(12), r"case_weights must not be negative; got -1.0"),
        (np.full(12, np.nan), "case_weights must be finite"),
    ],
)
def test_wrong_weights(weights, message):
    with pytest.raises(fmx.ArgumentError, match=message):
        fmx.Layer(fmx.Poisson(), np.ones((12, 2)), case_weights=weights)
