"""The model's log-likelihood in JAX, shared by NumPyro and blackjax; single precision, as is usual there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.problems.store import Problem


def product(problem: Problem) -> Callable[[Any], Any]:
    """Return ``y -> bias + W y``: a dense product, a convolution, or padded rows of a sparse W."""
    if problem.kernel is not None:
        return _convolution(problem)
    if problem.is_sparse:
        return _padded_rows(problem)
    W = jnp.asarray(problem.matrix, jnp.float32)
    return lambda y: problem.bias + W @ y


def log_likelihood(problem: Problem) -> Callable[[Any], Any]:
    """Return ``y -> sum_i log p(x_i | y)`` up to a constant."""
    eta_of, x = product(problem), jnp.asarray(problem.x, jnp.float32)
    partition = jnp.exp if problem.family == "poisson" else jax.nn.softplus

    def value(y: Any) -> Any:
        eta = eta_of(y)
        return jnp.sum(x * eta - partition(eta))

    return value


def _convolution(problem: Problem) -> Callable[[Any], Any]:
    """Return the blur; its kernel is symmetric, so that convolution and correlation are the same."""
    kernel = jnp.asarray(problem.kernel, jnp.float32)[None, None]

    def blur(y: Any) -> Any:
        image = y.reshape(1, 1, *problem.image_shape)
        return problem.bias + jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME").ravel()

    return blur


def _padded_rows(problem: Problem) -> Callable[[Any], Any]:
    """Return products by gathers from rows padded to one length, in place of JAX's experimental sparse formats."""
    W = problem.matrix
    lengths = np.diff(W.indptr)
    place = np.arange(W.nnz) - np.repeat(W.indptr[:-1], lengths)
    row = np.repeat(np.arange(W.shape[0]), lengths)
    indices = np.zeros((W.shape[0], lengths.max()), np.int32)
    values = np.zeros(indices.shape, np.float32)
    indices[row, place], values[row, place] = W.indices, W.data
    indices, values = jnp.asarray(indices), jnp.asarray(values)
    return lambda y: problem.bias + jnp.sum(values * y[indices], axis=1)
