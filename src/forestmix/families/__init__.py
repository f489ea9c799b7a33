"""Families of conditional distributions: ``p(y | eta) = exp{ g(y) + t(y) eta - a(eta) }``."""

from forestmix.families.base import ExpectedLogPartition, Family, RowExpectations
from forestmix.families.gaussian import Gaussian

#: Every family by name; the conformance tests run over it.
FAMILIES: dict[str, type[Family]] = {family.name: family for family in (Gaussian,)}

__all__ = ["FAMILIES", "ExpectedLogPartition", "Family", "Gaussian", "RowExpectations"]
