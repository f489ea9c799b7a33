"""Compiled sweeps against the sweeps in NumPy, which share nothing with them but the problem."""

import numpy as np
import pytest
from forestmix.inference.sweep import sweeps
from scipy import sparse

import forestmix as fmx
from forestmix.inference import compiled, interpreted
from forestmix.model import observations
from forestmix.partition import Partition
from forestmix.problem.gaussian import Problem
from forestmix.problem.given import GaussianFactors

N, M = 23, 19
FAMILIES = {
    "bernoulli": lambda: fmx.Bernoulli(),
    "binomial": lambda: fmx.Binomial(np.arange(1, N + 1)),
    "poisson": lambda: fmx.Poisson(),
    "mixed": lambda: fmx.Mixed(
        [fmx.Gaussian(np.linspace(0.5, 2, 6)), fmx.Bernoulli(), fmx.Poisson(), fmx.Binomial(5)], np.arange(N) % 4
    ),
}
LAYOUTS = {
    "row order": np.ascontiguousarray,
    "column order": np.asfortranarray,
    "cut, row order": lambda W: np.pad(W, 3)[3:-3, 3:-3],
    "cut, column order": lambda W: np.asfortranarray(np.pad(W, 3))[3:-3, 3:-3],
    "sparse": sparse.csr_array,
}
#: Groups of one in an order of their own, some of several, more than a panel holds, all at once, and not all of them.
GROUPS = {
    "one": [[j] for j in np.random.default_rng(0).permutation(M)],
    "several": [[3, 1, 2], [0], [4, 5, 6, 7, 8, 9, 10, 11], [12, 14, 13, 15, 16, 17, 18]],
    "many": [list(range(17)), [18, 17]],
    "all": [list(range(M))],
    "some": [[5], [2], [11]],
}


def problem_of(family="mixed", layout="row order", objective="elbo", dtype=np.float64, scale=0.7, groups=None):
    rng = np.random.default_rng(0)
    W = (scale * rng.standard_normal((N, M)) * (rng.random((N, M)) < 0.6)).astype(dtype)
    W[:, 4] = 0
    prior = fmx.Prior(fmx.Gaussian(rng.uniform(0.5, 1.5, M).astype(dtype)), rng.standard_normal(M).astype(dtype) / 3)
    model = fmx.DEF(fmx.Layer(FAMILIES[family](), LAYOUTS[layout](W), 0.2 * rng.standard_normal(N)), prior=prior)
    x = model.sample(rng, size=3).x
    x[0, [0, 9]] = x[-1, 15] = np.nan
    problem = Problem(model, observations(model, x), objective, groups)
    mean = (0.3 * rng.standard_normal((3, M))).astype(dtype)
    q = GaussianFactors(mean, rng.uniform(0.2, 1.5, (3, M)).astype(dtype))
    return problem, problem.evaluate(q)


def assert_same(first, second, rel=1e-10):
    assert first.mean == pytest.approx(second.mean, rel=rel, abs=rel)
    assert first.sd == pytest.approx(second.sd, rel=rel)
    assert first.mean.dtype == first.sd.dtype == second.mean.dtype


