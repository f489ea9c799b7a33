"""Log-likelihoods of single observations under a learned forest."""

from __future__ import annotations

import numpy as np
import scipy

from forestmix.arrays import Array, total
from forestmix.families import Gaussian
from forestmix.forest.engines import parents_of_observations
from forestmix.forest.leaves import base, rows_of_tree
from forestmix.forest.parameters import ForestParameters, present, standard_units
from forestmix.latents import GaussianFactors
from forestmix.model import Observations

#: Nodes of the quadrature over a latent, placed by its posterior.
_NODES = 40


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
    value = total(base(p, data))
    for tree in np.unique(parents):
        children = np.flatnonzero(parents == tree)
        mean = q.mean[:, tree]
        sd = 1.5 * np.broadcast_to(q.sd[:, tree], mean.shape)
        terms = np.stack([_log_joint(p, data, tree, children, mean + sd * z) for z in node], axis=1)
        terms = terms + np.log(weight) + 0.5 * node**2 + np.log(sd)[:, None]
        value = value + scipy.special.logsumexp(terms, axis=1)
    return value


def _log_joint(p: ForestParameters, data: Observations, tree: int, children: Array, y: Array) -> Array:
    """Return ``log p(x of the children, y)`` of each observation, less ``base``."""
    prior = Gaussian(p.prior.sd[tree]).expectations(y, p.prior_mean[tree], np.zeros_like(y))
    return total(rows_of_tree(p, data, y, np.zeros(1), tree, children).log_likelihood) + prior.log_likelihood


def observation_bounds(p: ForestParameters, data: Observations, q: GaussianFactors) -> Array:
    """Return the ELBO of each observation where each has parents of its own, (N,)."""
    return total(parents_of_observations(p, data, q)[1] + base(p, data)) - p.divergence(q)
