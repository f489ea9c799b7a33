"""Block-free parallel variational inference in deep exponential families.

The names below are the public interface; everything else may change.
"""

from importlib.metadata import version

from forestmix.auxiliary import Auxiliary, optimal_auxiliary
from forestmix.bounds import elbo, fm_bound, forest_likeness, gap
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.evidence import log_evidence
from forestmix.families import Bernoulli, Binomial, Gaussian, Mixed, Poisson
from forestmix.forest import (
    ForestDraw,
    ForestMixtureModel,
    ForestPosterior,
    LowRankPlusDiagonal,
    TreeSelection,
    select_n_trees,
)
from forestmix.inference import CAVI, BlockCoordinate, Damped, ForestMixture, Hogwild
from forestmix.model import DEF, Layer, Prior
from forestmix.prediction import Prediction
from forestmix.result import Result, Status, Trace
from forestmix.run import Iteration, infer
from forestmix.weights import Convolution, windows

__version__ = version("forestmix")

__all__ = [
    "CAVI",
    "DEF",
    "ArgumentError",
    "Auxiliary",
    "Bernoulli",
    "Binomial",
    "BlockCoordinate",
    "Convolution",
    "Damped",
    "ForestDraw",
    "ForestMixture",
    "ForestMixtureModel",
    "ForestPosterior",
    "ForestmixError",
    "Gaussian",
    "Hogwild",
    "Iteration",
    "Layer",
    "LowRankPlusDiagonal",
    "Mixed",
    "Poisson",
    "Prediction",
    "Prior",
    "Result",
    "Status",
    "Trace",
    "TreeSelection",
    "elbo",
    "fm_bound",
    "forest_likeness",
    "gap",
    "infer",
    "log_evidence",
    "optimal_auxiliary",
    "select_n_trees",
    "windows",
]
