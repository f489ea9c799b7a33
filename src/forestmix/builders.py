"""Models from arrays, and from estimators of scikit-learn that were fitted already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from forestmix.arrays import numbers
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.model import DEF, Layer, Prior


def from_arrays(weights: Any, biases: Any = None, families: Any = None, prior: Prior | None = None) -> DEF:
    """Return a model from one array for each layer, from the observed one up.

    Args:
        weights: a list ``[W_0, W_1, ...]``, or one W that is no list; dense, sparse or ``Weights``.
        biases: one entry for each layer, a number or one for each row; 0 when left out. One entry may stand alone.
        families: one family for each layer; a number, or one for each row, is the sd of a Gaussian; ``Gaussian(1.0)``
            when left out. One entry may stand alone.
        prior: prior of the topmost latents; N(0, 1) when left out.

    """
    layers = list(weights) if isinstance(weights, list | tuple) else [weights]
    if not layers:
        raise ArgumentError("weights must hold at least one W; got none.")
    count = len(layers)
    parts = zip(layers, _each("biases", biases, count, 0.0), _each("families", families, count, 1.0), strict=True)
    return DEF(*(Layer(_family(family), W, bias) for W, bias, family in parts), prior=prior)


def from_sklearn(estimator: Any) -> DEF:
    """Return the model of a fitted ``FactorAnalysis`` or ``PCA`` of scikit-learn, with its posterior within reach.

    Factor analysis is ``x = mean + components^T y + noise`` with ``y ~ N(0, 1)``. PCA is taken as probabilistic: each
    component is scaled by the square root of its variance less the noise.
    """
    components = _fitted(estimator, "components_")
    if components.ndim != 2:
        raise ArgumentError(f"estimator must have components of shape (k, n); got {components.shape}.")
    noise = np.asarray(_fitted(estimator, "noise_variance_"), np.float64)
    if (noise <= 0).any():
        raise ArgumentError(
            f"estimator must have a noise variance above 0, so fewer components than features; got {noise.min()}."
        )
    W = components.T.astype(np.float64)
    if hasattr(estimator, "explained_variance_"):
        signal = np.maximum(_fitted(estimator, "explained_variance_") - noise, 0.0)
        W = W * np.sqrt(signal)
    return DEF(Layer(Gaussian(np.sqrt(noise)), W, _fitted(estimator, "mean_")))


def _fitted(estimator: Any, name: str) -> Any:
    value = getattr(estimator, name, None)
    if value is None:
        raise ArgumentError(
            f"estimator must be a fitted FactorAnalysis or PCA of scikit-learn; {type(estimator).__name__} "
            f"has no {name}."
        )
    return numbers(name, value)


def _each(name: str, given: Any, count: int, default: Any) -> Sequence[Any]:
    """Return one entry for each layer; for a single one a list may be its entries, as of one bias for each row."""
    if not isinstance(given, list | tuple) or (count == 1 and len(given) != 1):
        return [default if given is None else given] * count
    if len(given) != count:
        raise ArgumentError(f"{name} must have one entry for each of the {count} layers; got {len(given)}.")
    return given


def _family(given: Any) -> Any:
    return Gaussian(given) if isinstance(given, int | float | np.ndarray | np.number | list | tuple) else given
