"""What scikit-learn asks of an estimator, without importing it: parameters, tags, feature names, fitted or not."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Self

import numpy as np
import scipy

from forestmix.arrays import Array, in_precision
from forestmix.checks import one_of
from forestmix.errors import ArgumentError, unknown_name
from forestmix.forest.parameters import check_size
from forestmix.tables import REAL, plain_array


class Estimator:
    """The parts of an estimator that do not depend on what it learns.

    Parameters are the arguments of ``__init__``, kept as attributes of the same names and checked by ``fit``.
    """

    n_features_in_: int

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        for name, value in params.items():
            if name not in self._parameter_names():
                raise unknown_name(f"A parameter of {type(self).__name__}", name, self._parameter_names())
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        signature = inspect.signature(type(self).__init__).parameters
        changed = (
            f"{name}={getattr(self, name)!r}"
            for name in signature
            if name != "self" and repr(getattr(self, name)) != repr(signature[name].default)
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn wants to know: a transformer that takes NaN and keeps float32."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=["float64", "float32"]),
            input_tags=InputTags(allow_nan=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        raise NotImplementedError

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns that ``transform`` gives: the class in lower case, and a number."""
        self._check_fitted()
        name = type(self).__name__.lower()
        return np.array([f"{name}{tree}" for tree in range(self._n_columns_out())], dtype=object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what ``transform`` returns: "default" for arrays, or "pandas"."""
        if transform is not None:
            self._output = one_of("transform", transform, ("default", "pandas"))
        return self

    def _n_columns_out(self) -> int:
        raise NotImplementedError

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            message = f"This {type(self).__name__} is not fitted yet; call fit(X) before this method."
            raise _not_fitted()(message)

    def _named(self, values: Array, X: Any) -> Any:
        """Return the output of ``transform`` in the form that was chosen."""
        output = getattr(self, "_output", None) or _global_output()
        if output != "pandas":
            return values
        import pandas

        return pandas.DataFrame(values, columns=self.get_feature_names_out(), index=getattr(X, "index", None))

    def _numbers(self, X: Any, *, reset: bool, one: bool = False) -> Array:
        """Return X as a float array (N, n), after the checks that scikit-learn's own estimators make.

        ``one`` lets a vector stand for one observation.
        """
        if scipy.sparse.issparse(X):
            raise NotNumbersError("X must be a dense array; got a sparse matrix. X.toarray() makes it dense.")
        names = _column_names(X)
        array = _as_float(X)
        array = array[None] if one and array.ndim == 1 else array
        if array.ndim != 2:
            raise ArgumentError(
                f"X must have two axes, observations by variables; got {array.ndim}. Reshape your data with "
                "X.reshape(1, -1) if it is one observation or X.reshape(-1, 1) if it is one variable."
            )
        N, n = array.shape
        if N == 0 or n == 0:
            kind, found = ("sample(s)", N) if N == 0 else ("feature(s)", n)
            raise ArgumentError(
                f"Found array with {found} {kind} (shape={array.shape}) while a minimum of 1 is required."
            )
        if np.isinf(array).any():
            raise ArgumentError("X must be finite, or NaN for a missing entry; got infinity.")
        check_size("X", array)
        self._check_features(n, names, reset)
        return array

    def _check_features(self, n: int, names: Array | None, reset: bool) -> None:
        if reset:
            self.n_features_in_ = n
            if names is not None:
                self.feature_names_in_ = names
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            return
        known = getattr(self, "feature_names_in_", None)
        if known is not None and names is not None and not np.array_equal(known, names):
            raise ArgumentError(_name_difference(known, names))
        if n != self.n_features_in_:
            raise ArgumentError(
                f"X has {n} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input."
            )


class NotNumbersError(ArgumentError, TypeError):
    """X is no array of numbers at all, which scikit-learn has as a ``TypeError``."""


def _as_float(X: Any) -> Array:
    """Return X as float32 or float64; numbers in an array of objects are accepted, as scikit-learn does."""
    try:
        array = plain_array("X", X, missing=True)
        if array.dtype.kind == "c":
            raise ArgumentError("Complex data not supported: X must hold real numbers.")
        if array.dtype == np.float32:
            return array
        return in_precision("X", array, np.float64) if array.dtype.kind in REAL else array.astype(np.float64)
    except ArgumentError:
        raise
    except (ValueError, OverflowError) as error:
        raise ArgumentError(f"X must hold real numbers; {error}.") from error
    except TypeError as error:
        raise NotNumbersError(f"X must hold real numbers; {error}.") from error


def _column_names(X: Any) -> Array | None:
    columns = getattr(X, "columns", None)
    if columns is None:
        return None
    names = np.asarray(columns, dtype=object)
    return names if len(names) and all(isinstance(name, str) for name in names) else None


def _name_difference(known: Array, names: Array) -> str:
    """Return scikit-learn's own words, which its users search for."""
    new, gone = sorted(set(names) - set(known)), sorted(set(known) - set(names))
    lines = ["The feature names should match those that were passed during fit."]
    if new:
        lines += ["Feature names unseen at fit time:", *(f"- {name}" for name in new[:5])]
    if gone:
        lines += ["Feature names seen at fit time, yet now missing:", *(f"- {name}" for name in gone[:5])]
    if not new and not gone:
        lines.append("Feature names must be in the same order as they were in fit.")
    return "\n".join(lines) + "\n"


def _not_fitted() -> type[ArgumentError]:
    """Return the error for an estimator that is not fitted; scikit-learn's own too, where it is in use."""
    if sys.modules.get("sklearn") is None:
        return ArgumentError
    from sklearn.exceptions import NotFittedError

    return type("NotFittedError", (ArgumentError, NotFittedError), {})


def _global_output() -> str:
    """Return the output that ``sklearn.set_config(transform_output=...)`` asks for."""
    if sys.modules.get("sklearn") is None:
        return "default"
    from sklearn import get_config

    return str(get_config().get("transform_output", "default"))
