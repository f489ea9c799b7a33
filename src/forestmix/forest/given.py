"""Mean-field inference with the parameters given, and the ELBO at any factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forestmix.arrays import Array
from forestmix.forest.engines import Engine, SharedParents, State, engine_for
from forestmix.forest.parameters import ForestParameters
from forestmix.latents import GaussianFactors
from forestmix.model import Observations


@dataclass(frozen=True)
class ForestPosterior:
    """Mean-field factors of a forest mixture given observations.

    ``mean`` and ``sd``: of the latents, (N, m); ``responsibilities``: ``q(e)``, (n, m), for parents per observation its
    mean over observations; ``elbo``: the bound on ``log p(x)`` of all observations together; ``elbo_trace``: after each
    sweep, never falling; ``converged``: the last gain was below the tolerance.
    """

    mean: Array
    sd: Array
    responsibilities: Array
    elbo: float
    elbo_trace: Array
    converged: bool


def infer_given(
    p: ForestParameters,
    data: Observations,
    responsibilities: Array,
    *,
    shared: bool,
    parents: bool,
    max_iter: int,
    tol: float,
) -> ForestPosterior:
    """Sweep over latents, and parents if wanted.

    Shared parents that are inferred too tie the observations together: the sweeps end when one gains less than ``tol``
    for each entry of x. Otherwise each observation ends as it would alone, see ``_one_by_one``.
    """
    engine = engine_for(p, data, shared)
    mean = np.broadcast_to(p.prior_mean, (data.x.shape[0], p.n_trees))
    q = GaussianFactors(mean, p.prior.sd[None])
    if shared and p.noise is not None and not parents:
        state = engine.evaluate(p, engine.latents(p, q, responsibilities), responsibilities)
        trace, converged = [state.value], True
    elif shared and parents:
        state, trace, converged = _together(engine, State(p, q, responsibilities, -np.inf), max_iter, tol)
    else:
        q, trace, converged = _one_by_one(engine, p, q, responsibilities, max_iter, tol)
        state = engine.evaluate(p, q, responsibilities)
    sd = np.broadcast_to(state.latents.sd, state.latents.mean.shape).copy()
    return ForestPosterior(state.latents.mean, sd, state.responsibilities, state.value, np.array(trace), converged)


def _together(engine: Engine, state: State, max_iter: int, tol: float) -> tuple[State, list[float], bool]:
    trace: list[float] = []
    while len(trace) < max_iter:
        p, q = state.forest, engine.latents(state.forest, state.latents, state.responsibilities)
        state = engine.evaluate(p, q, None)
        trace.append(state.value)
        if len(trace) > 1 and trace[-1] - trace[-2] <= tol * engine.data.x.size:
            return state, trace, True
    return state, trace, False


def _one_by_one(
    engine: Engine, p: ForestParameters, q: GaussianFactors, r: Array, max_iter: int, tol: float
) -> tuple[GaussianFactors, list[float], bool]:
    """Sweep until no latent of an observation moves by more than ``tol`` of its sd; the others go on without it.

    A rule on gains would not do: to a gain of 1e-9 nats the means are off by the square root of that, and where they
    stop would depend on the company.
    """
    mean, sd = np.array(q.mean), np.broadcast_to(q.sd, q.mean.shape).copy()
    values, active = np.zeros(len(mean)), np.arange(len(mean))
    fixed = engine.constant(p) - (p.divergence_of_parents(r) if isinstance(engine, SharedParents) else 0.0)
    trace: list[float] = []
    while len(trace) < max_iter and len(active):
        old = GaussianFactors(mean[active], sd[active])
        new = engine.latents(p, old, r)
        mean[active], sd[active] = new.mean, new.sd
        values[active] = engine.fit_of_observations(p, new, r) - p.divergence(new)
        trace.append(float(values.sum()) + fixed)
        moves = np.maximum(np.abs(new.mean - old.mean) / new.sd, np.abs(new.sd / old.sd - 1)).max(axis=1)
        goes_on = np.flatnonzero(moves > tol)
        if len(goes_on) < len(active):
            active, engine = active[goes_on], engine.take(goes_on)
    return GaussianFactors(mean, sd), trace, not len(active)


def elbo_at(p: ForestParameters, data: Observations, q: GaussianFactors, responsibilities: Array) -> float:
    """Return the ELBO (paper, equation 1) at given factors, with parents shared by the observations."""
    # Not from the moments of Gaussian leaves, which cancel where the units of x are not standard.
    return SharedParents(data).evaluate(p, q, responsibilities).value
