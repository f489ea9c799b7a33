"""Learning a forest mixture: restarts with annealing, the best taken further by larger moves, minibatches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import Family, Gaussian
from forestmix.forest.engines import Engine, State, engine_for
from forestmix.forest.parameters import LARGEST, ForestParameters, counts, masked
from forestmix.forest.settings import Settings
from forestmix.forest.starts import proposals, starts
from forestmix.latents import GaussianFactors
from forestmix.model import Observations
from forestmix.posterior.course import fallen

#: Sweeps over which the temperature goes down to 1.
_COOLING = 8
#: Newton steps on the leaves before the first sweep of a family that is not Gaussian.
_WARMING = 5
#: Sweeps of every start, of which the best go on.
_TRIAL = 20
#: A column whose spread is this small a share of its mean is constant.
FLAT = 1e-10
#: Starts that are not random, and the number of random ones that are run to the end.
_TRUSTED, _FINALISTS = 2, 2
#: The work of learning other leaves than those of ``learn_gaussian``, as a multiple of the work there.
_LEAVES = 4.0


def learn(data: Observations, family: Family, settings: Settings, rng: np.random.Generator) -> State:
    """Learn from all observations at once.

    Other families and parents per observation start from the groups that Gaussian leaves with shared parents find,
    which takes matrix products only. A run that is asked to stop ends with the sweep it is at, and with leaves of its
    family.
    """
    plain = settings.shared and isinstance(family, Gaussian)
    work = settings.n_init + min(settings.n_init, _TRUSTED + _FINALISTS) + settings.n_moves
    settings.course.planned += work if plain else (1 + _LEAVES) * work
    z = data if isinstance(family, Gaussian) else surrogate(data, family)
    state = learn_gaussian(z, settings, rng)
    if plain:
        return state
    state = replace(state, forest=first_leaves(data, family, state))
    engine = engine_for(data, settings.shared)
    if settings.shared:
        for _ in range(_WARMING):
            state = replace(state, forest=engine.maximise(state, settings).forest)
    else:
        mixed = 0.9 * state.responsibilities + 0.1 / settings.n_trees
        state = replace(state, forest=settings.with_prior(state.forest, mixed))
    return climb(engine, replace(engine.maximise(state, settings), trace=(), converged=False), settings, _LEAVES * work)


def learn_gaussian(data: Observations, settings: Settings, rng: np.random.Generator) -> State:
    """Learn Gaussian leaves with shared parents from several starts, and try larger moves from the best.

    All starts get a few sweeps; the first two, which see all variables at once, and the best of the others are run to
    the end. A random start must be better than the first two by more than chance explains.
    """
    engine, course = Engine(data), settings.course
    short = replace(settings, max_iter=min(_TRIAL, settings.max_iter))
    tried: list[State] = []
    for latents in starts(data.x, settings.n_trees, rng, settings.n_init):
        tried.append(anneal(engine, latents, short))
        course.report(f"start {len(tried)} of {settings.n_init}: ELBO {tried[-1].value:.8g}")
        if course.stopped:
            break
    best = max((climb(engine, state, settings) for state in tried[:_TRUSTED]), key=lambda state: state.value)
    for state in sorted(tried[_TRUSTED:], key=lambda state: -state.value)[:_FINALISTS]:
        done = climb(engine, state, settings)
        best = done if is_better(done, best) else best
    course.report(f"best start: ELBO {best.value:.8g} after {len(best.trace)} sweeps")
    return improve(engine, best, settings, rng)


def anneal(engine: Engine, latents: GaussianFactors, settings: Settings) -> State:
    """Run EM from latents, with the parents softened at first; the trace starts when the temperature is 1."""
    forest = empty_forest(engine.data, settings.n_trees, Gaussian())
    state = engine.maximise(State(forest, latents, forest.parent_prior), settings)
    if settings.temperature > 1:
        for heat in np.geomspace(settings.temperature, 1.0, _COOLING, endpoint=False):
            state = engine.sweep(state, settings, float(heat))
            if settings.course.swept(state, engine.data):
                break
    return climb(engine, state, settings)


def climb(engine: Engine, state: State, settings: Settings, part: float = 1.0) -> State:
    """Sweep until the gain is below ``tol`` for each entry of x.

    A run that is asked to stop has one sweep at least, so that it has a trace. ``part``: of the work, for the course.
    """
    goal, course = settings.tol * max(float(counts(engine.data).sum()), 1.0), settings.course
    course.begin(part)
    trace, converged = list(state.trace), state.converged
    while not converged and len(trace) < settings.max_iter and not (trace and course.stopped):
        state = engine.sweep(state, settings)
        trace.append(state.value)
        converged = len(trace) > 1 and trace[-1] - trace[-2] <= goal
        course.swept(state, engine.data, max(_share(trace, goal), len(trace) / settings.max_iter))
    return replace(state, trace=trace, converged=converged)


def _share(trace: list[float], goal: float) -> float:
    """Return how much of a climb is done, by how far its gains have fallen from the first one to the goal."""
    if len(trace) < 3:
        return 0.0
    # Where tol is 0, rounding is what a run gets to.
    goal = max(goal, float(np.finfo(np.float64).eps) * abs(trace[-1]))
    return fallen(trace[-1] - trace[-2], max(trace[1] - trace[0], goal), goal)


def improve(engine: Engine, best: State, settings: Settings, rng: np.random.Generator) -> State:
    """Try larger moves until ``n_moves`` in a row have failed; keep what ends higher by a margin.

    The trace goes on with the values of a kept move that lie above what was there.
    """
    course, failures = settings.course, 0
    moves = proposals(best, engine.data, rng)
    while failures < settings.n_moves and not course.stopped and (latents := next(moves, None)) is not None:
        start = engine.maximise(State(best.forest, latents, best.responsibilities), settings)
        found = climb(engine, start, settings)
        if not is_better(found, best):
            failures += 1
            continue
        trace = [*best.trace, *(value for value in found.trace if value > best.trace[-1])]
        best, failures = replace(found, trace=trace), 0
        moves = proposals(best, engine.data, rng)
        course.report(f"a move raised the ELBO to {best.value:.8g}")
    return best


def is_better(new: State, old: State) -> bool:
    """Say whether a state is higher by more than chance explains.

    Of k variables that changed their parent, each had about n m ways to change, so that the best of all changes gains
    up to ``k log(n m)`` by chance. On planted forests with few variables to a tree, smaller gains raised the ELBO and
    lowered the agreement with the truth.
    """
    n, m = old.responsibilities.shape
    pair = np.zeros((m, m))
    np.add.at(pair, (np.argmax(old.responsibilities, axis=1), np.argmax(new.responsibilities, axis=1)), 1)
    same = pair[scipy.optimize.linear_sum_assignment(-pair)].sum()
    return new.value > old.value + max(n - same, 1) * np.log(n * m)


def empty_forest(data: Observations, m: int, family: Family) -> ForestParameters:
    """Return parameters of m trees that say nothing yet."""
    shape = (data.x.shape[1], m)
    noise, uniform = np.ones(shape) if isinstance(family, Gaussian) else None, np.full(shape, 1 / m)
    return ForestParameters(family, np.zeros(shape), np.zeros(shape), uniform, noise, np.zeros(m), Gaussian(np.ones(m)))


def first_leaves(data: Observations, family: Family, found: State) -> ForestParameters:
    """Return leaves to start from: the Gaussian ones that were found, or each variable's own level and no weight."""
    if isinstance(family, Gaussian):
        return found.forest
    count = counts(data)
    # Half an observation on either side keeps the level of a constant variable finite.
    level = (data.x.sum(axis=0) + 0.5) / (count + 1)
    bias = np.log(level) if family.name == "poisson" else scipy.special.logit(level)
    forest = empty_forest(data, found.forest.n_trees, family)
    return replace(forest, bias=forest.bias + bias[:, None], parent_prior=found.forest.parent_prior)


