"""Families of conditional distributions: ``p(y | eta) = exp{ g(y) + t(y) eta - a(eta) }``."""

from forestmix.families.base import ExpectedLogPartition, Family, RowExpectations
from forestmix.families.bernoulli import Bernoulli
from forestmix.families.binomial import Binomial
from forestmix.families.gaussian import Gaussian
from forestmix.families.mixed import Mixed
from forestmix.families.poisson import Poisson
from forestmix.families.prior import Exponential, Laplace, PriorFamily, SpikeSlab

#: Every family by name; the conformance tests run over it. Mixed is made of these.
FAMILIES: dict[str, type[Family]] = {family.name: family for family in (Gaussian, Bernoulli, Binomial, Poisson)}

__all__ = [
    "FAMILIES",
    "Bernoulli",
    "Binomial",
    "ExpectedLogPartition",
    "Exponential",
    "Family",
    "Gaussian",
    "Laplace",
    "Mixed",
    "Poisson",
    "PriorFamily",
    "RowExpectations",
    "SpikeSlab",
]
