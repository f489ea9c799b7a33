"""Mean-field inference with the parameters given, and the ELBO at any factors."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    sweep, never decreasing; ``converged``: the last gain was below the tolerance.
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
    state = State(p, GaussianFactors(mean, p.prior.sd[None]), responsibilities)
    if shared and p.noise is not None and not parents:
        state = engine.evaluate(replace(state, latents=engine.latents(state)), infer_parents=False)
        trace, converged = [state.value], True
    else:
        state, trace, converged = (_together if shared and parents else _one_by_one)(engine, state, max_iter, tol)
    sd = np.broadcast_to(state.latents.sd, state.latents.mean.shape).copy()
    return ForestPosterior(state.latents.mean, sd, state.responsibilities, state.value, np.array(trace), converged)


def _together(engine: Engine, state: State, max_iter: int, tol: float) -> tuple[State, list[float], bool]:
    """Sweep until the ELBO gains less than ``tol`` for each entry of x."""
    trace: list[float] = []
    while len(trace) < max_iter:
        state = engine.evaluate(replace(state, latents=engine.latents(state)))
        trace.append(state.value)
        if len(trace) > 1 and trace[-1] - trace[-2] <= tol * engine.data.x.size:
            return state, trace, True
    return state, trace, False


def _one_by_one(engine: Engine, state: State, max_iter: int, tol: float) -> tuple[State, list[float], bool]:
    """Sweep until no latent of an observation moves by more than ``tol`` of its sd; the others go on without it.

    A rule on gains would not do: to a gain of 1e-9 nats the means are off by the square root of that, and where they
    stop would depend on the company.
    """
    mean = np.array(state.latents.mean)
    sd = np.broadcast_to(state.latents.sd, mean.shape).copy()
    active, rest = np.arange(len(mean)), engine
    trace: list[float] = []
    while len(trace) < max_iter and len(active):
        old = GaussianFactors(mean[active], sd[active])
        new = rest.latents(replace(state, latents=old))
        mean[active], sd[active] = new.mean, new.sd
        state = engine.evaluate(replace(state, latents=GaussianFactors(mean, sd)), infer_parents=False)
        trace.append(state.value)
        moves = np.maximum(np.abs(new.mean - old.mean) / new.sd, np.abs(new.sd / old.sd - 1)).max(axis=1)
        goes_on = np.flatnonzero(moves > tol)
        if len(goes_on) < len(active):
            active, rest = active[goes_on], rest.take(goes_on)
    return state, trace, not len(active)


def elbo_at(p: ForestParameters, data: Observations, q: GaussianFactors, responsibilities: Array) -> float:
    """Return the ELBO (paper, equation 1) at given factors, with parents shared by the observations."""
    # Not from the moments of Gaussian leaves, which cancel where the units of x are not standard.
    return SharedParents(data).evaluate(State(p, q, responsibilities), infer_parents=False).value
