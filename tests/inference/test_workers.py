"""The paper's worker setting: groups of latents that hear of each other by vectors of rows alone."""

import itertools

import numpy as np
import pytest

import forestmix as fmx
from forestmix.engines.grid import GridEngine
from forestmix.engines.reference import ReferenceEngine
from forestmix.errors import ArgumentError
from forestmix.inference import workers
from forestmix.model import observations
from forestmix.problem.make import make_problem
from support.engine_cases import families

CUTS = (0, 3, 8, 12)


def columns(W, cuts=CUTS):
    return [[W[:, a:b] for a, b in itertools.pairwise(cuts)]]


def problem(family, n=48, m=12, seed=0):
    rng = np.random.default_rng(seed)
    W = 0.4 * rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.5)
    model = fmx.DEF(fmx.Layer(families(n)[family], W, 0.2))
    return model, fmx.DEF(fmx.Layer(families(n)[family], columns(W), 0.2)), model.sample(rng).x


@pytest.mark.parametrize("mode", workers.MODES)
@pytest.mark.parametrize("objective", ["elbo", "fm"])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "mixed"])
def test_workers_end_where_one_machine_does(family, objective, mode):
    model, parted, x = problem(family)
    found = fmx.infer(parted, x, fmx.ForestMixture(objective, workers=mode), tol=1e-8)
    right = fmx.infer(model, x, objective=objective, tol=1e-12)
    assert found.converged
    np.testing.assert_allclose(found.mean, right.mean, atol=1e-6)
    np.testing.assert_allclose(found.sd, right.sd, rtol=1e-6)
    assert np.all(np.diff(found.trace.objective) >= -1e-9)
    assert ("Workers did not wait for each other" in found.message) == (mode == "stale")


def test_a_batch_with_missing_entries():
    rng = np.random.default_rng(3)
    W = rng.standard_normal((20, 12)) * (rng.random((20, 12)) < 0.3)
    model, parted = (fmx.DEF(fmx.Layer(fmx.Gaussian(0.7), given)) for given in (W, columns(W)))
    x = model.sample(rng, size=3).x
    x[1, 2], x[2, :7] = np.nan, np.nan
    found = fmx.infer(parted, x, fmx.ForestMixture(workers="synchronous"), tol=1e-8)
    np.testing.assert_allclose(found.mean, fmx.infer(model, x, tol=1e-12).mean, atol=1e-6)
    assert found.converged.all()


def turned(parted, x, q, objective):
    """Return the points before and after one turn of all workers."""
    data, engine = observations(parted, x), GridEngine(ReferenceEngine())
    climbed = make_problem(parted, data, engine, objective, both=True)
    point = climbed.evaluate(climbed.start(q))
    return point, climbed.evaluate(workers.take_turns(climbed, point, stale=False))


@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_one_local_step_is_no_worse_than_theorem_2(objective, monkeypatch):
    """A turn of Gaussian rows climbs at least as far as the paper's step, from wherever it begins."""
    monkeypatch.setattr(workers, "TURNS", 1)
    monkeypatch.setattr(workers, "LOCAL_STEPS", 1)
    model, parted, x = problem("gaussian")
    rng = np.random.default_rng(1)
    for _ in range(5):
        q = (3 * rng.standard_normal((1, 12)), 0.05 + rng.random((1, 12)))
        before, after = turned(parted, x, q, objective)
        data, engine = observations(model, x), ReferenceEngine()
        plain = make_problem(model, data, engine, objective, both=True)
        step = plain.evaluate(plain.plain_step(plain.evaluate(plain.start(q))))
        assert after.objective >= step.objective - 1e-9
        assert after.objective >= before.objective
        np.testing.assert_allclose(after.q.sd, step.q.sd, rtol=1e-12)


