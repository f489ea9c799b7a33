"""What ``ForestMixtureModel`` takes from scikit-learn, with tables read and errors worded as elsewhere in forestmix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import scipy

from forestmix.arrays import Array, in_precision, working_dtype
from forestmix.checks import one_of
from forestmix.errors import ArgumentError, MissingExtraError, unknown_name
from forestmix.forest.parameters import check_size
from forestmix.tables import REAL, plain_array

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.exceptions import NotFittedError as NotFitted
    from sklearn.utils.validation import check_array, validate_data
except ImportError as error:
    raise MissingExtraError("ForestMixtureModel needs scikit-learn: pip install 'forestmix[forest]'") from error


class NotNumbersError(ArgumentError, TypeError):
    """X is no array of numbers at all, which scikit-learn has as a ``TypeError``."""


class NotFittedError(ArgumentError, NotFitted):
    """A method was called that needs a fitted model; scikit-learn's error of this name too."""


class Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer that takes NaN and masked entries as missing, and keeps float32."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_n_features_out")

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        known = self.get_params()
        for name in params:
            if name not in known:
                raise unknown_name(f"A parameter of {type(self).__name__}", name, known)
        return super().set_params(**params)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what ``transform`` returns: "default" for arrays, "pandas" or "polars"."""
        if transform is not None:
            one_of("transform", transform, ("default", "pandas", "polars"))
        return super().set_output(transform=transform)

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit(X) before this method.")

    def _numbers(self, X: Any, *, reset: bool, one: bool = False) -> Array:
        """Return X as an array (N, n) of float32 or float64, with NaN where an entry is missing.

        ``reset`` keeps the number and the names of the columns; without it the model must be fitted, and they must be
        those that were kept. ``one`` lets a vector stand for one observation.
        """
        if not reset:
            self._check_fitted()
        with argument_errors("X must hold real numbers, observations by variables; "):
            array = X
            if not scipy.sparse.issparse(X):
                # scikit-learn would overlook the mask of a masked array.
                array = plain_array("X", X, missing=True)
                array = array[None] if one and array.ndim == 1 else array
                if array.dtype.kind in REAL:
                    array = in_precision("X", array, working_dtype("X", array.dtype))
            array = check_array(array, dtype=(np.float64, np.float32), ensure_all_finite=False, estimator=self)
        if np.isinf(array).any():
            raise ArgumentError("X must be finite, or NaN for a missing entry; got infinity.")
        check_size("X", array)
        with argument_errors():
            names = getattr(X, "columns", ())
            named = len(names) > 0 and all(isinstance(name, str) for name in names)
            validate_data(self, X if named else array, reset=reset, skip_check_array=True)
        return np.asarray(array)


@contextmanager
def argument_errors(right: str = "") -> Iterator[None]:
    """Raise what scikit-learn or NumPy finds wrong as an ``ArgumentError`` that says first what would be right."""
    try:
        yield
    except ArgumentError:
        raise
    except TypeError as error:
        raise NotNumbersError(f"{right}{error}") from error
    except (ValueError, OverflowError) as error:
        raise ArgumentError(f"{right}{error}") from error
