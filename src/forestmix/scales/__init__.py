"""Unknown scales: a distribution in the place of a standard deviation (docs/scales.md)."""

from forestmix.scales.base import Scale
from forestmix.scales.distributions import (
    Exponential,
    Flat,
    FromData,
    HalfCauchy,
    HalfNormal,
    HalfStudentT,
    InverseGamma,
)
from forestmix.scales.places import Places, places_of, values_of

__all__ = [
    "Exponential",
    "Flat",
    "FromData",
    "HalfCauchy",
    "HalfNormal",
    "HalfStudentT",
    "InverseGamma",
    "Places",
    "Scale",
    "places_of",
    "values_of",
]
