"""A forest mixture with its parameters given: mean-field inference, the ELBO at any factors, log-likelihoods."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy

from forestmix.arrays import Array, total
from forestmix.families import Gaussian
from forestmix.forest.engines import Engine, ParentsPerObservation, State, valued
from forestmix.forest.leaves import latent_step, pair_scores, rows
from forestmix.forest.parameters import ForestParameters, present, standard_units
from forestmix.latents import GaussianFactors
from forestmix.model import Observations

#: Nodes of the quadrature over a latent, placed by its posterior.
_NODES = 40
#: Spread of a natural parameter where inference starts, at most.
_STEEPEST = 3.0


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
    engine: Engine, p: ForestParameters, responsibilities: Array, *, parents: bool, max_iter: int, tol: float
) -> State:
    """Sweep over latents, and parents if wanted.

    Shared parents that are inferred too tie the observations together: the sweeps end when one gains less than ``tol``
    for each entry of x. Otherwise each observation ends as it would alone, see ``_one_by_one``.
    """
    mean = np.broadcast_to(p.prior_mean, (engine.data.x.shape[0], p.n_trees))
    sd = p.prior.sd
    if p.noise is None:
        # The rates of steep leaves overflow under the prior, or send the first step to an sd of 0.
        sd = np.minimum(sd, _STEEPEST / np.maximum(np.abs(p.weights).max(axis=0), 1e-300))
    state = State(p, GaussianFactors(mean, sd[None]), responsibilities)
    if isinstance(engine, ParentsPerObservation):
        state = replace(state, latents=_better_start(engine, state))
    elif parents:
        return _together(engine, state, max_iter, tol)
    elif p.noise is not None:
        state = engine.evaluate(replace(state, latents=engine.latents(state)), infer_parents=False)
        return replace(state, trace=[state.value], converged=True)
    return _one_by_one(engine, state, max_iter, tol)


def _better_start(engine: ParentsPerObservation, state: State) -> GaussianFactors:
    """Return the latents of the better of two starts for each observation, a sweep after them.

    One is the prior of the latents, the other the best latents under the given parents: next to leaves that are precise
    the prior is so wide that it would choose parents which no sweep leaves again.
    """
    p, wide = state.forest, state.latents
    narrow = latent_step(p, engine.data, wide, state.responsibilities)
    first, second = (engine.latents(replace(state, latents=q)) for q in (wide, narrow))
    return second.where(engine.bounds(p, second) > engine.bounds(p, first), first)


def _together(engine: Engine, state: State, max_iter: int, tol: float) -> State:
    """Sweep until the ELBO gains less than ``tol`` for each entry of x."""
    trace: list[float] = []
    while len(trace) < max_iter:
        state = engine.evaluate(replace(state, latents=engine.latents(state)))
        trace.append(state.value)
        if len(trace) > 1 and trace[-1] - trace[-2] <= tol * engine.data.x.size:
            return replace(state, trace=trace, converged=True)
    return replace(state, trace=trace)


def _one_by_one(engine: Engine, state: State, max_iter: int, tol: float) -> State:
    """Sweep until no latent of an observation moves by more than ``tol`` of its sd; the others go on without it.

    A rule on gains would not do: to a gain of 1e-9 nats the means are off by the square root of that, and where they
    stop would depend on the company.
    """
    q = state.latents.expanded(len(engine.data.x))
    active, rest = np.arange(len(q.mean)), engine
    trace: list[float] = []
    while len(trace) < max_iter and len(active):
        old = q.take(active)
        new = rest.latents(replace(state, latents=old))
        q = q.with_rows(active, new)
        state = engine.evaluate(replace(state, latents=q), infer_parents=False)
        trace.append(state.value)
        moves = np.maximum(np.abs(new.mean - old.mean) / new.sd, np.abs(new.sd / old.sd - 1)).max(axis=1)
        goes_on = np.flatnonzero(moves > tol)
        active, rest = active[goes_on], type(rest)(rest.data.take(goes_on))
    return replace(state, trace=trace, converged=not len(active))


def elbo_at(p: ForestParameters, data: Observations, q: GaussianFactors, responsibilities: Array) -> float:
    """Return the ELBO (paper, equation 1) at given factors, with parents shared by the observations."""
    # Not from the moments of Gaussian leaves, which cancel where the units of x are not standard.
    return valued(State(p, q, responsibilities), pair_scores(p, data, q, responsibilities > 0)).value


def gaussian_log_likelihood(p: ForestParameters, data: Observations, parents: Array) -> Array:
    """Return the exact ``log p(x)`` of each observation, (N,), for Gaussian leaves with known parents.

    Each tree is a matrix of rank one plus a diagonal, so its inverse and determinant are those of one number.
    """
    w, b, sd = p.edges(parents)
    there = present(data)
    residual = standard_units(data, b + w * p.prior_mean[parents], sd).x
    factor = np.eye(p.n_trees)[parents] * (w * p.prior.sd[parents] / sd)[:, None]
    ratio = 1 + there @ factor**2
    distance = total(residual**2) - total((residual @ factor) ** 2 / ratio)
    return -0.5 * (distance + total(np.log(ratio)) + there @ np.log(2 * np.pi * sd**2))


def quadrature_log_likelihood(p: ForestParameters, data: Observations, parents: Array, q: GaussianFactors) -> Array:
    """Return ``log p(x)`` of each observation for leaves of any family with known parents.

    Given the parents, the trees are independent and each is an integral over one latent: Gauss-Hermite quadrature
    centred on its posterior, ``y = mean + 1.5 sd z``, wider than q so that the tails are covered.
    """
    node, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    value = np.zeros(len(data.x))
    for tree in np.unique(parents):
        children = np.flatnonzero(parents == tree)
        mean, sd = q.mean[:, tree], 1.5 * np.broadcast_to(q.sd[:, tree], len(data.x))
        terms = np.stack([_log_joint(p, data, tree, children, mean + sd * z) for z in node], axis=1)
        terms = terms + np.log(weight) + 0.5 * node**2 + np.log(sd)[:, None]
        value = value + scipy.special.logsumexp(terms, axis=1)
    return value


def _log_joint(p: ForestParameters, data: Observations, tree: int, children: Array, y: Array) -> Array:
    """Return ``log p(x of the children, y)`` of each observation."""
    prior = Gaussian(p.prior.sd[tree]).expectations(y, p.prior_mean[tree], np.zeros_like(y))
    return total(rows(p, data, y, np.zeros(1), tree, children).log_likelihood) + prior.log_likelihood
