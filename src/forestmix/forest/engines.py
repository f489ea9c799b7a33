"""Variational EM for forest mixtures: one sweep over latents, weights, parents and the prior of the parents.

Each step raises the ELBO or leaves it, so a sweep is monotone; at a temperature above 1 the parents are softened and it
is not. The three engines differ in how the parents are held and in how leaves are computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.families import Gaussian
from forestmix.forest.leaves import base, latent_step, moved, newton_step, newton_terms, pair_scores, rows
from forestmix.forest.moments import (
    Moments,
    gaussian_latents,
    gaussian_scores,
    moments,
    regression,
    weighted_moments,
)
from forestmix.forest.parameters import ForestParameters
from forestmix.latents import GaussianFactors
from forestmix.model import Observations


@dataclass(frozen=True)
class State:
    """Where a run stands: parameters, ``q(y)``, ``q(e)`` as (n, m), and the ELBO at all of them."""

    forest: ForestParameters
    latents: GaussianFactors
    responsibilities: Array
    value: float


@dataclass(frozen=True)
class Options:
    """What a sweep updates.

    ``learn``: weights, biases and noise, and with ``learn_prior`` the prior of the parents too; ``parents``: ``q(e)``;
    ``min_variance``: lowest noise variance of Gaussian leaves; ``temperature``: divides the parents' log-likelihood.
    """

    learn: bool = True
    learn_prior: bool = False
    parents: bool = True
    min_variance: float = 1e-3
    temperature: float = 1.0


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

    def sweep(self, state: State, options: Options) -> State:
        """Update ``q(y)``, then all the rest."""
        forest, q = state.forest, self.latents(state.forest, state.latents, state.responsibilities)
        if options.learn:
            forest, q = centred(forest, q)
        return self.finish(forest, q, state.responsibilities, options)

    @abstractmethod
    def latents(self, forest: ForestParameters, q: GaussianFactors, responsibilities: Array) -> GaussianFactors:
        """Return a better ``q(y)``."""

    @abstractmethod
    def finish(self, forest: ForestParameters, q: GaussianFactors, responsibilities: Array, options: Options) -> State:
        """Update everything but ``q(y)``, and evaluate the ELBO."""

    @abstractmethod
    def fit_of_observations(self, forest: ForestParameters, q: GaussianFactors, responsibilities: Array) -> Array:
        """Return each observation's part of the ELBO less ``base`` and the divergences, (N,)."""


class SharedParents(Engine):
    """One forest for all observations; ``q(e_ij) ∝ pi_ij exp(sum_s E log p_hat(x_si | y_sj))``."""

    def finish(self, forest: ForestParameters, q: GaussianFactors, responsibilities: Array, options: Options) -> State:
        """Update parameters, then parents, then their prior, which is the same for all variables."""
        forest, scores = self.fit_leaves(forest, q, options)
        return shared_state(forest, q, scores, responsibilities, options, self.constant(forest))

    def fit_of_observations(self, forest: ForestParameters, q: GaussianFactors, responsibilities: Array) -> Array:
        """Return ``sum_ij r_ij E log p_hat(x_si | y_sj)``."""
        every = np.arange(forest.n_variables)
        trees = [rows(forest, self.data, q, j, every).log_likelihood @ r for j, r in enumerate(responsibilities.T)]
        return np.sum(trees, axis=0)

    @abstractmethod
    def fit_leaves(
        self, forest: ForestParameters, q: GaussianFactors, options: Options
    ) -> tuple[ForestParameters, Array]:
        """Return better parameters, where they are learned, and the scores of all pairs at them."""


class GaussianShared(SharedParents):
    """Gaussian leaves: every step exact, by matrix products of x with (N, m) and (n, m) arrays."""

    def latents(self, forest: ForestParameters, q: GaussianFactors, responsibilities: Array) -> GaussianFactors:
        """Return the best ``q(y)``."""
        return gaussian_latents(forest, self.data, responsibilities)

    def fit_leaves(
        self, forest: ForestParameters, q: GaussianFactors, options: Options
    ) -> tuple[ForestParameters, Array]:
        """Regress every variable on every latent."""
        sums = moments(self.data, q)
        if options.learn:
            forest = regression(forest, sums, options.min_variance)
        return forest, gaussian_scores(forest, sums)


