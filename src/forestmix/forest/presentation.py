"""Between users and the model: data in and out of its units, the largest trees first, most weights positive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forestmix.arrays import Array
from forestmix.families import Family
from forestmix.forest.learning import Run
from forestmix.forest.parameters import LARGEST_COUNT, ForestParameters, check_size
from forestmix.latents import GaussianFactors
from forestmix.model import Observations


def observations_of(array: Array, family: Family) -> Observations:
    """Return checked numbers as observations, with 0 where they are missing."""
    family.check_support("X", array)
    if family.name == "poisson":
        check_size("X", array, LARGEST_COUNT)
    missing = np.isnan(array)
    x = np.where(missing, 0.0, array).astype(np.float64)
    return Observations(x, ~missing if missing.any() else None, False)


def standard_units(data: Observations, centre: Array, scale: Array) -> Array:
    """Return ``(x - centre) / scale``, 0 where it is missing."""
    x = check_size("X in standard deviations", (data.x - centre) / scale)
    return x if data.observed is None else np.where(data.observed, x, 0.0)


def rescaled(p: ForestParameters, centre: Array, scale: Array) -> ForestParameters:
    """Return the model of ``centre + scale * x`` for Gaussian leaves; other families are left as they are."""
    if p.noise is None:
        return p
    size = scale[:, None]
    return replace(p, weights=p.weights * size, bias=p.bias * size + centre[:, None], noise=p.noise * size)


def in_order(run: Run) -> Run:
    """Return the run with the largest trees first, and each latent of the sign that most of its variables have."""
    p, r = run.state.forest, run.state.responsibilities
    order = np.argsort(-r.sum(axis=0), kind="stable")
    sign = np.where((r * p.weights).sum(axis=0) < 0, -1.0, 1.0)[order]
    noise = None if p.noise is None else p.noise[:, order]
    forest = replace(
        p,
        weights=p.weights[:, order] * sign,
        bias=p.bias[:, order],
        parent_prior=p.parent_prior[:, order],
        noise=noise,
    )
    q = run.state.latents
    latents = GaussianFactors(q.mean[:, order] * sign, q.sd[:, order])
    return replace(run, state=replace(run.state, forest=forest, latents=latents, responsibilities=r[:, order]))


def natural_noise(family: Family) -> float:
    """Return the spread that a natural parameter is measured against: that of a logistic variable, or 1."""
    return float(np.pi / np.sqrt(3)) if family.name == "bernoulli" else 1.0
