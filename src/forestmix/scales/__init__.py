"""Unknown scales: a distribution in the place of a standard deviation (docs/scales.md)."""

from forestmix.scales.base import Scale
from forestmix.scales.exponential import Exponential
from forestmix.scales.flat import Flat
from forestmix.scales.from_data import FromData
from forestmix.scales.half_normal import HalfNormal
from forestmix.scales.half_student_t import HalfCauchy, HalfStudentT
from forestmix.scales.inverse_gamma import InverseGamma
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
