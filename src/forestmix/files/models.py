"""Codecs of models and of the data that they are given."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from forestmix.files.codec import Codec, record
from forestmix.model import DEF, Layer, Observations, Prior


def _layer(layer: Layer) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in ("family", "weights", "bias", "left_out", "labels")}


def _built_layer(given: dict[str, Any]) -> Layer:
    """Return the layer; its family has the case weights, and rows of weight 0 are those that are left out."""
    layer = Layer(given["family"], given["weights"], given["bias"])
    layer.left_out = given["left_out"]
    layer.labels = None if given["labels"] is None else _tuples(given["labels"])
    return layer


def _tuples(given: Any) -> Any:
    """Return labels with tuples in the place of lists, which no label is."""
    return tuple(map(_tuples, given)) if isinstance(given, list) else given


def _time(time: datetime) -> dict[str, Any]:
    """Return a time as text, and the name of its zone if it has one: an offset alone would not be the same."""
    zone = getattr(time.tzinfo, "key", None)
    return {"text": (time if zone is None else time.astimezone(UTC)).isoformat(), "zone": zone}


def _built_time(given: dict[str, Any]) -> datetime:
    time = datetime.fromisoformat(given["text"])
    return time if given["zone"] is None else time.astimezone(ZoneInfo(given["zone"]))


def _built_model(given: dict[str, Any]) -> DEF:
    return DEF(*given["layers"], prior=given["prior"])


CODECS = (
    Codec("layer", Layer, _layer, _built_layer),
    record("prior", Prior, ("family", "bias")),
    Codec("model", DEF, lambda one: {"layers": list(one.layers), "prior": one.prior}, _built_model),
    Codec("date", date, lambda one: {"text": one.isoformat()}, lambda given: date.fromisoformat(given["text"])),
    Codec("time", datetime, _time, _built_time),
    record("duration", timedelta, ("days", "seconds", "microseconds")),
    record("observations", Observations, ("x", "observed", "single")),
)
