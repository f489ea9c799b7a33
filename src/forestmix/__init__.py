"""Block-free parallel variational inference in deep exponential families.

The names below are the public interface; everything else may change.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forestmix import scales as scales
    from forestmix.bounds.auxiliary import Auxiliary as Auxiliary
    from forestmix.bounds.auxiliary import optimal_auxiliary as optimal_auxiliary
    from forestmix.bounds.evidence import log_evidence as log_evidence
    from forestmix.bounds.values import elbo as elbo
    from forestmix.bounds.values import fm_bound as fm_bound
    from forestmix.bounds.values import forest_likeness as forest_likeness
    from forestmix.bounds.values import gap as gap
    from forestmix.builders import from_arrays as from_arrays
    from forestmix.builders import from_sklearn as from_sklearn
    from forestmix.errors import ArgumentError as ArgumentError
    from forestmix.errors import ForestmixError as ForestmixError
    from forestmix.families import Bernoulli as Bernoulli
    from forestmix.families import Binomial as Binomial
    from forestmix.families import Exponential as Exponential
    from forestmix.families import Gaussian as Gaussian
    from forestmix.families import Laplace as Laplace
    from forestmix.families import Mixed as Mixed
    from forestmix.families import Poisson as Poisson
    from forestmix.families import SpikeSlab as SpikeSlab
    from forestmix.files import load as load
    from forestmix.forest.covariance import LowRankPlusDiagonal as LowRankPlusDiagonal
    from forestmix.forest.estimator import ForestMixtureModel as ForestMixtureModel
    from forestmix.forest.given import ForestPosterior as ForestPosterior
    from forestmix.forest.parameters import ForestDraw as ForestDraw
    from forestmix.forest.selection import TreeSelection as TreeSelection
    from forestmix.forest.selection import select_n_trees as select_n_trees
    from forestmix.inference import CAVI as CAVI
    from forestmix.inference import BlockCoordinate as BlockCoordinate
    from forestmix.inference import Damped as Damped
    from forestmix.inference import ForestMixture as ForestMixture
    from forestmix.inference import Hogwild as Hogwild
    from forestmix.inference.loop import Iteration as Iteration
    from forestmix.inference.status import Status as Status
    from forestmix.inference.status import Trace as Trace
    from forestmix.model import DEF as DEF
    from forestmix.model import Layer as Layer
    from forestmix.model import Prior as Prior
    from forestmix.posterior.check import Check as Check
    from forestmix.posterior.compare import compare as compare
    from forestmix.posterior.layer import LayerPosterior as LayerPosterior
    from forestmix.posterior.loo import LeaveOneOut as LeaveOneOut
    from forestmix.posterior.posterior import Posterior as Posterior
    from forestmix.posterior.prediction import Prediction as Prediction
    from forestmix.posterior.result import Result as Result
    from forestmix.posterior.table import Table as Table
    from forestmix.regression.encoder import LatentEncoder as LatentEncoder
    from forestmix.regression.estimators import BayesianClassifier as BayesianClassifier
    from forestmix.regression.estimators import BayesianRegressor as BayesianRegressor
    from forestmix.regression.fit import Fit as Fit
    from forestmix.regression.regress import regress as regress
    from forestmix.run import infer as infer
    from forestmix.weights import ChunkedWeights as ChunkedWeights
    from forestmix.weights import Convolution as Convolution
    from forestmix.weights import windows as windows

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
    #: All of them but the estimators, which need scikit-learn: ``from forestmix import *`` works without it.
    _ESTIMATORS = {"BayesianClassifier", "BayesianRegressor", "ForestMixtureModel", "LatentEncoder"}
    __all__ = sorted(set(_HOME_OF) - _ESTIMATORS)

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