def surrogate(data: Observations, family: Family) -> Observations:
    """Return the data as Gaussian leaves may have it: counts by their logarithm, each variable standardised."""
    return standardise(replace(data, x=np.log1p(data.x)) if family.name == "poisson" else data)[0]


def standardise(data: Observations) -> tuple[Observations, Array, Array]:
    """Return x with mean 0 and variance 1 in every column, and the two; constants keep their scale.

    A column that varies, but so little that the squares of its entries are 0, is refused.
    """
    count = np.maximum(counts(data), 1)
    centre = data.x.sum(axis=0) / count
    residual = masked(data, data.x - centre)
    largest = np.abs(residual).max(axis=0)
    tiny = (largest > FLAT * np.abs(centre)) & (largest < 1 / LARGEST)
    if tiny.any():
        column = int(np.argmax(tiny))
        raise ArgumentError(
            f"X must vary by at least {1 / LARGEST:g} in every column that is not constant, or its squares are 0; "
            f"got {largest[column]:.3g} in column {column}. Divide the variables by a number of their size."
        )
    scale = np.sqrt(np.einsum("si,si->i", residual, residual) / count)
    scale = np.where(scale <= FLAT * np.abs(centre), 1.0, scale)
    return replace(data, x=residual / scale), centre, scale


def in_order(state: State) -> State:
    """Return the state with the largest trees first, and each latent of the sign that most of its variables have."""
    p, q, r = state.forest, state.latents, state.responsibilities
    order = np.argsort(-r.sum(axis=0), kind="stable")
    sign = np.where((r * p.weights).sum(axis=0) < 0, -1.0, 1.0)[order]

    def ordered(trees: Array) -> Array:
        return trees.take(order, axis=1)

    noise = None if p.noise is None else ordered(p.noise)
    weights, bias, prior = ordered(p.weights) * sign, ordered(p.bias), ordered(p.parent_prior)
    forest = replace(p, weights=weights, bias=bias, parent_prior=prior, noise=noise)
    latents = GaussianFactors(ordered(q.mean) * sign, ordered(q.sd))
    return replace(state, forest=forest, latents=latents, responsibilities=ordered(r))
