"""Predictions for new rows: known levels of groups by their effects, new ones by the group's distribution.

A new level is one more latent with the group's prior: mean 0 and, in each component of the posterior, the variance
``tau^2`` of that component's scale, independent of all others. So new rows are rows of a model with more columns, and
their predictive distribution is found as for any rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.families import Gaussian
from forestmix.model import Layer
from forestmix.posterior.component import Component
from forestmix.posterior.covariance import Covariance
from forestmix.posterior.marginals import Mixture
from forestmix.posterior.prediction import predict
from forestmix.regression.cases import Extra, extra_values, needed_columns
from forestmix.regression.formula import Rows
from forestmix.regression.frames import column_names, plain_frame, row_labels
from forestmix.regression.likelihood import family_of
from forestmix.regression.priors import BlockPrior
from forestmix.regression.summary import Summary
from forestmix.scales import Scale
from forestmix.weights import Weights

if TYPE_CHECKING:
    from forestmix.regression.fit import Fit


class Predictions(Summary):
    """The predictive distribution of rows, as a table: ``mean``, and ``lower`` and ``upper`` ends of the interval.

    ``eta_mean`` and ``eta_sd`` are those of the linear predictor. For a response of 0 and 1 the mean is the probability
    of 1, with its own interval.
    """

    @property
    def mean(self) -> Array:
        """The predictive mean of each row."""
        return self.columns["mean"]

    @property
    def lower(self) -> Array:
        """The lower end of each interval."""
        return self.columns["lower"]

    @property
    def upper(self) -> Array:
        """The upper end of each interval."""
        return self.columns["upper"]

    @property
    def eta_mean(self) -> Array:
        """The mean of each linear predictor."""
        return self.columns["eta_mean"]

    @property
    def eta_sd(self) -> Array:
        """The standard deviation of each linear predictor."""
        return self.columns["eta_sd"]
