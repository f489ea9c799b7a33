"""Variational EM for forest mixtures: one sweep over latents, weights, parents and the prior of the parents.

Each step raises the ELBO or leaves it, so a sweep is monotone; at a temperature above 1 the parents are softened and it
is not. The engines differ in how the parents are held; Gaussian leaves with shared parents have closed forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.forest.leaves import (
    LeafSums,
    backtracked,
    latent_step,
    leaf_sums,
    pair_scores,
    rows,
    weighted,
)
from forestmix.forest.parameters import ForestParameters, counts, present
from forestmix.forest.settings import Settings
from forestmix.latents import GaussianFactors
from forestmix.model import Observations


@dataclass(frozen=True)
class State:
    """Where a run stands: parameters, ``q(y)``, ``q(e)`` as (n, m), and the ELBO at all of them.

    ``trace`` is the ELBO after each sweep so far, ``converged`` whether the last gain was below the tolerance.
    """

    forest: ForestParameters
    latents: GaussianFactors
    responsibilities: Array
    value: float = -np.inf
    trace: Sequence[float] = ()
    converged: bool = False

    def less(self, jacobian: float) -> State:
        """Return the state with its ELBO for data in other units, see ``log_jacobian``."""
        return replace(self, value=self.value - jacobian, trace=[value - jacobian for value in self.trace])


@dataclass(frozen=True)
class Engine:
    """EM on given observations, with one forest for all of them.

    ``q(e_ij) ∝ pi_ij exp(sum_s E log p_hat(x_si | y_sj))``. For Gaussian leaves every step is exact, by matrix products
    of x with (N, m) and (n, m) arrays.
    """

    data: Observations

    def sweep(self, state: State, settings: Settings, temperature: float = 1.0) -> State:
        """Update ``q(y)``, then all the rest."""
        forest, q = centred(state.forest, self.latents(state))
        return self.maximise(replace(state, forest=forest, latents=q), settings, temperature)

    def latents(self, state: State) -> GaussianFactors:
        """Return the best ``q(y)`` for Gaussian leaves, else take one safeguarded step, tree by tree."""
        return latent_step(state.forest, self.data, state.latents, state.responsibilities)

    def sums(self, forest: ForestParameters, q: GaussianFactors) -> LeafSums:
        """Return the sums over observations that leaves are learned from."""
        return leaf_sums(forest, self.data, q)

    def maximise(self, state: State, settings: Settings, temperature: float = 1.0) -> State:
        """Learn the leaves, then the parents, at a temperature that divides their scores, then their common prior."""
        forest, q = state.forest, state.latents
        sums = self.sums(forest, q)
        if forest.noise is None:
            forest, scores = backtracked(
                forest, sums.newton_step(), sums.value, lambda trial, wanted: pair_scores(trial, self.data, q, wanted)
            )
        else:
            forest = sums.gaussian(forest, settings.min_variance)
            scores = sums.gaussian_scores(forest)
        responsibilities = best_parents(forest, scores / temperature)
        forest = settings.with_prior(forest, responsibilities.mean(axis=0))
        return valued(State(forest, q, responsibilities), scores)

    def evaluate(self, state: State, infer_parents: bool = True) -> State:
        """Return the state with its ELBO, and with the best parents if they are inferred."""
        p, q = state.forest, state.latents
        if p.noise is not None:
            scores = self.sums(p, q).gaussian_scores(p)
        else:
            scores = pair_scores(p, self.data, q, None if infer_parents else state.responsibilities > 0)
        return valued(replace(state, responsibilities=best_parents(p, scores)) if infer_parents else state, scores)


class ParentsPerObservation(Engine):
    """EM with a forest for each observation (paper, section 3.1): ``q(e_sij) ∝ pi_ij exp E log p_hat(x_si | y_sj)``.

    ``q(e)`` is (N, n, m) and never stored: it is made from ``q(y)`` a chunk of observations at a time. With it at its
    best, the ELBO is ``sum_si log sum_j pi_ij exp E log p_hat(x_si | y_sj) - KL(q(y) || p(y))``. ``responsibilities``
    of a state are the mean of ``q(e)`` over the observations.
    """

    chunk_entries = 4_000_000

    def latents(self, state: State) -> GaussianFactors:
        """Take one step on ``q(y)``, with ``q(e)`` at its best before it."""
        chunks = self.chunks(state.forest, state.latents)
        return GaussianFactors.joined([latent_step(state.forest, some, part, r) for some, part, r, _ in chunks])

    def sums(self, forest: ForestParameters, q: GaussianFactors) -> LeafSums:
        """Return the sums of all pairs, with ``q(e)`` as weights."""
        parts = [leaf_sums(forest, some, part, r) for some, part, r, _ in self.chunks(forest, q)]
        return LeafSums(*(sum(column) for column in zip(*parts, strict=True)))

    def maximise(self, state: State, settings: Settings, temperature: float = 1.0) -> State:
        """Update leaves, and the prior of the parents where it is learned.

        Leaves are regressed with responsibilities as weights, or take a Newton step that lowers no variable's part.
        """
        forest, q = state.forest, state.latents
        sums = self.sums(forest, q)
        if forest.noise is None:
            best = self.values(forest, q)
            forest, _ = backtracked(forest, sums.newton_step(), best, lambda trial, wanted: self.values(trial, q))
        else:
            forest = sums.gaussian(forest, settings.min_variance)
        state = self.evaluate(replace(state, forest=forest))
        if not settings.learn_prior:
            return state
        return self.evaluate(replace(state, forest=settings.with_prior(forest, state.responsibilities)))

    def bounds(self, forest: ForestParameters, q: GaussianFactors) -> Array:
        """Return the ELBO of each observation, (N,)."""
        parts = [value.sum(axis=1) for *_, value in self.chunks(forest, q)]
        return np.concatenate(parts) - forest.divergence(q)

    def values(self, forest: ForestParameters, q: GaussianFactors) -> Array:
        """Return each variable's part of the ELBO, (n, 1)."""
        return np.sum([value.sum(axis=0) for *_, value in self.chunks(forest, q)], axis=0)[:, None]

    def evaluate(self, state: State, infer_parents: bool = True) -> State:
        """Return the state with its ELBO and ``q(e)`` at its best, averaged over the entries that are there."""
        p, seen = state.forest, counts(self.data)[:, None]
        number, value = np.zeros(p.weights.shape), -float(np.sum(p.divergence(state.latents)))
        for some, _, r, part in self.chunks(p, state.latents):
            number += np.einsum("sij,si->ij", r, np.broadcast_to(present(some), some.x.shape))
            value += float(part.sum())
        return replace(
            state, responsibilities=np.where(seen > 0, number / np.maximum(seen, 1), p.parent_prior), value=value
        )

    def chunks(
        self, forest: ForestParameters, q: GaussianFactors
    ) -> Iterator[tuple[Observations, GaussianFactors, Array, Array]]:
        """Yield observations, their ``q(y)``, ``q(e)`` at its best, and each entry's part of the ELBO."""
        N, n = self.data.x.shape
        size = max(1, self.chunk_entries // (n * forest.n_trees))
        for start in range(0, N, size):
            keep = np.arange(start, min(start + size, N))
            some, part = self.data.take(keep), q.take(keep)
            yield some, part, *parents_of_observations(forest, some, part)


def engine_for(data: Observations, shared: bool) -> Engine:
    """Return the engine for parents that all observations share, or that each has for itself."""
    return Engine(data) if shared else ParentsPerObservation(data)


def parents_of_observations(forest: ForestParameters, data: Observations, q: GaussianFactors) -> tuple[Array, Array]:
    """Return ``q(e)`` at its best, (N, n, m), and each entry's part of the ELBO, (N, n)."""
    every = np.arange(forest.n_variables)
    trees = (rows(forest, data, q.mean[:, j], q.sd[:, j], j, every) for j in range(forest.n_trees))
    logits = np.stack([terms.log_likelihood for terms in trees], axis=-1) + forest.log_prior
    value = scipy.special.logsumexp(logits, axis=-1)
    return np.exp(logits - value[..., None]), value


def best_parents(forest: ForestParameters, scores: Array) -> Array:
    """Return ``q(e_ij) ∝ pi_ij exp(score_ij)``, (n, m)."""
    return np.asarray(scipy.special.softmax(scores + forest.log_prior, axis=1))


def valued(state: State, scores: Array) -> State:
    """Return a state of shared parents with its ELBO (paper, equation 1), from the scores of all pairs."""
    p, r = state.forest, state.responsibilities
    fit = np.sum(weighted(r, scores))
    loss = np.sum(p.divergence(state.latents)) + np.sum(scipy.special.rel_entr(r, p.parent_prior))
    return replace(state, value=float(fit - loss))


def centred(forest: ForestParameters, q: GaussianFactors) -> tuple[ForestParameters, GaussianFactors]:
    """Give ``q(y)`` mean 0 and variance 1 over the observations, and move both into weights and biases.

    That is EM with the mean and variance of the prior as further parameters, then the model rewritten with N(0, 1). It
    raises the ELBO by what ``KL(q(y) || p(y))`` loses, and saves most of the iterations that plain EM takes.
    """
    shift = q.mean.mean(axis=0)
    scale = np.sqrt(np.mean((q.mean - shift) ** 2, axis=0) + np.mean(q.sd**2, axis=0))
    bias, weights = forest.bias + forest.weights * shift, forest.weights * scale
    return replace(forest, bias=bias, weights=weights), GaussianFactors((q.mean - shift) / scale, q.sd / scale)
