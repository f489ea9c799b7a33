"""Case weights: a weight is that many equal rows, on every bound, algorithm and family."""

import numpy as np
import pytest
import scipy

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


#: Weights of three observations: zeros in different places, and two observations alike.
OWN = np.stack([WEIGHTS, WEIGHTS[::-1], WEIGHTS])


def batch(family, seed=0, prior=None, weights=OWN):
    """A model with weights of their own for three observations, and each observation with its rows repeated."""
    rng = np.random.default_rng(seed)
    W, b = rng.standard_normal((len(WEIGHTS), 3)), rng.standard_normal(len(WEIGHTS))
    prior = fmx.Prior(fmx.Gaussian(1.3)) if prior is None else prior
    X = family.sample(rng.standard_normal((3, 3)) @ W.T + b, rng)
    X[1, 4] = np.nan
    weighted = fmx.DEF(fmx.Layer(family, W, b, case_weights=weights), prior=prior)
    alone = []
    for x, own in zip(X, weights, strict=True):
        rows = np.repeat(np.arange(len(own)), own)
        alone.append((fmx.DEF(fmx.Layer(family, W[rows], b[rows]), prior=prior), x[rows]))
    return weighted, X, alone


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_each_observation_may_have_weights_of_its_own(family, algorithm):
    weighted, X, alone = batch(FAMILIES[family](), seed=6)
    name, options = ALGORITHMS[algorithm]
    found = fmx.infer(weighted, X, name, **options)
    for k, (plain, x) in enumerate(alone):
        own = fmx.infer(plain, x, name, **options)
        assert found.mean[k] == pytest.approx(own.mean, abs=1e-5)
        assert np.broadcast_to(found.sd, found.mean.shape)[k] == pytest.approx(own.sd, abs=1e-5)
        assert found.elbo[k] == pytest.approx(own.elbo, abs=1e-6)
        assert found.fm_bound[k] == pytest.approx(own.fm_bound, abs=1e-6)


@pytest.mark.parametrize("covariance", ["factorised", "full"])
@pytest.mark.parametrize("family", FAMILIES)
def test_posteriors_of_observations_with_their_own_weights(family, covariance):
    weighted, X, alone = batch(FAMILIES[family](), seed=7)
    posterior = fmx.infer(weighted, X, covariance=covariance).posterior()
    loo = posterior.loo()
    for k, (plain, x) in enumerate(alone):
        own = fmx.infer(plain, x, covariance=covariance).posterior()
        assert posterior.mean[k] == pytest.approx(own.mean, abs=1e-5)
        assert posterior.sd[k] == pytest.approx(own.sd, rel=1e-5)
        taken = posterior.take(k)
        assert taken.sd == pytest.approx(own.sd, rel=1e-5)
        assert taken.loo().elpd == pytest.approx(np.sum(loo.pointwise[loo.rows[:, 0] == k]), rel=1e-9)
        ours, theirs = taken.check(size=500), own.check(size=500)
        assert ours.log_evidence == pytest.approx(theirs.log_evidence, abs=0.05)
        if family == "gaussian":
            assert posterior.log_evidence[k] == pytest.approx(own.log_evidence, abs=1e-8)
            assert fmx.log_evidence(weighted, X)[k] == pytest.approx(own.log_evidence, abs=1e-8)


@pytest.mark.parametrize("family", ["gaussian", "poisson", "binomial"])
@pytest.mark.parametrize("prior", [fmx.Bernoulli(), fmx.Laplace(1.0), fmx.SpikeSlab(0.3)], ids=lambda one: one.name)
def test_other_latents_with_weights_of_each_observation(prior, family):
    if family != "gaussian" and not isinstance(prior, fmx.Bernoulli):
        pytest.skip("no such rows and latents")
    algorithms = ["fm"] if family == "gaussian" else ["fm", "cavi"]
    weighted, X, alone = batch(FAMILIES[family](), seed=8, prior=fmx.Prior(prior))
    for algorithm in algorithms:
        found = fmx.infer(weighted, X, algorithm)
        for k, (plain, x) in enumerate(alone):
            own = fmx.infer(plain, x, algorithm)
            assert found.mean[k] == pytest.approx(own.mean, abs=1e-5)
            assert found.objective[k] == pytest.approx(own.objective, abs=1e-6)
    if isinstance(prior, fmx.Bernoulli):
        own = [fmx.log_evidence(plain, x) for plain, x in alone]
        assert fmx.log_evidence(weighted, X) == pytest.approx(own, abs=1e-9)


