"""Codecs of results: how a run went, and the factors that it found."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.files.codec import Codec, record
from forestmix.files.families import dtype_of
from forestmix.files.posteriors import components_of, joined_components
from forestmix.inference.status import Status, Trace
from forestmix.posterior.each import EachPosterior
from forestmix.posterior.layer import LayerPosterior
from forestmix.posterior.posterior import Posterior
from forestmix.posterior.result import Result

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
        "components": None if joint is None else components_of(joint.mixture.components),
        "component_weights": None if joint is None else joint.mixture.weights[0],
        "log_evidence": None if joint is None else joint._log_evidence,
        "joint_factors": None if joint is None else joint.factors,
        "of_each": of_each,
    }


def _built_result(given: dict[str, Any]) -> Result:
    fields = {name: given[name] for name in _PLAIN}
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
        **{**fields, "layers": tuple(fields["layers"])}, joint=joint,
        status=statuses[0] if given["single"] else statuses,
        scales=scales,
    )  # fmt: skip


def _layer(layer: LayerPosterior) -> dict[str, Any]:
    return {"factors": layer.factors, "single": layer.single, "dtype": np.dtype(layer.dtype).name}


CODECS = (
    record("trace", Trace, ("iteration", "step", "sweeps", "objective", "gradient_norm", "seconds")),
    Codec(
        "posterior of a layer", LayerPosterior, _layer,
        lambda given: LayerPosterior(given["factors"], given["single"], dtype_of(given["dtype"])),
    ),
    Codec("result", Result, _result, _built_result),
)  # fmt: skip
