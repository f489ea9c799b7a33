"""Estimators on X in chunks, of Dask or of a table: it stays in chunks of rows, vectors of rows are in memory."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.regression.chunked_fit import detached_posterior
from forestmix.regression.linear import Linear
from forestmix.regression.named_tables import blocks_of_table, is_table, training_table
from forestmix.weights.dask_chunks import is_dask


def is_chunked(X: Any, y: Any = None) -> bool:
    """Return whether X is in chunks: an array or a frame of Dask, Parquet files, or a list of delayed frames."""
    return is_dask(X) or is_table(X, y)


def in_memory(values: Any) -> Any:
    """Return a vector of rows as an array, computed if it is Dask's."""
    return np.asarray(values.compute()) if is_dask(values) else values


def training_rows(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Array, Array | None]:
    """Return X as a Dask array of float64 in chunks of whole rows, and y and the weights as arrays, all checked."""
    names: list[str] | None
    if is_table(X, y):
        array, names, y, sample_weight = training_table(X, y, sample_weight)
    else:
        names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        array = X.to_dask_array(lengths=True) if names is not None else X
    if getattr(array, "ndim", 0) != 2:
        raise ArgumentError(f"X must have two axes, rows and columns; got {getattr(array, 'ndim', 0)}.")
    if np.isnan(array.shape[0]):
        array = array.compute_chunk_sizes()
    array = array.rechunk({1: -1}).astype(np.float64)
    estimator.n_features_in_ = array.shape[1]
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_  # of an earlier fit
    y, n = np.asarray(in_memory(y)), array.shape[0]
    weights = None if sample_weight is None else np.asarray(in_memory(sample_weight), np.float64)
    for name, values in (("y", y), ("sample_weight", weights)):
        if values is not None and values.shape != (n,):
            raise ArgumentError(f"{name} must have one entry for each of the {n} rows of X; got shape {values.shape}.")
    if weights is not None and not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ArgumentError("sample_weight must be finite, 0 or more, and not all 0.")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ArgumentError("y must be finite; it has NaN or infinity.")
    return array, y, weights


def by_chunks(
    estimator: Any, X: Any, method: str, shape: tuple[int, ...] = (), take: Any = None, **options: Any
) -> Any:
    """Return what a method gives for the rows of X, as a Dask array (n, *shape); ``take``: which of several results."""
    import dask
    import dask.array

    small = _without_rows(estimator)
    if is_table(X) or hasattr(X, "columns"):
        blocks = blocks_of_table(estimator, X)
        counts = [np.nan] * len(blocks)
        vars(small).pop("feature_names_in_", None)  # the blocks are arrays of these columns
    else:
        whole = X.rechunk({1: -1})
        blocks, counts = list(whole.to_delayed()[:, 0]), list(whole.chunks[0])
    called = dask.delayed(_called, pure=False, traverse=False)
    light = dask.delayed(small, pure=False, traverse=False)
    kind = estimator.classes_.dtype if method == "predict" and hasattr(estimator, "classes_") else np.float64
    nothing = np.empty((0, *shape), kind)
    parts = [
        dask.array.from_delayed(called(light, block, method, take, options, nothing), (count, *shape), dtype=kind)
        for block, count in zip(blocks, counts, strict=True)
    ]
    return dask.array.concatenate(parts)


def _called(estimator: Any, block: Any, method: str, take: Any, options: dict[str, Any], nothing: Array) -> Array:
    if not len(block):
        return nothing
    found = getattr(estimator, method)(block, **options)
    return np.asarray(found if take is None else found[take])


def _without_rows(estimator: Any) -> Any:
    """Return a copy of an estimator that predicts without the rows that it was fitted to."""
    chosen = copy(estimator)
    for name in ("posterior_", "posteriors_"):
        vars(chosen).pop(name, None)
    if hasattr(chosen, "_linear"):
        chosen._linear = _light(chosen._linear)
    if hasattr(chosen, "_linears"):
        chosen._linears = [_light(one) for one in chosen._linears]
    return chosen


def _light(linear: Linear) -> Linear:
    posterior = detached_posterior(linear.solution.posterior)
    return linear._replace(solution=linear.solution._replace(posterior=posterior))
