"""A model's latents as features: a transformer of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.checks import flag
from forestmix.errors import ArgumentError, MissingExtraError
from forestmix.families import Gaussian
from forestmix.model import DEF
from forestmix.run import infer
from forestmix.tables import label_text

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError("LatentEncoder needs scikit-learn: pip install 'forestmix[sklearn]'") from error


class LatentEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Encode observations by the posterior means of a model's latents; NaN marks a missing entry.

    Nothing is learned from X: ``fit`` checks that its columns are the model's rows. A sparse X is made dense, since its
    zeros are observations too.

    Args:
        model: a ``DEF``, or a function that makes one for a given number of columns.
        return_sd: whether the standard deviations of q follow the means as further features.
        tol: as for ``infer``.

    Attributes:
        model_: the model.

    """

    def __init__(self, model: Any = None, *, return_sd: bool = False, tol: float = 1e-6) -> None:
        self.model = model
        self.return_sd = return_sd
        self.tol = tol

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        tags.requires_fit = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check that the model is one of X's columns; ``y`` is ignored."""
        flag("return_sd", self.return_sd)
        X = self._numbers(X, reset=True)
        model = self.model(X.shape[1]) if callable(self.model) else self.model
        if not isinstance(model, DEF):
            raise ArgumentError(
                f"model must be a forestmix.DEF, or a function from a number of columns to one; got {model!r}."
            )
        if model.n_observed != X.shape[1]:
            raise ArgumentError(f"X must have {model.n_observed} columns, the rows of the model; got {X.shape[1]}.")
        self.model_ = model
        self._n_features_out = model.latent_sizes[0] * (2 if self.return_sd else 1)
        return self

    def transform(self, X: Any) -> Array:
        """Return the posterior means of the lowest latents, (N, m), with their sds beside them if asked for."""
        check_is_fitted(self)
        found = infer(self.model_, self._numbers(X, reset=False), tol=self.tol).layers[0]
        mean = np.asarray(found.mean)
        return np.hstack([mean, np.broadcast_to(found.sd, mean.shape)]) if self.return_sd else mean

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the features: those of the model's latents, else ``latentencoder0`` and so on."""
        labels = None if not hasattr(self, "model_") else self.model_.layers[0].labels
        if labels is None:
            return super().get_feature_names_out(input_features)
        names = list(map(label_text, labels))
        return np.asarray([*names, *(f"sd({name})" for name in names if self.return_sd)], object)

    def inverse_transform(self, Z: Any) -> Array:
        """Return the expected observations given latents, (N, n)."""
        check_is_fitted(self)
        layer = self.model_.layers[0]
        latents = np.asarray(Z, np.float64)[:, : layer.n_parents]
        eta = layer.weights.forward(latents.astype(layer.dtype)) + layer.bias
        return eta if isinstance(layer.family, Gaussian) else layer.family.log_partition_slope(eta)

    def _numbers(self, X: Any, *, reset: bool) -> Array:
        options: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "accept_sparse": "csr"}
        found: Any = validate_data(self, X, reset=reset, **options)
        sparse = bool(scipy.sparse.issparse(found))
        return found.toarray() if sparse else found
