"""Block-free parallel variational inference in deep exponential families.

The names below are the public interface; everything else may change.
"""

from typing import TYPE_CHECKING

from forestmix.auxiliary import Auxiliary, optimal_auxiliary
from forestmix.bounds import elbo, fm_bound, forest_likeness, gap
from forestmix.builders import from_arrays, from_sklearn
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.evidence import log_evidence
from forestmix.families import Bernoulli, Binomial, Exponential, Gaussian, Laplace, Mixed, Poisson, SpikeSlab
from forestmix.inference import CAVI, BlockCoordinate, Damped, ForestMixture, Hogwild
from forestmix.layer_posterior import LayerPosterior
from forestmix.model import DEF, Layer, Prior
from forestmix.prediction import Prediction
from forestmix.result import Result, Status, Trace
from forestmix.run import Iteration, infer
from forestmix.weights import Convolution, windows

if TYPE_CHECKING:
    from forestmix.forest import (
        ForestDraw,
        ForestMixtureModel,
        ForestPosterior,
        LowRankPlusDiagonal,
        TreeSelection,
        select_n_trees,
    )

    __version__: str
else:
    #: Imported when first asked for: few programs use both forests and models that are given.
    _OF_FORESTS = (
        "ForestDraw", "ForestMixtureModel", "ForestPosterior", "LowRankPlusDiagonal", "TreeSelection", "select_n_trees",
    )  # fmt: skip

    def __getattr__(name: str) -> object:
        if name in _OF_FORESTS:
            from forestmix import forest

            return getattr(forest, name)
        # To read the package's metadata takes half as long as to import NumPy.
        if name == "__version__":
            from importlib.metadata import version

            return version(__name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


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
    "Exponential",
    "ForestDraw",
    "ForestMixture",
    "ForestMixtureModel",
    "ForestPosterior",
    "ForestmixError",
    "Gaussian",
    "Hogwild",
    "Iteration",
    "Laplace",
    "Layer",
    "LayerPosterior",
    "LowRankPlusDiagonal",
    "Mixed",
    "Poisson",
    "Prediction",
    "Prior",
    "Result",
    "SpikeSlab",
    "Status",
    "Trace",
    "TreeSelection",
    "elbo",
    "fm_bound",
    "forest_likeness",
    "from_arrays",
    "from_sklearn",
    "gap",
    "infer",
    "log_evidence",
    "optimal_auxiliary",
    "select_n_trees",
    "windows",
]
