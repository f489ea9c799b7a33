"""Codecs of families, of unknown scales, and of the factors of latents."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from forestmix import scales
from forestmix.arrays import host
from forestmix.families import Bernoulli, Binomial, Exponential, Gaussian, Laplace, Mixed, Poisson, SpikeSlab
from forestmix.families.weighted import Weighted, WeightedGaussian
from forestmix.files.codec import Codec, record, state
from forestmix.latents import LATENTS, ArrayFactors, GaussianFactors


def _case_weights(kind: str, type_: type[Weighted] | type[WeightedGaussian]) -> Codec:
    return Codec(
        kind, type_, lambda one: {"family": one.unweighted, "weight": one.weight},
        lambda given: type_(given["family"], given["weight"]),
    )  # fmt: skip


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

CODECS = (
    *(record(f"scale {one.__name__}", one, one.parameters) for one in SCALES),
    record("places of scales", scales.Places, ("unknowns", "which", "known")),
    state("Gaussian", Gaussian, ("sd_left_out", "places", "sd")),
    state("Bernoulli", Bernoulli, ()),
    state("Poisson", Poisson, ()),
    state("Binomial", Binomial, ("trials",)),
    *(state(prior.__name__, prior, prior.parameters) for prior in (Exponential, Laplace, SpikeSlab)),
    _case_weights("case weights of rows", Weighted),
    _case_weights("case weights of Gaussian rows", WeightedGaussian),
    record("Mixed", Mixed, ("families", "which")),
    *map(_factors, LATENTS.values()),
    Codec("Gaussian factors of an array", ArrayFactors, _array_factors, lambda given: GaussianFactors(**given)),
)


def dtype_of(name: str) -> np.dtype:
    """Return float32 or float64 by its name."""
    if name not in ("float32", "float64"):
        raise ValueError(f"precision {name!r}")
    return np.dtype(name)
