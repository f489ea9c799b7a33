"""Which interfaces a model has between its layers: one by an engine, or one for each pair of families."""

from __future__ import annotations

from typing import Any

from forestmix.engines.protocol import Engine
from forestmix.errors import ArgumentError
from forestmix.families import Bernoulli, Binomial, Gaussian, Poisson
from forestmix.latents import LATENTS
from forestmix.model import DEF, Layer, Observations
from forestmix.partition import Partition
from forestmix.problem.flat import Stacked
from forestmix.problem.interfaces.base import Interface
from forestmix.problem.interfaces.count_parents import CountParents
from forestmix.problem.interfaces.exact import ExactCounts
from forestmix.problem.interfaces.gaussian_latents import GaussianLatents
from forestmix.problem.interfaces.gaussian_parents import GaussianParents
from forestmix.problem.interfaces.gaussian_rows import GaussianRows
from forestmix.problem.problem import Problem

#: Families of rows that latents which are counts may have below them, besides Gaussian ones.
COUNT_ROWS = (Bernoulli, Binomial, Poisson)


def make_problem(
    model: DEF, data: Observations, engine: Engine, objective: str, groups: Partition | None = None,
    *, both: bool = False,
) -> Problem:  # fmt: skip
    """Return the problem of a model; "auto" is the ELBO where a parallel step can climb it.

    ``groups`` and ``both`` are those of ``GaussianLatents``.
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
        rows = GaussianLatents(Stacked(model), data, engine, bound, groups, both=both)
        # With the layers as groups "fm" is the paper's deep bound.
        return Problem(model, data, [rows], "grouped" if groups is not None and bound == "fm" else bound)
    if groups is not None:
        raise ArgumentError("groups must be None for latents that are not Gaussian.")
    interfaces = [_interface(k, model, data, objective) for k in range(len(model.layers))]
    exact = all(interface.objective == "elbo" for interface in interfaces)
    return Problem(model, data, interfaces, "elbo" if exact else "grouped")


def _interface(k: int, model: DEF, data: Observations, objective: str) -> Interface:
    """Return the interface of a layer with its parents; "auto" is the ELBO wherever a parallel step can climb it."""
    layer, above = model.layers[k], model.latent_families[k]
    if type(above) not in LATENTS:
        known = ", ".join(kind.__name__ for kind in LATENTS)
        raise ArgumentError(
            f"latents must be {known}, the last three as the prior on top; latent layer {k + 1} has {above!r}."
        )
    given: tuple[Layer, Any, Any] = layer, above, data if k == 0 else None
    bound = "fm" if objective == "fm" else "elbo"
    if isinstance(layer.family, Gaussian):
        return GaussianRows(*given, bound, alone=len(model.layers) == 1)
    if isinstance(above, Gaussian):
        return GaussianParents(*given, bound)
    if isinstance(layer.family.unweighted, COUNT_ROWS) and isinstance(above, Bernoulli | Poisson):
        return ExactCounts(*given) if objective == "elbo" else CountParents(*given)
    raise ArgumentError(
        f"There is no bound for {layer.family!r} rows (layers[{k}]) under {above!r} latents. Gaussian rows take "
        "latents of every family; Bernoulli, Binomial and Poisson rows take Gaussian, Bernoulli and Poisson latents; "
        "Mixed rows take Gaussian latents."
    )
