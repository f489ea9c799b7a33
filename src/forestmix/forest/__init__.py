"""Forest mixture models: each observed variable has one unknown parent among the latents (paper, section 3.1)."""

from forestmix.forest.covariance import LowRankPlusDiagonal
from forestmix.forest.estimator import ForestMixtureModel
from forestmix.forest.given import ForestPosterior
from forestmix.forest.parameters import ForestDraw
from forestmix.forest.selection import TreeSelection, select_n_trees

__all__ = [
    "ForestDraw",
    "ForestMixtureModel",
    "ForestPosterior",
    "LowRankPlusDiagonal",
    "TreeSelection",
    "select_n_trees",
]
