"""Block-free parallel variational inference in deep exponential families.

The names in ``__init__.pyi`` are the public interface; everything else may change.
"""

from importlib import import_module as _import_module
from pathlib import Path as _Path

#: Where each public name lives, as the stub says for type checkers: ``from home import name as name``. They are
#: imported when first asked for, so that the command line starts at once and a program pays for what it uses.
_STUB = _Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_WORDS = [line.split() for line in _STUB.splitlines() if line.startswith("from ")]
_HOME_OF = {name: home for _, home, _, name, *_ in _WORDS}
#: All of them but the estimators, which need scikit-learn: ``from forestmix import *`` works without it.
_ESTIMATORS = {"BayesianClassifier", "BayesianRegressor", "ForestMixtureModel", "LatentEncoder"}
__all__ = sorted(set(_HOME_OF) - _ESTIMATORS)


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        home = _HOME_OF[name]
        found = _import_module(f"{home}.{name}") if home == __name__ else getattr(_import_module(home), name)
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
