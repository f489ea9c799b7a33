"""Learning: EM is monotone, planted forests are found, missing entries and minibatches work."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import forestmix as fmx
from forestmix.forest.engines import State, engine_for
from forestmix.forest.learning import empty_forest
from forestmix.forest.settings import Settings
from forestmix.latents import GaussianFactors
from forestmix.model import Observations
from support.forest_models import planted

FAMILIES = {"gaussian": 1.0, "bernoulli": 2.0, "poisson": 0.7}


def with_gaps(X, rng, share=0.1):
    X = X.copy()
    X[rng.random(X.shape) < share] = np.nan
    return X


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("parents", ["shared", "observation"])
@pytest.mark.parametrize("gaps", [False, True])
def test_em_never_lowers_the_elbo(family, parents, gaps):
    X, *_ = planted(12, 3, 60, FAMILIES[family], 0, family)
    if gaps:
        X = with_gaps(X, np.random.default_rng(0))
    model = fmx.ForestMixtureModel(
        3, family=family, parents=parents, n_init=2, n_moves=2, max_iter=25, tol=0.0, random_state=0
    ).fit(X)
    assert len(model.elbo_trace_) > 3
    assert np.all(np.diff(model.elbo_trace_) >= -1e-9 * abs(model.elbo_))
    assert model.elbo_ == pytest.approx(model.elbo_trace_[-1], rel=1e-12)


@pytest.mark.parametrize("family", [fmx.Gaussian(), fmx.Bernoulli(), fmx.Poisson()], ids=lambda f: f.name)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("learn_prior", [True, False])
def test_sweeps_from_a_random_start_never_lower_the_elbo(family, shared, learn_prior):
    rng = np.random.default_rng(1)
    X, *_ = planted(8, 2, 40, 0.8, 1, family.name)
    data = Observations(X, None, False)
    q = GaussianFactors(rng.standard_normal((40, 3)), np.full((1, 3), 0.5))
    forest, settings = empty_forest(data, 3, family), Settings(n_trees=3, shared=shared, learn_prior=learn_prior)
    engine = engine_for(data, shared)
    state = engine.maximise(State(forest, q, forest.parent_prior), settings)
    for _ in range(15):
        value, state = state.value, engine.sweep(state, settings)
        assert state.value >= value - 1e-9 * abs(value)


@pytest.mark.parametrize("family", FAMILIES)
def test_elbo_of_a_sweep_is_the_elbo_at_its_factors(family):
    """The value that EM reports from its sums is the ELBO of the paper's equation 1, term by term."""
    X, *_ = planted(9, 3, 50, FAMILIES[family], 2, family)
    model = fmx.ForestMixtureModel(3, family=family, n_init=1, n_moves=0, max_iter=400, tol=1e-12, random_state=0).fit(
        X
    )
    posterior = model.infer(X)
    model.responsibilities_ = posterior.responsibilities
    assert model.elbo(X, posterior) == pytest.approx(posterior.elbo, rel=1e-9)
    assert posterior.elbo == pytest.approx(model.elbo_, rel=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("parents", ["shared", "observation"])
def test_planted_forests_are_found(family, parents):
    X, truth, w = planted(18, 3, 300, FAMILIES[family], 3, family)
    model = fmx.ForestMixtureModel(3, family=family, parents=parents, max_iter=30, random_state=0).fit(X)
    assert adjusted_rand_score(truth, model.parents_) == 1
    found = model.weights_[np.arange(18), model.parents_]
    assert abs(np.corrcoef(np.abs(found), np.abs(w))[0, 1]) > 0.5
    assert np.mean(np.abs(found)) == pytest.approx(np.mean(np.abs(w)), rel=0.15)


def test_planted_forests_are_found_with_missing_entries():
    X, truth, _ = planted(40, 4, 300, 1.0, 4)
    model = fmx.ForestMixtureModel(4, random_state=0).fit(with_gaps(X, np.random.default_rng(0), 0.3))
    assert adjusted_rand_score(truth, model.parents_) == 1
    assert np.isfinite(model.transform(X)).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("parents", ["shared", "observation"])
def test_minibatches_end_near_full_sweeps(family, parents):
    X, truth, _ = planted(12, 2, 360, FAMILIES[family], 5, family)
    settings = {"family": family, "parents": parents, "random_state": 0, "n_init": 1}
    batches = fmx.ForestMixtureModel(2, batch_size=60, max_iter=5, tol=1e-5, **settings).fit(X)
    full = fmx.ForestMixtureModel(2, max_iter=20, tol=1e-5, **settings).fit(X)
    assert adjusted_rand_score(truth, batches.parents_) == 1
    assert batches.elbo_ == pytest.approx(full.elbo_, rel=0.01)


def test_the_answer_does_not_depend_on_units():
    X, *_ = planted(20, 3, 150, 1.0, 6)
    scale, shift = np.geomspace(1e-3, 1e3, 20), np.linspace(-100, 100, 20)
    one = fmx.ForestMixtureModel(3, random_state=0).fit(X)
    other = fmx.ForestMixtureModel(3, random_state=0).fit(X * scale + shift)
    np.testing.assert_array_equal(one.parents_, other.parents_)
    np.testing.assert_allclose(one.weights_ * scale[:, None], other.weights_, rtol=1e-4, atol=1e-9)
    assert other.elbo_ == pytest.approx(one.elbo_ - 150 * np.log(scale).sum(), rel=1e-7)


def test_the_same_seed_gives_the_same_model():
    X, *_ = planted(20, 3, 100, 0.5, 7)
    one, other = (fmx.ForestMixtureModel(3, random_state=5).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.weights_, other.weights_)


def test_trees_that_nobody_wants_stay_empty():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((100, 3)) @ np.ones((3, 3)) + 0.01 * rng.standard_normal((100, 3))
    model = fmx.ForestMixtureModel(5, random_state=0).fit(X)
    assert len(set(model.parents_)) < 5
    assert np.isfinite(model.elbo_trace_).all()
    assert np.isfinite(model.transform(X)).all()


def test_constant_and_absent_variables_do_no_harm():
    X, *_ = planted(8, 2, 60, 1.0, 9)
    X = np.c_[X, np.full(60, 3.0), np.full(60, np.nan)]
    model = fmx.ForestMixtureModel(2, random_state=0).fit(X)
    assert np.isfinite(model.elbo_)
    assert np.isfinite(model.score(X))


def test_uncertain_parents_are_said_to_be():
    """A variable that is noise belongs nowhere; one with two parents' signals in a short series is in doubt."""
    X, *_ = planted(20, 2, 200, 1.5, 10)
    X[:, 0] = np.random.default_rng(0).standard_normal(200)
    model = fmx.ForestMixtureModel(2, random_state=0).fit(X)
    assert model.responsibilities_[0].max() < 0.99
    assert model.responsibilities_[1:].max(axis=1).min() > 0.999


def test_learned_prior_of_the_parents_is_the_share_of_the_trees():
    X, truth, _ = planted(30, 3, 200, 1.0, 11)
    X = X[:, np.r_[np.flatnonzero(truth == 0), np.flatnonzero(truth != 0)[:8]]]
    model = fmx.ForestMixtureModel(3, parent_prior="learned", random_state=0).fit(X)
    np.testing.assert_allclose(model.parent_prior_[0], model.responsibilities_.mean(axis=0), atol=1e-6)


def test_selection_finds_the_planted_number():
    X, *_ = planted(24, 3, 250, 1.0, 12)
    selection = fmx.select_n_trees(X, [1, 2, 3, 4, 5], folds=4)
    assert selection.smallest == 3
    assert selection.model.n_trees == selection.best
    assert selection.scores.shape == (5, 4)
    assert "best=" in repr(selection)


def test_parents_per_observation_are_learned_in_their_shares():
    rng = np.random.default_rng(0)
    weights = rng.uniform(1, 2, (20, 2)) * rng.choice([-1, 1], (20, 2))
    prior = rng.dirichlet([1, 1], 20)
    truth = fmx.ForestMixtureModel.from_parameters(weights, noise=0.5, parent_prior=prior, parents="observation")
    draw = truth.sample(800, rng)
    model = fmx.ForestMixtureModel(2, parents="observation", random_state=0, n_init=2, max_iter=40).fit(draw.x)
    order = [0, 1] if abs(np.corrcoef(model.transform(draw.x)[:, 0], draw.latents[:, 0])[0, 1]) > 0.5 else [1, 0]
    np.testing.assert_allclose(model.parent_prior_[:, order], prior, atol=0.1)
    assert model.elbo_ > truth.elbo(draw.x)


def test_progress_is_told(capsys):
    X, *_ = planted(10, 2, 50, 1.0, 13)
    fmx.ForestMixtureModel(2, n_init=2, random_state=0, verbose=True).fit(X)
    assert "start 1 of 2: ELBO" in capsys.readouterr().out
