"""Which bound serves rows of a family under parents of a family, and which pairs have none."""

from __future__ import annotations

from typing import Any

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import Bernoulli, Binomial, Gaussian, Poisson
from forestmix.latents import LATENTS, GaussianFactors
from forestmix.model import DEF, Layer, Observations
from forestmix.problem.interfaces.base import Interface
from forestmix.problem.interfaces.count_parents import CountParents
from forestmix.problem.interfaces.exact import ExactCounts
from forestmix.problem.interfaces.gaussian_parents import GaussianParents
from forestmix.problem.interfaces.gaussian_rows import GaussianRows

#: Families of rows that latents which are counts may have below them, besides Gaussian ones.
COUNT_ROWS = (Bernoulli, Binomial, Poisson)


def make_interfaces(model: DEF, data: Observations, objective: str) -> list[Interface]:
    """Return the interface of each layer with its parents, the lowest first.

    Args:
        model: the model.
        data: the observations.
        objective: "elbo" or "fm" for every interface; "auto" is the ELBO wherever a parallel step can climb it.

    """
    for k, family in enumerate(model.latent_families):
        if type(family) not in LATENTS:
            known = ", ".join(kind.__name__ for kind in LATENTS)
            raise ArgumentError(
                f"latents must be {known}, the last three as the prior on top; latent layer {k + 1} has {family!r}."
            )
    observed = [data.observed, *[None] * (len(model.layers) - 1)]
    pairs = zip(model.layers, model.latent_families, observed, strict=True)
    return [_interface(k, layer, family, seen, objective) for k, (layer, family, seen) in enumerate(pairs)]


def _interface(position: int, layer: Layer, above: Any, observed: Array | None, objective: str) -> Interface:
    kind, bound = LATENTS[type(above)], "fm" if objective == "fm" else "elbo"
    if isinstance(layer.family, Gaussian):
        return GaussianRows(layer, kind, observed, bound)
    if kind is GaussianFactors:
        return GaussianParents(layer, kind, observed, bound)
    if isinstance(layer.family.unweighted, COUNT_ROWS) and isinstance(above, Bernoulli | Poisson):
        return ExactCounts(layer, kind, observed) if objective == "elbo" else CountParents(layer, kind, observed)
    raise ArgumentError(
        f"There is no bound for {layer.family!r} rows (layers[{position}]) under {above!r} latents. Gaussian rows take "
        "latents of every family; Bernoulli, Binomial and Poisson rows take Gaussian, Bernoulli and Poisson latents; "
        "Mixed rows take Gaussian latents."
    )
