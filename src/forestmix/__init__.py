"""Block-free parallel variational inference in deep exponential families.

The names below are the public interface; everything else may change.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forestmix import scales as scales
    from forestmix.bounds.auxiliary import Auxiliary, optimal_auxiliary
    from forestmix.bounds.evidence import log_evidence
    from forestmix.bounds.values import elbo, fm_bound, forest_likeness, gap
    from forestmix.builders import from_arrays, from_sklearn
    from forestmix.errors import ArgumentError, ForestmixError
    from forestmix.families import Bernoulli, Binomial, Exponential, Gaussian, Laplace, Mixed, Poisson, SpikeSlab
    from forestmix.files import load
    from forestmix.forest.covariance import LowRankPlusDiagonal
    from forestmix.forest.estimator import ForestMixtureModel as ForestMixtureModel
    from forestmix.forest.given import ForestPosterior
    from forestmix.forest.parameters import ForestDraw
    from forestmix.forest.selection import TreeSelection, select_n_trees
    from forestmix.inference import CAVI, BlockCoordinate, Damped, ForestMixture, Hogwild
    from forestmix.inference.loop import Iteration
    from forestmix.inference.status import Status, Trace
    from forestmix.model import DEF, Layer, Prior
    from forestmix.posterior.check import Check
    from forestmix.posterior.compare import compare
    from forestmix.posterior.layer import LayerPosterior
    from forestmix.posterior.loo import LeaveOneOut
    from forestmix.posterior.posterior import Posterior
    from forestmix.posterior.prediction import Prediction
    from forestmix.posterior.result import Result
    from forestmix.posterior.table import Table
    from forestmix.regression.encoder import LatentEncoder as LatentEncoder
    from forestmix.regression.estimators import BayesianClassifier as BayesianClassifier
    from forestmix.regression.estimators import BayesianRegressor as BayesianRegressor
    from forestmix.regression.fit import Fit
    from forestmix.regression.regress import regress
    from forestmix.run import infer
    from forestmix.weights import ChunkedWeights, Convolution, windows

    __version__: str
else:
    #: Where each public name lives. They are imported when first asked for, so that the command line starts at once and
    #: a program pays for what it uses.
    _HOMES = {
        "bounds.auxiliary": ("Auxiliary", "optimal_auxiliary"),
        "bounds.values": ("elbo", "fm_bound", "forest_likeness", "gap"),
        "builders": ("from_arrays", "from_sklearn"),
        "errors": ("ArgumentError", "ForestmixError"),
        "bounds.evidence": ("log_evidence",),
        "families": (
            "Bernoulli", "Binomial", "Exponential", "Gaussian", "Laplace", "Mixed", "Poisson", "SpikeSlab",
        ),
        "files": ("load",),
        "forest.covariance": ("LowRankPlusDiagonal",),
        "forest.estimator": ("ForestMixtureModel",),
        "forest.given": ("ForestPosterior",),
        "forest.parameters": ("ForestDraw",),
        "forest.selection": ("TreeSelection", "select_n_trees"),
        "inference": ("CAVI", "BlockCoordinate", "Damped", "ForestMixture", "Hogwild"),
        "model": ("DEF", "Layer", "Prior"),
        "posterior.check": ("Check",),
        "posterior.compare": ("compare",),
        "posterior.layer": ("LayerPosterior",),
        "posterior.loo": ("LeaveOneOut",),
        "posterior.posterior": ("Posterior",),
        "posterior.prediction": ("Prediction",),
        "inference.status": ("Status", "Trace"),
        "posterior.result": ("Result",),
        "posterior.table": ("Table",),
        "regression.encoder": ("LatentEncoder",),
        "regression.estimators": ("BayesianClassifier", "BayesianRegressor"),
        "regression.fit": ("Fit",),
        "regression.regress": ("regress",),
        "inference.loop": ("Iteration",),
        "run": ("infer",),
        "scales": ("scales",),
        "weights": ("ChunkedWeights", "Convolution", "windows"),
    }  # fmt: skip
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

    def __getattr__(name: str) -> object:
        if name in _HOME_OF:
            home = _import_module(f"{__name__}.{_HOME_OF[name]}")
            found = home if name == _HOME_OF[name] else getattr(home, name)
        elif name == "__version__":
            # To read the package's metadata takes half as long as to import NumPy.
            from importlib.metadata import version

            found = version(__name__)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted([*_HOME_OF, "__version__"])


#: All of them but the estimators, which need scikit-learn: ``from forestmix import *`` works without it.
__all__ = [
    "CAVI",
    "DEF",
    "ArgumentError",
    "Auxiliary",
    "Bernoulli",
    "Binomial",
    "BlockCoordinate",
    "Check",
    "ChunkedWeights",
    "Convolution",
    "Damped",
    "Exponential",
    "Fit",
    "ForestDraw",
    "ForestMixture",
    "ForestPosterior",
    "ForestmixError",
    "Gaussian",
    "Hogwild",
    "Iteration",
    "Laplace",
    "Layer",
    "LayerPosterior",
    "LeaveOneOut",
    "LowRankPlusDiagonal",
    "Mixed",
    "Poisson",
    "Posterior",
    "Prediction",
    "Prior",
    "Result",
    "SpikeSlab",
    "Status",
    "Table",
    "Trace",
    "TreeSelection",
    "compare",
    "elbo",
    "fm_bound",
    "forest_likeness",
    "from_arrays",
    "from_sklearn",
    "gap",
    "infer",
    "load",
    "log_evidence",
    "optimal_auxiliary",
    "regress",
    "scales",
    "select_n_trees",
    "windows",
]
