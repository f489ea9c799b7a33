"""One contract that every algorithm is run through; a new one costs one entry in FACTORIES."""

import inspect

import numpy as np
import pytest

import forestmix as fmx
from forestmix.inference import ALGORITHMS

FACTORIES = {
    "fm": lambda: fmx.ForestMixture(accelerate=False),
    "fm, accelerated": lambda: fmx.ForestMixture(),
    "fm, paper": lambda: fmx.ForestMixture("fm", accelerate=False),
    "fm, groups": lambda: fmx.ForestMixture(groups=[range(8), range(8, 16)]),
    "cavi": lambda: fmx.CAVI(),
    "cavi, random": lambda: fmx.CAVI("random"),
    "cavi, greedy": lambda: fmx.CAVI("greedy"),
    "cavi, one at a time": lambda: fmx.CAVI(steps_per_iteration=1),
    "block": lambda: fmx.BlockCoordinate(),
    "hogwild": lambda: fmx.Hogwild(2),
    "hogwild, synchronous": lambda: fmx.Hogwild(2, synchronous=True),
    "damped": lambda: fmx.Damped(0.2),
}
#: Parallel steps and sweeps over the 16 latents that one iteration takes.
STEPS = {
    "fm, groups": (2, 1.0), "cavi": (16, 1.0), "cavi, random": (16, 1.0), "cavi, greedy": (16, 1.0),
    "cavi, one at a time": (1, 1 / 16), "block": (16, 1.0), "hogwild": (8, 1.0), "hogwild, synchronous": (8, 1.0),
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return fmx.DEF(fmx.Layer(fmx.Gaussian(sd=0.5), fmx.windows((3, 3), 2), 0.1))


@pytest.fixture(scope="module")
def x(model):
    return model.sample(0).x


def test_every_algorithm_has_a_factory():
    assert {factory().name for factory in FACTORIES.values()} == set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_name_works_without_options(model, x, name):
    assert fmx.infer(model, x, name, max_iter=3).algorithm == name


@pytest.mark.parametrize("name", FACTORIES)
def test_contract(model, x, name):
    seen = []
    before = x.copy()
    result = fmx.infer(model, x, FACTORIES[name](), tol=1e-8, callback=seen.append)
    assert (x == before).all(), "the caller's data is not touched"
    assert result.converged is True
    assert result.status is fmx.Status.CONVERGED
    assert result.message == fmx.Status.CONVERGED.value
    assert result.mean.shape == result.sd.shape == (16,)
    assert result.layers[0].mean is result.mean
    for value in (result.objective, result.elbo, result.fm_bound):
        assert isinstance(value, float)
    assert isinstance(result.n_iter, int)
    assert result.fm_bound <= result.elbo
    trace = result.trace
    assert len(trace) == result.n_iter + 1 == len(seen)
    for column in ("iteration", "step", "sweeps", "objective", "gradient_norm", "seconds"):
        assert getattr(trace, column).shape == (len(trace),)
        assert getattr(seen[-1], column) == pytest.approx(getattr(trace, column)[-1])
    assert trace.iteration.tolist() == list(range(len(trace)))
    assert (np.diff(trace.seconds) >= 0).all()
    assert trace.gradient_norm[-1] <= 1e-8
    assert trace.objective[-1] == result.objective
    steps, sweeps = STEPS.get(name, (1, 1.0))
    assert trace.step.tolist() == [steps * t for t in range(len(trace))]
    assert trace.sweeps == pytest.approx(sweeps * np.arange(len(trace)))
    assert seen[-1].mean == pytest.approx(result.mean)
    assert seen[0].sd == pytest.approx(np.ones(16))


@pytest.mark.parametrize("name", [name for name in FACTORIES if name != "hogwild"])
def test_the_same_run_twice_is_the_same_to_the_bit(model, x, name):
    first, second = (fmx.infer(model, x, FACTORIES[name](), max_iter=20) for _ in range(2))
    assert (first.mean == second.mean).all()
    assert (first.trace.objective == second.trace.objective).all()


@pytest.mark.parametrize("name", FACTORIES)
def test_warm_start_from_a_result_and_from_arrays(model, x, name):
    cold = fmx.infer(model, x, tol=1e-10)
    for init in (cold, (cold.mean, cold.sd), [cold.mean, cold.sd]):
        warm = fmx.infer(model, x, FACTORIES[name](), init=init)
        if FACTORIES[name]().name != "fm" or warm.objective_name == "elbo":
            assert warm.n_iter <= (16 if "one at a time" in name else 2)
        assert warm.mean == pytest.approx(cold.mean, abs=1e-4)


def test_a_model_that_is_solved_at_once_takes_one_iteration(model, x):
    result = fmx.infer(model, x, max_iter=1, tol=1e-12)
    W = model.layers[0].weights.toarray()
    exact = np.linalg.solve(W.T @ W / 0.5**2 + np.eye(16), W.T @ (x - 0.1) / 0.5**2)
    assert result.converged
    assert result.mean == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("name", [name for name in FACTORIES if name != "fm, accelerated"])
def test_limit_returns_a_result_that_says_what_to_try(model, x, name):
    result = fmx.infer(model, x, FACTORIES[name](), max_iter=1, tol=1e-12)
    assert not result.converged
    assert result.status is fmx.Status.MAX_ITER
    assert "max_iter" in result.message
    assert result.n_iter == 1


def test_signature_is_the_contract():
    parameters = inspect.signature(fmx.infer).parameters
    assert list(parameters) == [
        "model", "x", "algorithm", "objective", "accelerate", "covariance", "engine", "init", "tol", "max_iter",
        "progress", "callback", "memory_budget", "checkpoint", "checkpoint_seconds", "out", "scales",
    ]  # fmt: skip
    defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    assert defaults == {
        "algorithm": "fm", "objective": "auto", "accelerate": True, "covariance": "factorised", "engine": "auto",
        "init": None, "tol": 1e-6, "max_iter": None, "progress": False, "callback": None, "memory_budget": 2**30,
        "checkpoint": None, "checkpoint_seconds": 60.0, "out": None, "scales": "shared",
    }  # fmt: skip
