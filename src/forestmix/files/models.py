"""Codecs of models: families, unknown scales, factors, layers and data; times and generators as plain values."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from forestmix import scales
from forestmix.arrays import host
from forestmix.errors import ForestmixError
from forestmix.families import Bernoulli, Binomial, Exponential, Gaussian, Laplace, Mixed, Poisson, SpikeSlab
from forestmix.files.codec import Codec, record, state
from forestmix.latents import LATENTS, ArrayFactors, GaussianFactors
from forestmix.model import DEF, Layer, Observations, Prior


def _case_weights(kind: str) -> Codec:
    """Return how files of older versions have rows with case weights, as a family of its own type."""
    return Codec(kind, type(kind, (), {}), vars, lambda given: given["family"].weighted(given["weight"]))


def _rows(codec: Codec) -> Codec:
    """Return the codec of a family of rows, which may have case weights."""

    def fields(one: Any) -> dict[str, Any]:
        return {**codec.fields(one), "weight": one.weight} if np.ndim(one.weight) else codec.fields(one)

    def build(given: dict[str, Any]) -> Any:
        weight = given.pop("weight", 1.0)
        return codec.build(given).weighted(weight)

    return Codec(codec.kind, codec.type, fields, build)


def _array_factors(factors: ArrayFactors) -> dict[str, Any]:
    """Return the factors of an array on another device as those of a NumPy array."""
    return {"mean": host(factors.mean), "sd": host(factors.sd)}


def _factors(type_: type) -> Codec:
    names = [field.name for field in fields(type_)]
    return record(f"{type_.__name__.removesuffix('Factors')} factors", type_, names)


SCALES: tuple[type[scales.Scale], ...] = (
    scales.Exponential, scales.Flat, scales.FromData, scales.HalfCauchy, scales.HalfNormal, scales.HalfStudentT,
    scales.InverseGamma,
)  # fmt: skip


def dtype_of(name: str) -> np.dtype:
    """Return float32 or float64 by its name."""
    if name not in ("float32", "float64"):
        raise ValueError(f"precision {name!r}")
    return np.dtype(name)


def _layer(layer: Layer) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in ("family", "weights", "bias", "left_out", "labels", "row_labels")}


def _built_layer(given: dict[str, Any]) -> Layer:
    """Return the layer; its family has the case weights, and rows of weight 0 are those that are left out."""
    layer = Layer(given["family"], given["weights"], given["bias"])
    layer.left_out = given["left_out"]
    layer.labels, layer.row_labels = _tuples(given["labels"]), _tuples(given.get("row_labels"))
    return layer


def _built_observations(given: dict[str, Any]) -> Observations:
    return Observations(given["x"], given["observed"], given["single"], _tuples(given.get("labels")))


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


_KINDS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def generator_fields(rng: np.random.Generator) -> dict[str, Any]:
    """Return the state, with whole numbers as texts: they have up to 128 bits."""
    if type(rng.bit_generator).__name__ not in _KINDS:
        raise ForestmixError(f"A file cannot hold a generator of type {type(rng.bit_generator).__name__}.")
    return {"state": _plain(rng.bit_generator.state)}


def built_generator(given: dict[str, Any]) -> np.random.Generator:
    """Return a generator that draws what the one that was saved would have drawn next."""
    restored = _restored(given["state"])
    if restored["bit_generator"] not in _KINDS:
        raise ValueError(f"generator {restored['bit_generator']!r}")
    source = getattr(np.random, restored["bit_generator"])(0)
    source.state = restored
    return np.random.Generator(source)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value if isinstance(value, str | np.ndarray) else f"int {int(value)}"


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _restored(part) for key, part in value.items()}
    return int(value.removeprefix("int ")) if isinstance(value, str) and value.startswith("int ") else value


_OBSERVATIONS = ("x", "observed", "single", "labels")

CODECS = (
    *(record(f"scale {one.__name__}", one, one.parameters()) for one in SCALES),
    record("places of scales", scales.Places, ("unknowns", "which", "known")),
    _rows(state("Gaussian", Gaussian, ("sd_left_out", "places", "sd"))),
    _rows(state("Bernoulli", Bernoulli, ())),
    _rows(state("Poisson", Poisson, ())),
    _rows(state("Binomial", Binomial, ("trials",))),
    _rows(record("Mixed", Mixed, ("families", "which"))),
    *(state(prior.__name__, prior, prior.parameters) for prior in (Exponential, Laplace, SpikeSlab)),
    *map(_case_weights, ("case weights of rows", "case weights of Gaussian rows")),
    *map(_factors, LATENTS.values()),
    Codec("Gaussian factors of an array", ArrayFactors, _array_factors, lambda given: GaussianFactors(**given)),
    Codec("layer", Layer, _layer, _built_layer),
    record("prior", Prior, ("family", "bias")),
    Codec("model", DEF, lambda one: {"layers": list(one.layers), "prior": one.prior}, _built_model),
    Codec("date", date, lambda one: {"text": one.isoformat()}, lambda given: date.fromisoformat(given["text"])),
    Codec("time", datetime, _time, _built_time),
    record("duration", timedelta, ("days", "seconds", "microseconds")),
    Codec(
        "observations",
        Observations,
        lambda one: {name: getattr(one, name) for name in _OBSERVATIONS},
        _built_observations,
    ),
)
