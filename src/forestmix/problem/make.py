"""Which problem a model poses: Gaussian latents, evaluated by an engine, or latents of other families."""

from __future__ import annotations

from forestmix.engines.protocol import Engine
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.model import DEF, Observations
from forestmix.partition import Partition
from forestmix.problem.base import Problem
from forestmix.problem.flat import Stacked
from forestmix.problem.gaussian import GaussianProblem
from forestmix.problem.latent import LatentProblem


def make_problem(
    model: DEF, data: Observations, engine: Engine, objective: str, groups: Partition | None = None,
    *, both: bool = False,
) -> Problem:  # fmt: skip
    """Return the problem of a model; "auto" is the ELBO where a parallel step can climb it.

    ``groups`` and ``both`` are those of ``GaussianProblem``.
    """
    gaussian = all(isinstance(family, Gaussian) for family in model.latent_families)
    on_device = any(layer.weights.on_device for layer in model.layers)
    if on_device and (groups is not None or len(model.layers) > 1 or not gaussian):
        raise ArgumentError(
            "W in an array of another library goes with one layer of Gaussian latents and no groups; give NumPy "
            "arrays instead."
        )
    if groups is not None and len(model.layers) > 1:
        raise ArgumentError("groups must be None for deep models, whose groups are the layers; see schedule.")
    if gaussian:
        bound = "fm" if objective == "fm" else "elbo"
        return GaussianProblem(Stacked(model), data, engine, bound, groups, both=both)
    if groups is not None:
        raise ArgumentError("groups must be None for latents that are not Gaussian.")
    return LatentProblem(model, data, objective)
