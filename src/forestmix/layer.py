"""A layer: the conditional of its variables given the latents above them, with the weights of cases."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array, finite, fits, in_precision, numbers, per_variable
from forestmix.errors import ArgumentError
from forestmix.families import Family
from forestmix.families.base import alike
from forestmix.families.prior import row_family
from forestmix.tables import labelled_weights, row_labels
from forestmix.weights import Weights, as_weights


class Layer:
    """The conditional ``p(y_i | parents)`` of a layer: ``eta_i = b_i + w_i . parents`` (paper, section 4).

    Args:
        family: distribution of each row given ``eta_i``, e.g. ``Gaussian(sd=1.0)``.
        W: weights, n rows by m parents: a dense array, any ``scipy.sparse`` format, or a ``Weights`` object.
            Their precision (float32 or float64) is the precision of everything computed with the layer. The columns of
            a data frame are the ``labels`` of the parents, which tables and files show; categories that are words
            have an indicator, and a parent, for each level. The index of a frame of pandas has the labels of the rows,
            by which data with labels are put in order.
        b: bias, one number or one for each row.
        case_weights: one for each row of the data, (n,), or for each row and observation, (N, n): ``w_i`` multiplies
            the log-likelihood of row i, so that weight 2 is the row twice, and a row of weight 0 is left out, as one
            with a missing entry is. 1 when left out.

    """

    def __init__(self, family: Family, W: Any, b: npt.ArrayLike = 0.0, case_weights: Any = None) -> None:
        self.row_labels = row_labels(W)
        W, self.labels = labelled_weights(W)
        self.weights: Weights = as_weights(W)
        self.family = row_family("family", family).astype(self.dtype)
        self.family.check_size(self.size, "rows of W")
        self.left_out: Array | None = None
        if case_weights is not None:
            weight = _checked_case_weights(case_weights, self.size)
            self.left_out = weight == 0
            self.family = self.family.weighted(np.where(self.left_out, 1.0, weight))
        self.bias = in_precision("b", fits("b", per_variable("b", b), self.size, "rows of W"), self.dtype)

    @property
    def size(self) -> int:
        """Number of variables in this layer: rows of W."""
        return self.weights.shape[0]

    @property
    def n_parents(self) -> int:
        """Number of variables in the layer above: columns of W."""
        return self.weights.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Precision of the weights."""
        return self.weights.dtype

    @property
    def case_weights(self) -> Array | None:
        """The weight of each row, (n,), or of each row and observation, (N, n); ``None`` where all are 1."""
        return None if self.left_out is None else np.where(self.left_out, 0.0, self.family.weight)

    def left_out_of(self, shape: tuple[int, ...]) -> Any:
        """Return which entries of data of this shape have weight 0; each row of weights has its own."""
        if self.left_out is None:
            return False
        if self.left_out.ndim == 2 and self.left_out.shape != shape:
            raise ArgumentError(
                f"x must have shape {self.left_out.shape}, that of case_weights; got {shape}. Case weights of shape "
                f"({self.size},) serve any number of observations."
            )
        return self.left_out

    def take_observations(self, keep: Array) -> Layer:
        """Return the layer of the chosen observations, itself unless each has case weights of its own."""
        if not self.family.differs_by_observation:
            return self
        chosen = copy(self)
        chosen.family = self.family.take_observations(keep)
        if self.left_out is not None:
            chosen.left_out = alike(self.left_out[keep])
        return chosen

    def with_family(self, family: Family) -> Layer:
        """Return the layer with another family of rows, and the same weights and bias."""
        chosen = copy(self)
        chosen.family = family.astype(self.dtype)
        return chosen

    def with_weights(self, W: Any) -> Layer:
        """Return the layer with its weights in another form, of the same shape, and their precision."""
        chosen = copy(self)
        chosen.weights = as_weights(W)
        chosen.family, chosen.bias = self.family.astype(chosen.dtype), self.bias.astype(chosen.dtype)
        return chosen

    def __repr__(self) -> str:
        return f"Layer({self.family!r}, {self.weights!r})"


def _checked_case_weights(given: Any, size: int) -> Array:
    """Return case weights, (n,) or (N, n), checked."""
    weight = finite("case_weights", numbers("case_weights", given).astype(np.float64))
    if weight.ndim not in (1, 2) or weight.shape[-1] != size or not weight.size:
        raise ArgumentError(
            f"case_weights must have one entry for each of the {size} rows of W, or one for each observation and row, "
            f"(N, {size}); got shape {weight.shape}."
        )
    if (weight < 0).any():
        raise ArgumentError(f"case_weights must not be negative; got {weight.min()}.")
    # One row of weights serves any number of observations.
    return weight[0] if weight.ndim == 2 and len(weight) == 1 else weight
