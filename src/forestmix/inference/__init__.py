"""Algorithms, each a schedule (which variables next) and a rule (how they are updated); see docs/architecture.md."""

from forestmix.inference.base import Algorithm, Proposal
from forestmix.inference.block import BlockCoordinate
from forestmix.inference.cavi import CAVI
from forestmix.inference.damped import Damped
from forestmix.inference.forest_mixture import ForestMixture
from forestmix.inference.hogwild import Hogwild

#: Every algorithm by name; the conformance tests run over it.
ALGORITHMS: dict[str, type[Algorithm]] = {
    algorithm.name: algorithm for algorithm in (ForestMixture, CAVI, BlockCoordinate, Hogwild, Damped)
}

__all__ = [
    "ALGORITHMS",
    "CAVI",
    "Algorithm",
    "BlockCoordinate",
    "Damped",
    "ForestMixture",
    "Hogwild",
    "Proposal",
]
