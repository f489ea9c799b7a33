"""Mean-field inference with the parameters given, and the ELBO at any factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forestmix.arrays import Array
from forestmix.forest.engines import Options, State, engine_for, shared_state
from forestmix.forest.leaves import base, pair_scores
from forestmix.forest.parameters import ForestParameters, Latents
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
    """Sweep over latents, and parents if wanted, until the gain falls below ``tol`` for each entry of x."""
    engine = engine_for(p, data, shared)
    mean = np.broadcast_to(p.prior_mean, (data.x.shape[0], p.n_trees))
    state = State(p, Latents(mean, p.prior_sd[None]), responsibilities, -np.inf)
    options = Options(learn=False, parents=parents)
    exact = shared and p.noise is not None and not parents
    trace: list[float] = []
    converged = False
    while len(trace) < max_iter and not converged:
        state = engine.sweep(state, options)
        trace.append(state.value)
        converged = exact or (len(trace) > 1 and trace[-1] - trace[-2] <= tol * data.x.size)
    sd = np.broadcast_to(state.latents.sd, state.latents.mean.shape).copy()
    return ForestPosterior(state.latents.mean, sd, state.responsibilities, state.value, np.array(trace), converged)


def elbo_at(p: ForestParameters, data: Observations, q: Latents, responsibilities: Array) -> float:
    """Return the ELBO (paper, equation 1) at given factors, with parents shared by the observations."""
    options = Options(learn=False, parents=False)
    constant = float(np.sum(base(p, data)))
    return shared_state(p, q, pair_scores(p, data, q), responsibilities, options, constant).value
