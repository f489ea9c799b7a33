"""Which problem a model poses: one layer of Gaussian latents, several, or latents of other families."""

from __future__ import annotations

from typing import Any

from forestmix.errors import ArgumentError
from forestmix.problem.flat import is_deep
from forestmix.problem.array_problem import ArrayProblem
from forestmix.problem.flat_problem import FlatProblem
from forestmix.problem.latent_problem import LatentProblem
from forestmix.problem.gaussian import Problem
from forestmix.problem.interfaces import has_flat_form
from forestmix.model import DEF, Observations
from forestmix.partition import Partition
from forestmix.statistics import Objective


def make_problem(
    model: DEF, data: Observations, objective: str, groups: Partition | None = None, *, both: bool = False
) -> Any:
    """Return the problem of a model; "auto" is the ELBO where a parallel step can climb it; ``both`` as in ``Site``."""
    if model.layers[0].weights.on_device:
        if groups is not None or not has_flat_form(model):
            raise ArgumentError(
                "W in an array of another library goes with Gaussian latents and no groups; give NumPy arrays instead."
            )
        return ArrayProblem(model, data, "fm" if objective == "fm" else "elbo")
    if not has_flat_form(model):
        if groups is not None:
            raise ArgumentError("groups must be None for latents that are not Gaussian.")
        return LatentProblem(model, data, objective)
    bound: Objective = "fm" if objective == "fm" else "elbo"
    if not is_deep(model):
        return Problem(model, data, bound, groups, both=both)
    if groups is not None:
        raise ArgumentError("groups must be None for deep models, whose groups are the layers; see schedule.")
    return FlatProblem(model, data, bound)