class GeneralShared(SharedParents):
    """Leaves of any family: safeguarded steps, tree by tree."""

    def latents(self, forest: ForestParameters, q: GaussianFactors, responsibilities: Array) -> GaussianFactors:
        """Take one safeguarded step."""
        return latent_step(forest, self.data, q, responsibilities)

    def fit_leaves(
        self, forest: ForestParameters, q: GaussianFactors, options: Options
    ) -> tuple[ForestParameters, Array]:
        """Take one safeguarded Newton step on every pair."""
        return newton_step(forest, self.data, q) if options.learn else (forest, pair_scores(forest, self.data, q))


class ParentsPerObservation(Engine):
    """A forest for each observation (paper, section 3.1): ``q(e_sij) ∝ pi_ij exp E log p_hat(x_si | y_sj)``.

    ``q(e)`` is (N, n, m) and never stored: it is made from ``q(y)`` a chunk of observations at a time. With it at its
    best, the ELBO is ``sum_si log sum_j pi_ij exp E log p_hat(x_si | y_sj) - KL(q(y) || p(y))``.
    """

    chunk_entries = 4_000_000

    def latents(self, forest: ForestParameters, q: GaussianFactors, responsibilities: Array) -> GaussianFactors:
        """Take one step on ``q(y)``, with ``q(e)`` at its best before it."""
        parts = [latent_step(forest, some, part, r) for some, part, r, _ in self.chunks(forest, q)]
        return GaussianFactors.joined(parts)

    def fit_of_observations(self, forest: ForestParameters, q: GaussianFactors, responsibilities: Array) -> Array:
        """Return ``sum_i log sum_j pi_ij exp E log p_hat(x_si | y_sj)``."""
        return np.concatenate([part.sum(axis=1) for *_, part in self.chunks(forest, q)])

    def finish(self, forest: ForestParameters, q: GaussianFactors, responsibilities: Array, options: Options) -> State:
        """Update parameters and prior; ``responsibilities`` of the state is the mean of ``q(e)`` over observations."""
        if options.learn:
            forest = self.fit_leaves(forest, q, options)
        if options.learn and options.learn_prior:
            forest = replace(forest, parent_prior=self.shares(forest, q)[0])
        shares, value = self.shares(forest, q)
        loss = float(np.sum(forest.divergence(q)))
        return State(forest, q, shares, value - loss + self.constant(forest))

    def fit_leaves(self, forest: ForestParameters, q: GaussianFactors, options: Options) -> ForestParameters:
        """Regress with responsibilities as weights, or take a Newton step that lowers no variable's part."""
        if isinstance(forest.family, Gaussian):
            sums = add(weighted_moments(some, part, r) for some, part, r, _ in self.chunks(forest, q))
            return regression(forest, Moments(*sums), options.min_variance)
        terms = [newton_terms(forest, some, part, r) for some, part, r, _ in self.chunks(forest, q)]
        step = type(terms[0])(*add(iter(terms))).step()
        best, share = self.values(forest, q), np.ones((forest.n_variables, 1))
        for _ in range(8):
            worse = ~(self.values(moved(forest, step, share), q) >= best)[:, None]
            if not worse.any():
                return moved(forest, step, share)
            share = np.where(worse, 0.25 * share, share)
        return moved(forest, step, np.where(worse, 0.0, share))

    def values(self, forest: ForestParameters, q: GaussianFactors) -> Array:
        """Return each variable's part of the ELBO, (n,)."""
        return np.asarray(sum(value.sum(axis=0) for *_, value in self.chunks(forest, q)))

    def shares(self, forest: ForestParameters, q: GaussianFactors) -> tuple[Array, float]:
        """Return the mean of ``q(e)`` over the observations that are there, and the ELBO without ``KL(q(y))``."""
        counts, seen, value = np.zeros(forest.weights.shape), np.zeros((forest.n_variables, 1)), 0.0
        for some, _, r, part in self.chunks(forest, q):
            there = np.ones(some.x.shape) if some.observed is None else some.observed.astype(float)
            counts, seen = counts + np.einsum("sij,si->ij", r, there), seen + there.sum(axis=0)[:, None]
            value += float(part.sum())
        return np.where(seen > 0, counts / np.maximum(seen, 1), forest.parent_prior), value

    def chunks(
        self, forest: ForestParameters, q: GaussianFactors
    ) -> Iterator[tuple[Observations, GaussianFactors, Array, Array]]:
        """Yield observations, their ``q(y)``, ``q(e)`` at its best, and each entry's part of the ELBO."""
        N, n = self.data.x.shape
        size = max(1, self.chunk_entries // (n * forest.n_trees))
        for start in range(0, N, size):
            keep = np.arange(start, min(start + size, N))
            some = self.data.take(keep)
            part = q.take(keep)
            yield some, part, *parents_of_observations(forest, some, part)


def parents_of_observations(forest: ForestParameters, data: Observations, q: GaussianFactors) -> tuple[Array, Array]:
    """Return ``q(e)`` at its best, (N, n, m), and each entry's part of the ELBO less ``base``, (N, n)."""
    every = np.arange(forest.n_variables)
    logits = np.stack([rows(forest, data, q, j, every).log_likelihood for j in range(forest.n_trees)], axis=-1)
    logits = logits + log(forest.parent_prior)
    value = scipy.special.logsumexp(logits, axis=-1)
    return np.exp(logits - value[..., None]), value


def shared_state(
    forest: ForestParameters,
    q: GaussianFactors,
    scores: Array,
    responsibilities: Array,
    options: Options,
    constant: float,
) -> State:
    """Return the state with the best parents for the scores, and their prior where it is learned."""
    if options.parents:
        logits = scores / options.temperature + log(forest.parent_prior)
        responsibilities = scipy.special.softmax(logits, axis=1)
    if options.learn and options.learn_prior:
        share = responsibilities.mean(axis=0)
        forest = replace(forest, parent_prior=np.broadcast_to(share, scores.shape))
    fit = float(np.sum(np.where(responsibilities > 0, responsibilities * scores, 0.0)))
    loss = float(np.sum(forest.divergence(q)))
    value = constant + fit - loss - forest.divergence_of_parents(responsibilities)
    return State(forest, q, responsibilities, value)


def centred(forest: ForestParameters, q: GaussianFactors) -> tuple[ForestParameters, GaussianFactors]:
    """Give ``q(y)`` mean 0 and variance 1 over the observations, and move both into weights and biases.

    That is EM with the mean and variance of the prior as further parameters, then the model rewritten with N(0, 1). It
    raises the ELBO by the fall of ``KL(q(y) || p(y))``, and saves most of the iterations that plain EM takes.
    """
    shift = q.mean.mean(axis=0)
    variance = np.mean((q.mean - shift) ** 2, axis=0) + np.mean(q.sd**2, axis=0)
    scale = np.sqrt(variance)
    bias, weights = forest.bias + forest.weights * shift, forest.weights * scale
    return replace(forest, bias=bias, weights=weights), GaussianFactors((q.mean - shift) / scale, q.sd / scale)


def engine_for(forest: ForestParameters, data: Observations, shared: bool) -> Engine:
    """Return the engine for a model."""
    if not shared:
        return ParentsPerObservation(data)
    return GaussianShared(data) if forest.noise is not None else GeneralShared(data)


def add(parts: Iterator[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Return the sum of tuples of arrays, entry by entry."""
    sums = next(parts)
    for part in parts:
        sums = tuple(a + b for a, b in zip(sums, part, strict=True))
    return sums


def log(probability: Array) -> Array:
    """Return the logarithm, minus infinity at 0."""
    with np.errstate(divide="ignore"):
        return np.log(probability)
