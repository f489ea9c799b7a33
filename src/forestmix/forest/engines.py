"""Variational EM for forest mixtures: one sweep over latents, weights, parents and the prior of the parents.

Each step raises the ELBO or leaves it, so a sweep is monotone; at a temperature above 1 the parents are softened and it
is not. The engines differ in how the parents are held; Gaussian leaves with shared parents have closed forms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.forest.leaves import (
    NewtonTerms,
    backtracked,
    base,
    latent_step,
    leaf_statistics,
    newton_step,
    pair_scores,
    rows,
)  # fmt: skip
from forestmix.forest.moments import gaussian_latents, gaussian_scores, moments, regression
from forestmix.forest.parameters import ForestParameters, present
from forestmix.forest.settings import Settings
from forestmix.latents import GaussianFactors
from forestmix.model import Observations


@dataclass(frozen=True)
class State:
    """Where a run stands: parameters, ``q(y)``, ``q(e)`` as (n, m), and the ELBO at all of them."""

    forest: ForestParameters
    latents: GaussianFactors
    responsibilities: Array
    value: float = -np.inf


class Engine(ABC):
    """EM on given observations."""

    def __init__(self, data: Observations) -> None:
        self.data = data
        self._constant: float | None = None

    def constant(self, forest: ForestParameters) -> float:
        """Return the part of the ELBO that depends on the data alone, worked out once."""
        if self._constant is None:
            self._constant = float(np.sum(base(forest, self.data)))
        return self._constant

    def take(self, keep: Array) -> Self:
        """Return the engine of the chosen observations."""
        return type(self)(self.data.take(keep))

    def sweep(self, state: State, settings: Settings, temperature: float = 1.0) -> State:
        """Update ``q(y)``, then all the rest."""
        forest, q = centred(state.forest, self.latents(state))
        return self.maximise(replace(state, forest=forest, latents=q), settings, temperature)

    @abstractmethod
    def latents(self, state: State) -> GaussianFactors:
        """Return a better ``q(y)``."""

    @abstractmethod
    def maximise(self, state: State, settings: Settings, temperature: float = 1.0) -> State:
        """Learn the leaves, then update the parents, at a temperature that divides their log-likelihood."""

    @abstractmethod
    def evaluate(self, state: State, infer_parents: bool = True) -> State:
        """Return the state with its ELBO, and with the best parents if they are inferred."""


class SharedParents(Engine):
    """One forest for all observations; ``q(e_ij) ∝ pi_ij exp(sum_s E log p_hat(x_si | y_sj))``."""

    def latents(self, state: State) -> GaussianFactors:
        """Take one safeguarded step, tree by tree."""
        return latent_step(state.forest, self.data, state.latents, state.responsibilities)

    def scores(self, forest: ForestParameters, q: GaussianFactors, wanted: Array | None = None) -> Array:
        """Return ``sum_s E log p_hat(x_si | y_sj)`` less ``base``, (n, m), of all pairs or of those that are wanted."""
        return pair_scores(forest, self.data, q, wanted)

    def learn_leaves(self, state: State, min_variance: float) -> tuple[ForestParameters, Array]:
        """Return better leaves and the scores of all pairs at them, by one safeguarded Newton step on every pair."""
        return newton_step(state.forest, self.data, state.latents)

    def maximise(self, state: State, settings: Settings, temperature: float = 1.0) -> State:
        """Update leaves, then parents, then their prior, which is the same for all variables."""
        forest, scores = self.learn_leaves(state, settings.min_variance)
        responsibilities = best_parents(forest, scores / temperature)
        if settings.learn_prior:
            forest = replace(forest, parent_prior=np.broadcast_to(responsibilities.mean(axis=0), scores.shape))
        return self._valued(State(forest, state.latents, responsibilities), scores)

    def evaluate(self, state: State, infer_parents: bool = True) -> State:
        """Return the state with its ELBO, and with the best parents if they are inferred."""
        scores = self.scores(state.forest, state.latents, None if infer_parents else state.responsibilities > 0)
        if infer_parents:
            state = replace(state, responsibilities=best_parents(state.forest, scores))
        return self._valued(state, scores)

    def _valued(self, state: State, scores: Array) -> State:
        """Return the state with its ELBO (paper, equation 1)."""
        p, r = state.forest, state.responsibilities
        fit = float(np.sum(np.where(r > 0, r * scores, 0.0)))
        loss = float(np.sum(p.divergence(state.latents))) + p.divergence_of_parents(r)
        return replace(state, value=self.constant(p) + fit - loss)


class GaussianShared(SharedParents):
    """Gaussian leaves: every step exact, by matrix products of x with (N, m) and (n, m) arrays."""

    def latents(self, state: State) -> GaussianFactors:
        """Return the best ``q(y)``."""
        return gaussian_latents(state.forest, self.data, state.responsibilities)

    def scores(self, forest: ForestParameters, q: GaussianFactors, wanted: Array | None = None) -> Array:
        """Return the scores of all pairs, from the moments."""
        return gaussian_scores(forest, moments(self.data, q))

    def learn_leaves(self, state: State, min_variance: float) -> tuple[ForestParameters, Array]:
        """Regress every variable on every latent."""
        sums = moments(self.data, state.latents)
        forest = regression(state.forest, sums, min_variance)
        return forest, gaussian_scores(forest, sums)


class ParentsPerObservation(Engine):
    """A forest for each observation (paper, section 3.1): ``q(e_sij) ∝ pi_ij exp E log p_hat(x_si | y_sj)``.

    ``q(e)`` is (N, n, m) and never stored: it is made from ``q(y)`` a chunk of observations at a time. With it at its
    best, the ELBO is ``sum_si log sum_j pi_ij exp E log p_hat(x_si | y_sj) - KL(q(y) || p(y))``. ``responsibilities``
    of a state are the mean of ``q(e)`` over the observations.
    """

    chunk_entries = 4_000_000

    def latents(self, state: State) -> GaussianFactors:
        """Take one step on ``q(y)``, with ``q(e)`` at its best before it."""
        chunks = self.chunks(state.forest, state.latents)
        return GaussianFactors.joined([latent_step(state.forest, some, part, r) for some, part, r, _ in chunks])

    def maximise(self, state: State, settings: Settings, temperature: float = 1.0) -> State:
        """Update leaves, and the prior of the parents where it is learned."""
        state = replace(state, forest=self.learn_leaves(state.forest, state.latents, settings.min_variance))
        if settings.learn_prior:
            shares = self.evaluate(state).responsibilities
            state = replace(state, forest=replace(state.forest, parent_prior=shares))
        return self.evaluate(state)

    def learn_leaves(self, forest: ForestParameters, q: GaussianFactors, min_variance: float) -> ForestParameters:
        """Regress with responsibilities as weights, or take a Newton step that lowers no variable's part."""
        parts = [leaf_statistics(forest, some, part, r) for some, part, r, _ in self.chunks(forest, q)]
        sums = type(parts[0])(*(sum(column) for column in zip(*parts, strict=True)))
        if not isinstance(sums, NewtonTerms):
            return regression(forest, sums, min_variance)
        best = self.values(forest, q)
        return backtracked(forest, sums.step(), best, lambda trial, wanted: self.values(trial, q))[0]

    def values(self, forest: ForestParameters, q: GaussianFactors) -> Array:
        """Return each variable's part of the ELBO, (n, 1)."""
        return np.sum([value.sum(axis=0) for *_, value in self.chunks(forest, q)], axis=0)[:, None]

    def evaluate(self, state: State, infer_parents: bool = True) -> State:
        """Return the state with its ELBO and ``q(e)`` at its best, averaged over the entries that are there."""
        p = state.forest
        counts, seen, value = np.zeros(p.weights.shape), np.zeros((p.n_variables, 1)), self.constant(p)
        for some, _, r, part in self.chunks(p, state.latents):
            there = np.broadcast_to(present(some), some.x.shape)
            counts, seen = counts + np.einsum("sij,si->ij", r, there), seen + there.sum(axis=0)[:, None]
            value += float(part.sum())
        shares = np.where(seen > 0, counts / np.maximum(seen, 1), p.parent_prior)
        return replace(state, responsibilities=shares, value=value - float(np.sum(p.divergence(state.latents))))

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


