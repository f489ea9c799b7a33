"""Codecs of models: families, unknown scales, factors, layers and data; times and generators as plain values."""

from __future__ import annotations

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


def _built_mixed(given: dict[str, Any]) -> Mixed:
    return Mixed(given["families"], given["which"]).weighted(given.get("weight", 1.0))


def _array_factors(factors: ArrayFactors) -> dict[str, Any]:
    """Return the factors of an array on another device as those of a NumPy array."""
    return {"mean": host(factors.mean), "sd": host(factors.sd)}


SCALES: tuple[type[scales.Scale], ...] = (
    scales.Exponential, scales.Flat, scales.FromData, scales.HalfCauchy, scales.HalfNormal, scales.HalfStudentT,
    scales.InverseGamma,
)  # fmt: skip


def dtype_of(name: str) -> np.dtype:
    """Return float32 or float64 by its name."""
    if name not in ("float32", "float64"):
        raise ValueError(f"precision {name!r}")
    return np.dtype(name)


def _built_layer(given: dict[str, Any]) -> Layer:
    """Return the layer; its family has the case weights, and rows of weight 0 are those that are left out."""
    layer = Layer(given["family"], given["weights"], given["bias"])
    layer.left_out = given["left_out"]
    layer.labels, layer.row_labels = _tuples(given["labels"]), _tuples(given.get("row_labels"))
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


_KINDS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def generator_fields(rng: np.random.Generator) -> dict[str, Any]:
    """Return the state, whose whole numbers have up to 128 bits."""
    if type(rng.bit_generator).__name__ not in _KINDS:
        raise ForestmixError(f"A file cannot hold a generator of type {type(rng.bit_generator).__name__}.")
    return {"state": rng.bit_generator.state}


def built_generator(given: dict[str, Any]) -> np.random.Generator:
    """Return a generator that draws what the one that was saved would have drawn next."""
    restored = _restored(given["state"])
    if restored["bit_generator"] not in _KINDS:
        raise ValueError(f"generator {restored['bit_generator']!r}")
    source = getattr(np.random, restored["bit_generator"])(0)
    source.state = restored
    return np.random.Generator(source)


def _restored(value: Any) -> Any:
    """Return the state as a generator has it; files of older versions have its whole numbers as texts."""
    if isinstance(value, dict):
        return {key: _restored(part) for key, part in value.items()}
    return int(value.removeprefix("int ")) if isinstance(value, str) and value.startswith("int ") else value


CODECS = (
    *(record(f"scale {one.__name__}", one, one.parameters()) for one in SCALES),
    record("places of scales", scales.Places),
    state("Gaussian", Gaussian, ("sd_left_out", "places", "sd", "weight")),
    state("Bernoulli", Bernoulli, ("weight",)),
    state("Poisson", Poisson, ("weight",)),
    state("Binomial", Binomial, ("trials", "weight")),
    state("Mixed", Mixed, ("families", "which", "weight"))._replace(build=_built_mixed),
    *(state(prior.__name__, prior, prior.parameters) for prior in (Exponential, Laplace, SpikeSlab)),
    *map(_case_weights, ("case weights of rows", "case weights of Gaussian rows")),
    *(record(f"{factors.__name__.removesuffix('Factors')} factors", factors) for factors in LATENTS.values()),
    Codec("Gaussian factors of an array", ArrayFactors, _array_factors, lambda given: GaussianFactors(**given)),
    record("layer", Layer, ("family", "weights", "bias", "left_out", "labels", "row_labels"), _built_layer),
    record("prior", Prior, ("family", "bias")),
    Codec(
        "model", DEF, lambda one: {"layers": list(one.layers), "prior": one.prior},
        lambda given: DEF(*given["layers"], prior=given["prior"]),
    ),
    Codec("date", date, lambda one: {"text": one.isoformat()}, lambda given: date.fromisoformat(given["text"])),
    Codec("time", datetime, _time, _built_time),
    record("duration", timedelta, ("days", "seconds", "microseconds")),
    record(
        "observations", Observations,
        build=lambda given: Observations(**{**given, "labels": _tuples(given.get("labels"))}),
    ),
)  # fmt: skip
