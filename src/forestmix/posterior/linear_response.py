"""Better variances: linear response corrects those of mean field, which are too small (docs/regression.md).

A tilt of the prior's natural parameter by ``t c`` moves the optimum's mean, at fixed variances of q, by ``t C c``::

    C = A^-1,  A = diag(1 / sigma0^2) + W^T diag(kappa) W,  kappa_i = E a''(m_i + sqrt(v_i) z)

so ``c^T C c`` estimates the variance of ``c^T y``; for Gaussian rows it is exact. The spread is the ELBO's, also for a
result that climbed the forest mixture bound: its wider one would smear ``a''`` over values that eta does not take.

With few latents (``DENSE_LIMIT``, ``MANY_DENSE_LIMIT``) A is factored. Else conjugate gradients raise
``J(x) = 2 c^T x - x^T A x`` to its maximum ``c^T C c``. For every x, also a rounded one, with ``r = c - A x``::

    c^T C c - J(x) = r^T C r,  between 0 and  r^T diag(sigma0^2) r,  since  C <= diag(sigma0^2), the prior's covariance

so each variance comes from below, and with a bound on its error that is computed and held to.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from forestmix import memory
from forestmix.arrays import Array, finite, numbers
from forestmix.checks import between_zero_and_one
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.latents import GaussianFactors
from forestmix.model import DEF, Layer, Observations, Prior
from forestmix.problem.flat import Flat
from forestmix.problem.given import as_factors, prior_sd
from forestmix.statistics import Site
from forestmix.weights import SparseWeights, Weights, as_weights
from forestmix.weights.blocks import blocks_of
from forestmix.weights.gram import orthogonal_factor, precision_matrix

#: Up to this many latents A is factored: it fills half of the budget, and takes some seconds.
DENSE_LIMIT = 2000
#: Up to this many it is factored, in some 300 to 650 MB, if the functionals are at least this share of them: in a trial
#: with 4900 latents and all of them asked for, conjugate gradients took more than ten times as long.
MANY_DENSE_LIMIT, MANY = 6000, 0.1
#: A residual recomputed from x that is not this much better than the last one is at the limit of rounding.
LEAST_GAIN = 0.25


def linear_response_sd(
    model: DEF,
    data: Observations,
    q_mean: npt.ArrayLike,
    q_sd: npt.ArrayLike,
    functionals: Any = None,
    tol: float = 1e-6,
    progress: bool = False,
) -> float | Array:
    """Return the standard deviations ``sqrt(c^T C c)`` by linear response at q, see ``Result.corrected_sd``.

    Args:
        model: the model.
        data: the observations that q is the posterior of.
        q_mean: means of q, (m,) or (N, m); q should be at an optimum.
        q_sd: standard deviations of q, likewise.
        functionals: the vectors c: (K, m) dense or sparse, or (m,) for one; all latents when left out.
        tol: relative error of the variances at most; they are approached from below.
        progress: show a progress bar.

    Returns:
        (K,) or (N, K); without the last axis for one functional, and then a float for one observation.

    """
    vectors, one = _functionals(functionals, model.n_latent)
    between_zero_and_one("tol", tol)
    kappa = _row_curvatures(model, data, q_mean, q_sd)
    distinct, which = _distinct(kappa)
    variances = _variances(model, distinct, vectors, tol, progress)
    sd = np.sqrt(variances).astype(model.dtype)[np.broadcast_to(which, data.x.shape[0])]
    sd = sd[:, 0] if one else sd
    if data.single:
        return float(sd[0]) if one else sd[0]
    return sd


def deep_linear_response_sd(
    model: DEF, data: Observations, q: tuple[Any, ...], functionals: Any, tol: float, progress: bool, layer: int
) -> float | Array:
    """Return the standard deviations of one layer of a deep model with Gaussian latents, by linear response of all."""
    if not all(isinstance(factors, GaussianFactors) for factors in q):
        raise ArgumentError("corrected standard deviations are for Gaussian latents; these are of other families.")
    sizes = model.latent_sizes
    vectors, one = _functionals(functionals, sizes[layer])
    before, after = sum(sizes[:layer]), sum(sizes[layer + 1 :])
    padding = [scipy.sparse.csr_array((vectors.shape[0], width)) for width in (before, after) if width]
    parts = [*padding[: 1 if before else 0], vectors.rows(), *padding[1 if before else 0 :]]
    padded = SparseWeights(scipy.sparse.csr_array(scipy.sparse.hstack(parts)))
    flat, stacked = Flat(model), Flat(model).stacked(q)
    sd = linear_response_sd(flat.model, flat.data(data), stacked.mean, stacked.sd, padded, tol, progress)
    if not one:
        return sd
    return float(np.asarray(sd)[0]) if data.single else np.asarray(sd)[:, 0]


def double_precision(layer: Layer) -> Layer:
    """Return the layer with weights and parameters in float64, itself if they are."""
    weights = layer.weights.in_double()
    return layer if weights is layer.weights else Layer(layer.family, weights, layer.bias)


def _functionals(given: Any, m: int) -> tuple[Weights, bool]:
    """Return the vectors c as the rows of weights, and whether it was one without a leading axis."""
    if given is None:
        return SparseWeights(scipy.sparse.eye_array(m, format="csr")), False
    if not isinstance(given, Weights):
        is_sparse = bool(scipy.sparse.issparse(given))
        given = given if is_sparse else numbers("functionals", given)
        finite("entries of functionals" if is_sparse else "functionals", given.tocoo().data if is_sparse else given)
    shape: tuple[int, ...] = given.shape
    if len(shape) not in (1, 2) or shape[-1] != m or shape[0] == 0:
        raise ArgumentError(f"functionals must have shape ({m},) or (K, {m}) for this model; got {shape}.")
    return as_weights(given if len(shape) == 2 else given.reshape(1, m)), len(shape) == 1


def _row_curvatures(model: DEF, data: Observations, mean: npt.ArrayLike, sd: npt.ArrayLike) -> Array:
    """Return ``kappa_i = E a''(m_i + sqrt(v_i) z)``, 0 for a missing entry, (N or 1, n) in float64."""
    q = as_factors("q", (mean, sd), model, data.x.shape[0])
    site = Site(double_precision(model.layers[0]), data, "elbo")
    eta = site.layer.weights.forward(q.mean) + site.layer.bias
    kappa = site.row_terms(eta, site.spread(q.sd.astype(np.float64)))[2]
    if not np.isfinite(kappa).all():
        raise ForestmixError(
            "The rows' expected curvature is infinite at this posterior, so it has no linear response. It is no "
            "optimum: look at result.message, and at the scales of x and W."
        )
    return kappa


def _distinct(kappa: Array) -> tuple[Array, Array]:
    """Return the distinct rows of kappa and which of them each observation has, so that each is solved for once."""
    known: dict[bytes, int] = {}
    which = np.array([known.setdefault(row.tobytes(), len(known)) for row in kappa])
    return kappa[np.unique(which, return_index=True)[1]], which


@memory.reused()
def _variances(model: DEF, kappa: Array, functionals: Weights, tol: float, progress: bool) -> Array:
    """Return ``c^T C c`` for each row of kappa and each functional."""
    n, m = model.n_observed, model.n_latent
    weights = double_precision(model.layers[0]).weights
    scale = np.broadcast_to(prior_sd(model.prior).astype(np.float64), m)
    many = functionals.shape[0] >= MANY * m
    if m <= (MANY_DENSE_LIMIT if many else DENSE_LIMIT):
        return np.array([_factored(weights, row, scale, functionals, tol) for row in _tracked(list(kappa), progress)])
    system = _System(weights, kappa, scale, model.prior)
    # Six vectors of each right-hand side stay, the others come and go within a step.
    blocks = list(blocks_of(len(kappa) * functionals.shape[0], 8 * (10 * m + 4 * n)))
    parts = [_iterated(system, functionals, block, tol) for block in _tracked(blocks, progress)]
    return np.concatenate(parts).reshape(len(kappa), -1)


def _tracked(work: list[Array], progress: bool) -> Iterable[Array]:
    """Return the pieces of work, with a progress bar if that is asked for."""
    if not progress:
        return work
    from rich.progress import track

    return track(work, description="linear response")


# Few latents: a factor of A.


def _factored(weights: Weights, kappa: Array, scale: Array, functionals: Weights, tol: float) -> Array:
    """Return ``c^T C c = |L^-1 D^-1 c|^2`` with ``A = D L L^T D``; D makes the diagonal of ``L L^T`` one."""
    A = precision_matrix(weights, kappa, scale**-2.0)
    D = np.sqrt(np.diag(A))
    A /= D
    A /= D[:, None]
    try:
        L = scipy.linalg.cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        # A pivot is what is left after subtractions from 1, so it has lost that much of the digits.
        lost = float(len(D) * np.finfo(np.float64).eps / np.min(np.diag(L)) ** 2)
    except scipy.linalg.LinAlgError:
        lost = np.inf
    if lost > tol:
        return _by_orthogonal_factor(weights, kappa, scale, functionals, tol)
    variances = np.empty(functionals.shape[0])
    for block in blocks_of(len(variances), 32 * len(D)):
        c = functionals.dense_rows(block)
        solved = scipy.linalg.solve_triangular(L, (c / D).T, lower=True, check_finite=False)
        variances[block] = np.sum(solved**2, axis=0)
    return variances


def _by_orthogonal_factor(weights: Weights, kappa: Array, scale: Array, functionals: Weights, tol: float) -> Array:
    """Return ``c^T C c`` from a factor that never forms A, or raise where rounding leaves less than ``tol`` of it.

    That is seen by a second factor, of rows whose last digit has been changed at random.
    """
    shaken = kappa * (1 + np.finfo(np.float64).eps * np.random.default_rng(0).choice([-4, 4], kappa.shape))
    factors = [orthogonal_factor(weights, rows, scale) for rows in (kappa, shaken)]
    variances = np.empty(functionals.shape[0])
    for block in blocks_of(len(variances), 64 * len(scale)):
        c = functionals.dense_rows(block).T
        variances[block], others = (np.sum(factor.solve_transposed(c) ** 2, axis=0) for factor in factors)
        worst = float(np.max(np.abs(others - variances[block]) / variances[block]))
        if worst > tol:
            raise ForestmixError(
                f"Rounding leaves a relative error of about {worst:.1e} in these variances, more than tol={tol:g}. "
                "Raise tol, or bring the prior's sd nearer to the scale of the posterior."
            )
    return variances


# Many latents: conjugate gradients for a block of right-hand sides at a time.


class _System:
    """The matrix A of each right-hand side: products with it, and its diagonal."""

    def __init__(self, weights: Weights, kappa: Array, scale: Array, prior: Prior) -> None:
        self.weights, self.kappa, self.scale, self.prior = weights, kappa, scale, prior
        self.diagonal = scale**-2.0 + weights.square().adjoint(kappa)

    def take(self, chosen: Array) -> _System:
        """Return the system of the chosen right-hand sides; one that all share stays as it is."""
        part = copy(self)
        if len(self.kappa) > 1:
            part.kappa, part.diagonal = self.kappa[chosen], self.diagonal[chosen]
        return part

    def product(self, x: Array) -> tuple[Array, Array]:
        """Return ``A x`` and ``x^T A x``, the latter as a sum of squares, in which nothing cancels."""
        shift = self.weights.forward(x)
        image = self.weights.adjoint(self.kappa * shift)
        image += x * self.scale**-2.0
        return image, np.sum(self.kappa * shift**2, axis=-1) + np.sum((x / self.scale) ** 2, axis=-1)


class _Block:
    """Right-hand sides c with their conjugate gradients under way; those that are done leave."""

    def __init__(self, system: _System, c: Array) -> None:
        self.system, self.c = system, c
        self.x, self.r, self.direction = np.zeros_like(c), c, np.zeros_like(c)
        self.squared_norm, self.estimate = np.zeros(len(c)), np.zeros(len(c))
        self.bound = system.prior.variance_of(c)

    def take(self, chosen: Array) -> _Block:
        """Return the chosen right-hand sides."""
        part = copy(self)
        part.system = self.system.take(chosen)
        for name in ("c", "x", "r", "direction", "squared_norm", "estimate", "bound"):
            setattr(part, name, getattr(self, name)[chosen])
        return part

    def step(self) -> None:
        """Move each x to the maximum of J along its next conjugate direction; J rises by ``length * squared_norm``."""
        preconditioned = self.r / self.system.diagonal
        squared_norm = np.sum(self.r * preconditioned, axis=-1)
        self.direction = preconditioned + _quotient(squared_norm, self.squared_norm)[:, None] * self.direction
        image, curvature = self.system.product(self.direction)
        length = _quotient(squared_norm, curvature)
        self.x, self.r = self.x + length[:, None] * self.direction, self.r - length[:, None] * image
        self.squared_norm, self.estimate = squared_norm, self.estimate + length * squared_norm
        self.bound = self.system.prior.variance_of(self.r)

    def restart(self) -> None:
        """Compute residual, estimate and bound anew from x, free of what rounding added up, and go on from there."""
        image, curvature = self.system.product(self.x)
        self.r = self.c - image
        self.estimate = 2 * np.sum(self.c * self.x, axis=-1) - curvature
        self.bound = self.system.prior.variance_of(self.r)
        self.squared_norm, self.direction = np.zeros_like(self.squared_norm), np.zeros_like(self.direction)


def _iterated(system: _System, functionals: Weights, pairs: Array, tol: float) -> Array:
    """Return ``c^T C c`` of each pair of an observation and a functional, from below and within ``tol``."""
    observation, functional = np.divmod(pairs, functionals.shape[0])
    block = _Block(system.take(observation), functionals.dense_rows(functional))
    variances, active, last = np.empty(len(pairs)), np.arange(len(pairs)), np.full(len(pairs), np.inf)
    limit = 10 * functionals.shape[1]
    for _ in range(limit):
        # Half of tol leaves room for what rounding adds between the residual carried along and the one recomputed.
        if (block.bound <= 0.5 * tol * block.estimate).all():
            block.restart()
            done = block.bound <= tol * block.estimate
            if (~done & (block.bound > LEAST_GAIN * last)).any():
                raise _not_reached(block, functional[active], tol, "before rounding set a limit")
            variances[active[done]] = block.estimate[done]
            keep = np.flatnonzero(~done)
            block, active, last = block.take(keep), active[keep], block.bound[keep]
            if not len(active):
                return variances
        block.step()
    raise _not_reached(block, functional[active], tol, f"within {limit} iterations")


def _not_reached(block: _Block, functional: Array, tol: float, when: str) -> ForestmixError:
    """Return the error that says how many functionals are not there yet, which is the worst, and what to try."""
    error = _quotient(block.bound, block.estimate)
    worst = int(np.argmax(error))
    return ForestmixError(
        f"Conjugate gradients did not reach tol={tol:g} {when} for {np.sum(error > tol)} functionals; the worst, "
        f"number {functional[worst]}, has a relative error of up to {error[worst]:.1e}. Raise tol, or bring the "
        "prior's sd nearer to the scale of the posterior."
    )


def _quotient(numerator: Array, denominator: Array) -> Array:
    """Return the quotient, 0 where the denominator is 0: a new start, or nothing left to gain."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
