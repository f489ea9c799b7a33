"""Codecs of what results are: posteriors with their components and scales, and how a run went.

A covariance is stored by what defines it, the curvatures of the rows and the prior's precisions. W is the model's, so
it is not stored again, and the factor is made anew when it is asked for: the same numbers, from the same arrays.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from forestmix.errors import ForestmixError
from forestmix.files.codec import Codec, record, state
from forestmix.files.models import built_generator, dtype_of, generator_fields
from forestmix.inference.status import Status, Trace
from forestmix.model import DEF, Layer, Observations
from forestmix.posterior.columns import Columns, is_sparse
from forestmix.posterior.component import Component, FactorisedComponent
from forestmix.posterior.covariance import Covariance, CovarianceBatch, DiagonalCovariance, FactoredCovariance
from forestmix.posterior.each import EachPosterior
from forestmix.posterior.factor import BlockFactor, _Parts
from forestmix.posterior.iterative import IterativeCovariance
from forestmix.posterior.layer import LayerPosterior
from forestmix.posterior.posterior import Posterior
from forestmix.posterior.remainder import Remainder
from forestmix.posterior.result import Result
from forestmix.posterior.row_factored import RowFactoredCovariance
from forestmix.posterior.scale_posterior import ScalePosterior
from forestmix.posterior.system import LatentSystem


class Surroundings:
    """What the covariances of a model share: W in double precision, its columns, and the prior."""

    def __init__(self, model: DEF, data: Observations) -> None:
        self.model, self.data = model, data

    @cached_property
    def system(self) -> LatentSystem:
        """Rows, weights and prior as one linear system."""
        return LatentSystem(self.model, self.data)

    @cached_property
    def columns(self) -> Columns:
        """The columns of W, parted as a factor needs them."""
        return Columns(self.model.layers[0].weights.in_double())


def _iterative(one: IterativeCovariance) -> dict[str, Any]:
    return {
        "kappa": one.kappa, "scale": one.system.scale, "tol": one.tol, "progress": one.progress, "_count": one._count,
        "_moment": one._moment, "_draws": one._draws, "generator": generator_fields(one._rng),
    }  # fmt: skip


def _built_iterative(given: dict[str, Any], around: Surroundings) -> IterativeCovariance:
    system = around.system
    one = IterativeCovariance(
        system.weights, given["kappa"], given["scale"], system.stacked.prior_variance, given["tol"],
        built_generator(given["generator"]), progress=given["progress"],
    )  # fmt: skip
    one._count, one._moment, one._draws = given["_count"], given["_moment"], given["_draws"]
    return one


def _block(one: BlockFactor) -> dict[str, Any]:
    """Return what defines the covariance: curvatures, or where W is elsewhere its factor."""
    if not len(one.kappa):
        parts = one._parts
        U = parts.U.tocsr() if is_sparse(parts.U) else parts.U
        return {"precision": one.prior_precision, "columns": one.columns, "factor": replace(parts, U=U)}
    wider = None if one._wider is None else list(one._wider)
    return {"kappa": one.kappa, "precision": one.prior_precision, "held": one._held is not None, "wider": wider}


def _built_block(given: dict[str, Any], around: Surroundings) -> BlockFactor:
    if "factor" in given:
        return BlockFactor(given["columns"], np.empty(0), given["precision"], given["factor"])
    one = BlockFactor(around.columns, given["kappa"], given["precision"])
    # Files of older versions have no variances wider than q's.
    if given.get("wider") is not None:
        one = one.widened(Remainder(*given["wider"]))
    return one if given["held"] else one.released()


def _factored(kind: str, type_: type[FactoredCovariance]) -> Codec:
    def build(given: dict[str, Any], around: Surroundings) -> FactoredCovariance:
        return type_(around.system.weights, **given)

    return record(kind, type_, ("kappa", "scale", "tol", "keep"), build)


#: They are built from their fields and what surrounds them.
_COVARIANCES = (
    Codec(
        "diagonal", DiagonalCovariance, lambda one: {"variance": one.variance()},
        lambda given, _: DiagonalCovariance(given["variance"]),
    ),
    _factored("factored", FactoredCovariance),
    _factored("factored by rows", RowFactoredCovariance),
    Codec("block", BlockFactor, _block, _built_block),
    Codec("iterative", IterativeCovariance, _iterative, _built_iterative),
)  # fmt: skip


def _component(component: Component) -> dict[str, Any]:
    """Return what defines a component but W, which all of them share with the model."""
    if isinstance(component, FactorisedComponent):
        return {"form": "factorised", "factors": list(component.factors), "family": component.layer.family}
    distinct = component.covariance.distinct
    codecs = [_covariance_codec(one) for one in distinct]
    return {
        "form": "normal",
        "mean": component.mean,
        "family": component.layer.family,
        "scales": [{"scale": scale, "value": value} for scale, value in component.scales.items()],
        "which": component.covariance.which,
        "covariances": [codec.kind for codec in codecs],
        "distinct": [codec.fields(one) for codec, one in zip(codecs, distinct, strict=True)],
    }


def _covariance_codec(covariance: Covariance) -> Codec:
    for codec in _COVARIANCES:
        if type(covariance) is codec.type:
            return codec
    raise ForestmixError(f"A file cannot hold a covariance of type {type(covariance).__name__}.")


def joined_components(given: list[dict[str, Any]], model: DEF, data: Observations) -> tuple[Component, ...]:
    """Return the components, with the model's W."""
    around = Surroundings(model, data)
    return tuple(_built_component(one, around) for one in given)


