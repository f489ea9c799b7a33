"""The paper's worker setting: each worker updates latents of its own, and hears of the others by vectors of rows alone.

Section 2 of the paper: where a worker holds a part of the latents, the forest mixture bound lets it update all of them
at once. Here it holds a chunk of the columns of W, group G. Jensen's inequality across the groups, with
``epsilon_iG = s_iG / s_i`` the part of G in the spread of a row, gives each a quadratic of its own in the change d_G::

    sum_i kappa_i (sum_G w_iG . d_G)^2  <=  sum_G sum_i (kappa_i / epsilon_iG) (w_iG . d_G)^2
    maximise   gradient_G . d - d^T (diag(1 / sigma0^2) + W_G^T diag(kappa / epsilon_G) W_G) d / 2

Its first step, with D as metric, is that of Theorem 2; a few more, by conjugate gradients, cost no message. So all
workers move at once and, where rows are Gaussian, cannot lower the objective; for others the loop shortens the step.

A turn is: hear the sums over all groups, climb, tell the own ``W_G mu``, ``|W_G| sigma``, ``(W_G∘W_G) sigma^2``.
Synchronous workers wait for the turn of the others. Stale ones go on with what they heard last: no inequality covers
that, so the objective is checked after some turns, and the first fall makes the run synchronous for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from operator import add, attrgetter
from typing import Any, NamedTuple

import numpy as np

from forestmix.arrays import Array
from forestmix.engines.chunked import ChunkRows
from forestmix.engines.products import Products, Three
from forestmix.engines.protocol import PriorMoments
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.inference.base import Proposal, Steps
from forestmix.inference.plain import plain_retreats
from forestmix.model import Layer
from forestmix.problem.conjugate import conjugate_gradients, quotient
from forestmix.problem.points import LayeredFactors
from forestmix.weights.base import Weights

MODES = ("synchronous", "stale")
#: Turns of every worker in one iteration, after which the objective is checked.
TURNS = 4
NO_WAITING = f"Workers did not wait for each other; the objective was checked every {TURNS} turns"
#: Conjugate gradient steps of a worker in a turn at most, and the part of the squared gradient at which they end.
LOCAL_STEPS, FORCING = 8, 0.01


class WorkerSteps(Steps):
    """Turns of all workers, which have the columns of W; ``stale``, in that mode, until the objective falls."""

    def __init__(self, problem: Any, mode: str) -> None:
        layers = problem.model.layers
        chunks = layers[0].weights.chunks
        if len(layers) > 1 or not problem.gaussian:
            raise ArgumentError("workers must be None for deep models and for latents that are not Gaussian.")
        if chunks is None or len(chunks.slices) > 1 or len(chunks.columns) == 1:
            raise ArgumentError(
                "W must be in chunks of columns, each with all rows, for workers: [[W1, W2]], or a Dask array after "
                f"W.rechunk({{0: -1, 1: 100}}); got {layers[0].weights!r}."
            )
        self.stale = mode == "stale"
        self.note = f"{NO_WAITING} and never fell." if self.stale else ""

    def propose(self, problem: Any, point: Any) -> Proposal:
        """Return the factors after some turns."""
        q = take_turns(problem, point, stale=self.stale)
        return Proposal(q, TURNS, TURNS * problem.size, retreats=_retreats(problem, point, stale=self.stale))

    def forget(self, which: Array) -> None:
        """Wait for each other from now on."""
        if self.stale:
            self.stale = False
            self.note = f"{NO_WAITING} and fell, so the run was made synchronous."


def _retreats(problem: Any, point: Any, *, stale: bool) -> Iterator[Any]:
    """Yield the same turns of workers that wait, if these did not, and then plain steps."""
    if stale:
        yield take_turns(problem, point, stale=False)
    yield from plain_retreats(problem, point)


class Group(NamedTuple):
    """The latents of one worker, their prior, and what the others hear of them."""

    mean: Array
    sd: Array
    prior: PriorMoments
    told: Three = Three(None, None, None)


def take_turns(problem: Any, point: Any, *, stale: bool) -> LayeredFactors:
    """Return the factors after TURNS turns of every worker."""
    its_rows, q = problem.rows, point.q
    chunks, prior = its_rows.weights.chunks, its_rows.prior
    groups = [
        Group(q.mean[:, own], q.sd[:, own], PriorMoments(prior.mean[own], prior.precision[own]))
        for own in chunks.columns
    ]
    turn = partial(_turn, its_rows.engine.inner, problem.objective_name == "fm")
    states = chunks.map(_tell, chunks.place(groups))
    go = chunks.without_waiting if stale else chunks.in_turns
    found = chunks.fetch(go(turn, states, attrgetter("told"), its_rows.held.handles[0], TURNS))
    return q.moved(*(np.concatenate(part, axis=1) for part in zip(*(one[:2] for one in found), strict=True)))


def _tell(weights: Weights, own: Group) -> Group:
    """Return the group with what the others are told of it."""
    return own._replace(told=Products(weights).project(Three(own.mean, own.sd, own.sd**2)))


def _turn(inner: Any, paper: bool, weights: Weights, own: Group, rows: ChunkRows, *heard: Three) -> Group:
    """Return the group after one turn, with the sums over all groups as far as they were heard.

    ``inner``: the engine of the rows; ``paper``: whether the paper's bound is climbed, and not the ELBO.
    """
    m, s, v = reduce(add, heard)
    terms = inner.row_terms(rows.rows, m, s if paper else np.sqrt(v))[2]
    weighted = s * terms.kappa
    back = Products(weights).collect(Three(terms.error, weighted, None if paper else terms.kappa))
    gradient, D = back.plain - (own.mean - own.prior.mean) * own.prior.precision, back.absolute / own.sd
    step = _climb(inner, weights, own, gradient, D, weighted)
    sd = (own.prior.precision + (D if paper else back.squared)) ** -0.5
    return _tell(weights, own._replace(mean=own.mean + step, sd=sd.astype(weights.dtype)))


def _climb(inner: Any, weights: Weights, own: Group, gradient: Array, D: Array, weighted: Array) -> Array:
    """Return the step of the means that climbs the group's own quadratic; ``weighted`` is ``s_i kappa_i``."""
    mine, precision = own.told.absolute, own.prior.precision
    scaled = quotient(weighted, mine)
    layer, metric = Layer(Gaussian(1.0), weights), precision + D
    first = np.sum(gradient**2 / metric, axis=1, keepdims=True)

    def product(p: Array) -> tuple[Array, Array]:
        image, squares = inner.normal_product(layer, scaled.astype(weights.dtype), p)
        return image + precision * p, (squares + np.sum(precision * p * p, axis=1))[:, np.newaxis]

    def enough(residual: Array, squared: Array) -> Any:
        return squared <= FORCING * first

    found = conjugate_gradients(gradient, product, lambda residual: residual / metric, enough, LOCAL_STEPS)
    return found.x.astype(weights.dtype)