def test_the_bound_across_workers_covers_all_changes_at_once():
    """``sum_i kappa_i (sum_G d_iG)^2 <= sum_G sum_i kappa_i d_iG^2 s_i / s_iG``, for any d."""
    rng = np.random.default_rng(2)
    s, kappa = rng.random((4, 30)), rng.random(30)
    for _ in range(100):
        d = rng.standard_normal((4, 30)) * 10 ** rng.uniform(-3, 3, (4, 30))
        assert kappa @ d.sum(axis=0) ** 2 <= np.sum(kappa * d**2 * s.sum(axis=0) / s) * (1 + 1e-12)


def test_a_fall_makes_stale_workers_wait(monkeypatch):
    """Where stale turns lower the objective, the run goes back, waits from then on, and says so."""
    model, parted, x = problem("gaussian")
    turns = workers.take_turns
    asked = []

    def astray(climbed, point, *, stale):
        asked.append(stale)
        found = turns(climbed, point, stale=stale)
        return found.moved(found.mean + 5, found.sd) if stale and len(asked) > 1 else found

    monkeypatch.setattr(workers, "take_turns", astray)
    found = fmx.infer(parted, x, fmx.ForestMixture(workers="stale"), tol=1e-8)
    assert asked[:2] == [True, True]
    assert not any(asked[2:])
    assert found.converged
    assert "and fell, so the run was made synchronous" in found.message
    assert np.all(np.diff(found.trace.objective) >= -1e-9)
    np.testing.assert_allclose(found.mean, fmx.infer(model, x, tol=1e-12).mean, atol=1e-6)


def test_a_worker_that_lags_behind_is_not_waited_for():
    """A chunk that is slow makes its turns with what it heard; the others have made theirs by then."""
    import threading

    from forestmix.weights import as_weights

    chunks = as_weights(columns(np.ones((2, 12)))).chunks
    others_done, heard = threading.Event(), []
    done = []

    def turn(weights, state, rows, *told):
        if state[0] == 2:
            assert others_done.wait(10)
            heard.append(told)
        else:
            done.append(state)
            if len(done) == 2 * 3:
                others_done.set()
        return state[0], state[1] + 1

    ended = chunks.without_waiting(turn, [(k, 0) for k in range(3)], lambda state: state[1], None, 3)
    assert ended == [(0, 3), (1, 3), (2, 3)]
    # Its first turn ended after the others had made all of theirs, though the last of these may not be written yet.
    assert [own for *_, own in heard] == [0, 1, 2]
    assert min(heard[1][:2]) >= 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": "late"}, "workers must be one of"),
        ({"workers": "stale", "groups": [[0], [1]]}, "groups must be None when workers are given"),
        ({"workers": "stale", "accelerate": True}, "accelerate must be False or None when groups or workers"),
    ],
)
def test_wrong_options(options, words):
    with pytest.raises(ArgumentError, match=words):
        fmx.ForestMixture(**options)


def test_wrong_models():
    W, alone = np.ones((4, 2)), fmx.ForestMixture(workers="synchronous")
    halves = [[W[:, :1], W[:, 1:]]]
    for given in (W, [W[:2], W[2:]], halves * 2):
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), given))
        with pytest.raises(ArgumentError, match="W must be in chunks of columns, each with all rows"):
            fmx.infer(model, np.ones(model.n_observed), alone)
    deep = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), halves), fmx.Layer(fmx.Gaussian(1.0), np.ones((2, 1))))
    binary = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), halves), prior=fmx.Prior(fmx.Bernoulli()))
    for model in (deep, binary):
        with pytest.raises(ArgumentError, match="workers must be None for deep models"):
            fmx.infer(model, np.ones(4), alone)


def test_a_stale_run_goes_on_from_a_checkpoint(tmp_path):
    _, parted, x = problem("poisson")
    algorithm, path = fmx.ForestMixture(workers="stale"), tmp_path / "run.npz"
    fmx.infer(parted, x, algorithm, tol=1e-8, max_iter=2, checkpoint=path)
    found = fmx.infer(parted, x, algorithm, tol=1e-8, checkpoint=path)
    assert found.converged
    assert "Workers did not wait" in found.message