def _built_component(given: dict[str, Any], around: Surroundings) -> Component:
    layer: Layer = around.model.layers[0].with_family(given["family"])
    if given["form"] == "factorised":
        return FactorisedComponent(given["factors"], layer)
    build = {codec.kind: codec.build for codec in _COVARIANCES}
    kinds = zip(given["covariances"], given["distinct"], strict=True)
    distinct = [build[kind](fields, around) for kind, fields in kinds]
    scales = {one["scale"]: one["value"] for one in given["scales"]}
    return Component(given["mean"], CovarianceBatch(distinct, given["which"]), layer, scales)


def _posterior(posterior: Posterior) -> dict[str, Any]:
    return {
        "model": posterior.model,
        "data": posterior.data,
        "kind": posterior.kind,
        "components": [_component(one) for one in posterior.mixture.components],
        "weights": posterior.mixture.weights,
        "factors": posterior.factors,
        "scales": [{"name": name, "posterior": one} for name, one in posterior.scales.items()],
        "log_evidence": posterior._log_evidence,
    }


def _built_posterior(given: dict[str, Any]) -> Posterior:
    return Posterior(
        joined_components(given["components"], given["model"], given["data"]), given["weights"], given["model"],
        given["data"], given["kind"], factors=None if given["factors"] is None else tuple(given["factors"]),
        scales={one["name"]: one["posterior"] for one in given["scales"]},
        log_evidence=given["log_evidence"],
    )  # fmt: skip


#: What is stored as it is.
_PLAIN = ("layers", "algorithm", "objective_name", "objective", "climbed", "converged", "n_iter", "trace", "model",
          "data", "note")  # fmt: skip


def _result(result: Result) -> dict[str, Any]:
    of_each = result.joint.parts if isinstance(result.joint, EachPosterior) else None
    joint = result.joint if of_each is None else None
    return {
        **{name: getattr(result, name) for name in _PLAIN},
        "status": [one.name for one in np.atleast_1d(np.asarray(result.status, object))],
        "single": isinstance(result.status, Status),
        "scales": [{"name": name, "posterior": one} for name, one in result.scales.items() if of_each is None],
        "components": None if joint is None else [_component(one) for one in joint.mixture.components],
        "component_weights": None if joint is None else joint.mixture.weights[0],
        "log_evidence": None if joint is None else joint._log_evidence,
        "joint_factors": None if joint is None else joint.factors,
        "of_each": of_each,
    }


def _built_result(given: dict[str, Any]) -> Result:
    statuses = np.array([Status[name] for name in given["status"]], object)
    joint: Posterior | None = None
    scales, model, data = {one["name"]: one["posterior"] for one in given["scales"]}, given["model"], given["data"]
    # Files of older versions know of one set of scales for a batch only.
    if given.get("of_each") is not None:
        joint = EachPosterior(given["of_each"], model, data)
        scales = joint.scales
    if given["components"] is not None:
        components, factors = joined_components(given["components"], model, data), given["joint_factors"]
        joint = Posterior(
            components, given["component_weights"], model, data, "full", factors=factors and tuple(factors),
            scales=scales, log_evidence=given["log_evidence"],
        )  # fmt: skip
    return Result(
        **{**{name: given[name] for name in _PLAIN}, "layers": tuple(given["layers"])}, joint=joint,
        status=statuses[0] if given["single"] else statuses, scales=scales,
    )  # fmt: skip


CODECS = (
    state("columns", Columns, ("shape", "block", "rest", "_weights", "_rows", "_last")),
    record("factor", _Parts),
    state(
        "posterior of a scale", ScalePosterior,
        ("scale", "mode", "_theta", "_density", "_cumulative", "mean", "sd", "log_mean", "log_sd"),
    ),
    Codec("posterior", Posterior, _posterior, _built_posterior),
    record("posterior of each", EachPosterior, ("parts", "model", "data")),
    record("trace", Trace),
    Codec(
        "posterior of a layer", LayerPosterior,
        lambda one: {"factors": one.factors, "single": one.single, "dtype": np.dtype(one.dtype).name},
        lambda given: LayerPosterior(given["factors"], given["single"], dtype_of(given["dtype"])),
    ),
    Codec("result", Result, _result, _built_result),
)  # fmt: skip
