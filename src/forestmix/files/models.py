"""Codecs of models and of the data that they are given."""

from __future__ import annotations

from typing import Any

from forestmix.files.codec import Codec, record
from forestmix.model import DEF, Layer, Observations, Prior


def _built_layer(given: dict[str, Any]) -> Layer:
    return Layer(given["family"], given["weights"], given["bias"])


def _built_model(given: dict[str, Any]) -> DEF:
    return DEF(*given["layers"], prior=given["prior"])


CODECS = (
    Codec(
        "layer", Layer, lambda one: {"family": one.family, "weights": one.weights, "bias": one.bias}, _built_layer
    ),
    record("prior", Prior, ("family", "bias")),
    Codec("model", DEF, lambda one: {"layers": list(one.layers), "prior": one.prior}, _built_model),
    record("observations", Observations, ("x", "observed", "single")),
)  # fmt: skip
