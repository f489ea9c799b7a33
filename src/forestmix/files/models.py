"""Codecs of models and of the data that they are given."""

from __future__ import annotations

from typing import Any

from forestmix.files.codec import Codec, record
from forestmix.model import DEF, Layer, Observations, Prior


def _layer(layer: Layer) -> dict[str, Any]:
    return {"family": layer.family, "weights": layer.weights, "bias": layer.bias, "left_out": layer.left_out}


def _built_layer(given: dict[str, Any]) -> Layer:
    """Return the layer; its family has the case weights, and rows of weight 0 are those that are left out."""
    layer = Layer(given["family"], given["weights"], given["bias"])
    layer.left_out = given["left_out"]
    return layer


def _built_model(given: dict[str, Any]) -> DEF:
    return DEF(*given["layers"], prior=given["prior"])


CODECS = (
    Codec("layer", Layer, _layer, _built_layer),
    record("prior", Prior, ("family", "bias")),
    Codec("model", DEF, lambda one: {"layers": list(one.layers), "prior": one.prior}, _built_model),
    record("observations", Observations, ("x", "observed", "single")),
)