def test_deep_models_with_weights_of_each_observation():
    rng = np.random.default_rng(9)
    W, above = rng.standard_normal((len(WEIGHTS), 3)), fmx.Layer(fmx.Gaussian(0.5), rng.standard_normal((3, 2)))
    for family in (fmx.Gaussian(0.7), fmx.Poisson()):
        model = fmx.DEF(fmx.Layer(family, W, case_weights=OWN), above)
        X = family.sample(0.3 * rng.standard_normal((3, len(WEIGHTS))), rng)
        found = fmx.infer(model, X)
        for k, own in enumerate(OWN):
            rows = np.repeat(np.arange(len(own)), own)
            alone = fmx.infer(fmx.DEF(fmx.Layer(family, W[rows]), above), X[k, rows])
            assert found.layers[1].mean[k] == pytest.approx(alone.layers[1].mean, abs=1e-5)
            assert found.elbo[k] == pytest.approx(alone.elbo, abs=1e-6)


def test_a_scale_that_observations_with_their_own_weights_share():
    # Oracle: one model of all observations side by side, with rows repeated and a latent of its own for each.
    weighted, X, alone = batch(fmx.Gaussian(0.5), seed=10)
    noise, below = fmx.Gaussian(fmx.scales.HalfCauchy(1.0)), weighted.layers[0]
    model = fmx.DEF(fmx.Layer(noise, below.weights, below.bias, case_weights=OWN), prior=weighted.prior)
    blocks = [plain.layers[0].weights.toarray() for plain, _ in alone]
    bias = np.concatenate([plain.layers[0].bias for plain, _ in alone])
    whole = fmx.DEF(fmx.Layer(noise, scipy.linalg.block_diag(*blocks), bias), prior=weighted.prior)
    ours, theirs = fmx.infer(model, X).posterior(), fmx.infer(whole, np.concatenate([x for _, x in alone])).posterior()
    assert ours.mean.ravel() == pytest.approx(theirs.mean, abs=1e-4)
    (own,), (other,) = ours.scales.values(), theirs.scales.values()
    assert own.mean == pytest.approx(other.mean, rel=1e-3)


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_other_engines_and_parts_of_a_batch(family):
    weighted, X, _ = batch(FAMILIES[family](), seed=11)
    below, expected = weighted.layers[0], fmx.infer(weighted, X)
    W = below.weights.toarray()
    chunked = fmx.DEF(fmx.Layer(FAMILIES[family](), [W[:5], W[5:]], below.bias, case_weights=OWN), prior=weighted.prior)
    found = [fmx.infer(chunked, X), fmx.infer(weighted, X, memory_budget=1), fmx.infer(weighted, X, engine="compiled")]
    for one in found:
        assert one.mean == pytest.approx(expected.mean, abs=1e-5)
        assert one.elbo == pytest.approx(expected.elbo, abs=1e-6)


def test_saved_and_loaded(tmp_path):
    weighted, X, _ = batch(fmx.Gaussian(0.7), seed=12)
    fmx.infer(weighted, X).save(tmp_path / "result.nc")
    loaded = fmx.load(tmp_path / "result.nc")
    assert np.array_equal(loaded.model.layers[0].case_weights, OWN)
    assert fmx.infer(loaded.model, X).elbo == pytest.approx(loaded.elbo, abs=1e-9)


def test_data_must_have_an_observation_for_each_row_of_weights():
    weighted, X, _ = batch(fmx.Gaussian(0.7))
    with pytest.raises(fmx.ArgumentError, match=r"x must have shape \(3, 12\), that of case_weights; got \(2, 12\)"):
        fmx.infer(weighted, X[:2])
    one = fmx.DEF(fmx.Layer(fmx.Gaussian(0.7), weighted.layers[0].weights, case_weights=OWN[:1]))
    assert fmx.infer(one, X[0]).mean.shape == (3,)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), r"case_weights must have one entry for each of the 12 rows of W, or one .*; got shape \(3,\)"),
        (-np.ones(12), r"case_weights must not be negative; got -1.0"),
        (np.full(12, np.nan), "case_weights must be finite"),
    ],
)
def test_wrong_weights(weights, message):
    with pytest.raises(fmx.ArgumentError, match=message):
        fmx.Layer(fmx.Poisson(), np.ones((12, 2)), case_weights=weights)


def test_latents_have_no_case_weights():
    """A weight of 0 would do nothing, and others would change the prior of a latent but not its draws."""
    layer = fmx.Layer(fmx.Gaussian(1.0), np.ones((2, 1)), case_weights=[1.0, 0.0])
    with pytest.raises(fmx.ArgumentError, match=r"case_weights must be left out of layers\[1\]: they weigh rows"):
        fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.ones((3, 2))), layer)


@pytest.mark.parametrize("weight", [1e-90, 1e120])
def test_weights_that_leave_the_precision_of_W(weight):
    W = np.ones((2, 1), np.float32)
    with pytest.raises(fmx.ArgumentError, match=r"sd / sqrt\(case_weights\) does not fit float32.* Give float64"):
        fmx.Layer(fmx.Gaussian(1.0), W, case_weights=[1.0, weight])
    layer = fmx.Layer(fmx.Gaussian(1.0), W.astype(float), case_weights=[1.0, weight])
    assert layer.family.row_sd == pytest.approx([1.0, weight**-0.5])