def parents_of_observations(forest: ForestParameters, data: Observations, q: GaussianFactors) -> tuple[Array, Array]:
    """Return ``q(e)`` at its best, (N, n, m), and each entry's part of the ELBO less ``base``, (N, n)."""
    every = np.arange(forest.n_variables)
    scores = np.stack([rows(forest, data, q, j, every).log_likelihood for j in range(forest.n_trees)], axis=-1)
    logits = scores + forest.log_prior
    value = scipy.special.logsumexp(logits, axis=-1)
    return np.exp(logits - value[..., None]), value


def best_parents(forest: ForestParameters, scores: Array) -> Array:
    """Return ``q(e_ij) ∝ pi_ij exp(score_ij)``, (n, m)."""
    return np.asarray(scipy.special.softmax(scores + forest.log_prior, axis=1))


def centred(forest: ForestParameters, q: GaussianFactors) -> tuple[ForestParameters, GaussianFactors]:
    """Give ``q(y)`` mean 0 and variance 1 over the observations, and move both into weights and biases.

    That is EM with the mean and variance of the prior as further parameters, then the model rewritten with N(0, 1). It
    raises the ELBO by what ``KL(q(y) || p(y))`` loses, and saves most of the iterations that plain EM takes.
    """
    shift = q.mean.mean(axis=0)
    scale = np.sqrt(np.mean((q.mean - shift) ** 2, axis=0) + np.mean(q.sd**2, axis=0))
    bias, weights = forest.bias + forest.weights * shift, forest.weights * scale
    return replace(forest, bias=bias, weights=weights), GaussianFactors((q.mean - shift) / scale, q.sd / scale)


def engine_for(forest: ForestParameters, data: Observations, shared: bool) -> Engine:
    """Return the engine for a model."""
    if not shared:
        return ParentsPerObservation(data)
    return SharedParents(data) if forest.noise is None else GaussianShared(data)