def both(name, problem, point, *arguments, **options):
    with np.errstate(all="ignore"):
        return [getattr(module, name)(problem, point, *arguments, **options) for module in (compiled, interpreted)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("objective", ["elbo", "fm"])
def test_groups(family, groups, objective):
    partition = Partition.from_lists([np.array(group) for group in GROUPS[groups]])
    whole = objective == "fm" and len(partition.members) == M
    problem, point = problem_of(family, objective=objective, groups=partition if whole else None)
    for surrogate in (True, False):
        assert_same(*both("sweep_groups", problem, point, partition, surrogate=surrogate, safe=True))
    # Exact steps of many variables at once may lead anywhere, so the comparison ends with the first of them.
    first = Partition.from_lists([np.array(GROUPS[groups][0])])
    assert_same(*both("sweep_groups", problem, point, first, surrogate=False, safe=False))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", GROUPS)
def test_every_layout_of_weights(layout, groups):
    problem, point = problem_of(layout=layout)
    partition = Partition.from_lists([np.array(group) for group in GROUPS[groups]])
    assert_same(*both("sweep_groups", problem, point, partition, surrogate=True, safe=True))
    assert_same(*both("sweep_greedy", problem, point, 4))
    blocks = Partition.from_lists(np.array_split(np.arange(M), 3))
    assert_same(*both("sweep_blocks", problem, point, blocks, True))


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_and_blocks(family):
    problem, point = problem_of(family)
    assert_same(*both("sweep_greedy", problem, point, 25), rel=1e-8)
    for lists in ([np.arange(M)], np.array_split(np.arange(M), 5), [np.array([j]) for j in range(M)]):
        assert_same(*both("sweep_blocks", problem, point, Partition.from_lists(lists), True))


def test_one_block_on_shared_rows_is_a_sweep():
    problem, point = problem_of()
    block = Partition.from_lists([np.arange(M)])
    ones = Partition.from_lists([np.array([j]) for j in range(M)])
    shared = compiled.sweep_blocks(problem, point, block, False)
    assert_same(shared, interpreted.sweep_groups(problem, point, ones, surrogate=False, safe=True))


def test_threads_on_shared_rows_climb():
    problem, point = problem_of(scale=0.3)
    blocks = Partition.from_lists(np.array_split(np.arange(M), 4))
    after = problem.evaluate(compiled.sweep_blocks(problem, point, blocks, False))
    assert (after.objective > point.objective).all()


@pytest.mark.parametrize("layout", ["row order", "column order", "sparse"])
def test_single_precision(layout):
    problem, point = problem_of(layout=layout, dtype=np.float32)
    for groups in ("one", "several"):
        partition = Partition.from_lists([np.array(group) for group in GROUPS[groups]])
        assert_same(*both("sweep_groups", problem, point, partition, surrogate=True, safe=True), rel=2e-3)
    assert_same(*both("sweep_greedy", problem, point, 3), rel=2e-3)


def test_steps_that_overflow_are_halved():
    """Counts of 10,000 where exp(0) is expected: a whole step would lead to exp(1000) and more."""
    rng = np.random.default_rng(0)
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), 40 * rng.standard_normal((N, M))))
    problem = Problem(model, observations(model, np.full(N, 1e4)), "elbo")
    point = problem.evaluate(GaussianFactors(np.zeros((1, M)), np.full((1, M), 0.01)))
    for groups in ("one", "all"):
        partition = Partition.from_lists([np.array(group) for group in GROUPS[groups]])
        first, second = both("sweep_groups", problem, point, partition, surrogate=False, safe=True)
        assert_same(first, second, rel=1e-8)
        after = problem.evaluate(first)
        assert (after.objective > point.objective).all()


def test_rows_of_a_family_without_codes_are_swept_in_numpy():
    class Plain(fmx.Bernoulli):
        def row_codes(self, x):
            return None

    W = np.random.default_rng(0).standard_normal((30, 4))
    x = (W.sum(axis=1) > 0).astype(float)
    problems = [
        Problem(model, observations(model, x), "elbo") for model in map(model_of(W), (Plain(), fmx.Bernoulli()))
    ]
    assert [sweeps(problem) for problem in problems] == [interpreted, compiled]
    for algorithm in (fmx.CAVI(), fmx.CAVI(order="greedy"), fmx.Hogwild(2, synchronous=True)):
        first, second = (fmx.infer(problem.model, x, algorithm, max_iter=5) for problem in problems)
        assert first.mean == pytest.approx(second.mean, rel=1e-8)
        assert first.sd == pytest.approx(second.sd, rel=1e-8)


def model_of(W):
    return lambda family: fmx.DEF(fmx.Layer(family, W))
