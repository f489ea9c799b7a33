"""Learning from minibatches: EM with running averages in place of sums over all observations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forestmix.arrays import Array
from forestmix.families import Family
from forestmix.forest.engines import State, best_parents, engine_for
from forestmix.forest.given import infer_given
from forestmix.forest.learning import learn
from forestmix.forest.leaves import LeafSums, moved
from forestmix.forest.parameters import ForestParameters
from forestmix.forest.settings import Settings
from forestmix.model import Observations

#: The weight of batch t in the running averages is (t + 2) ** -_FORGETTING (Cappe and Moulines, 2009).
_FORGETTING = 0.7
_LATENT_SWEEPS = 20
#: The work of the epochs, in parts of that of the first batch.
_EPOCHS = 40.0


def learn_in_batches(
    data: Observations, family: Family, settings: Settings, batch_size: int, rng: np.random.Generator
) -> State:
    """Learn from a batch with all restarts, then take epochs of batches over all observations.

    The ELBO of all observations is evaluated after each epoch. It need not rise each time: the best epoch is kept, and
    the run ends when an epoch gains less than ``tol`` for each entry. One that is asked to stop ends with its epoch.
    """
    N, course, engine = data.x.shape[0], settings.course, engine_for(data, settings.shared)
    course.planned += _EPOCHS
    first = learn(data.take(rng.permutation(N)[:batch_size]), family, settings, rng)
    forest, responsibilities = first.forest, first.responsibilities
    averages: list[Array] = []
    best, trace, step = replace(first, value=-np.inf), [], 0
    # A move by a share of an sd gains the square of that share.
    tol = settings.tol if settings.shared else settings.tol**0.5
    course.begin(_EPOCHS)
    for epoch in range(settings.max_iter):
        order = rng.permutation(N)
        for start in range(0, N - batch_size + 1, batch_size):
            rate = (step + 2.0) ** -_FORGETTING
            new = _statistics(forest, data.take(order[start : start + batch_size]), responsibilities, settings.shared)
            averages = [(1 - rate) * a + rate * b for a, b in zip(averages, new, strict=True)] if step else new
            forest, responsibilities = _maximise(forest, averages, new, rate, N, settings)
            step += 1
        state = infer_given(engine, forest, responsibilities, parents=True, max_iter=_LATENT_SWEEPS, tol=tol)
        trace.append(state.value)
        course.report(f"epoch {epoch + 1}: ELBO {state.value:.8g}")
        gain = state.value - best.value
        best = state if gain > 0 else best
        if gain <= settings.tol * data.x.size:
            return replace(best, trace=trace, converged=True)
        if course.swept(best, data, (epoch + 1) / settings.max_iter):
            break
    return replace(best, trace=trace, converged=False)


def _statistics(forest: ForestParameters, batch: Observations, responsibilities: Array, shared: bool) -> list[Array]:
    """Return the sums that leaves are learned from and, last, the shares of the parents, for one observation."""
    engine = engine_for(batch, shared)
    q = infer_given(engine, forest, responsibilities, parents=False, max_iter=_LATENT_SWEEPS, tol=1e-3).latents
    shares = responsibilities if shared else engine.evaluate(State(forest, q, responsibilities)).responsibilities
    return [*(part / len(batch.x) for part in engine.sums(forest, q)), shares]


def _maximise(
    forest: ForestParameters, averages: list[Array], new: list[Array], rate: float, N: int, settings: Settings
) -> tuple[ForestParameters, Array]:
    """Return parameters and parents from the averages; a Newton step has the slope of the newest batch alone."""
    leaves, shares, latest = LeafSums(*averages[:-1]), averages[-1], LeafSums(*new[:-1])
    if forest.noise is None:
        forest = moved(forest, leaves._replace(x=latest.x, xy=latest.xy).newton_step(), rate)
        scores = leaves.value
    else:
        forest = leaves.gaussian(forest, settings.min_variance)
        scores = leaves.gaussian_scores(forest)
    if not settings.shared:
        return settings.with_prior(forest, shares), shares
    responsibilities = best_parents(forest, N * scores)
    return settings.with_prior(forest, responsibilities.mean(axis=0)), responsibilities
