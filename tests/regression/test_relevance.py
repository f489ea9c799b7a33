"""The prior of a column's scale: log-uniform where scales are put at their mode."""

import numpy as np
import pytest
import scipy

from forestmix.regression.linear import LogUniform, relevance
from forestmix.scales import HalfNormal


def test_log_uniform_is_a_density():
    prior = LogUniform(3.0)
    total, _ = scipy.integrate.quad(
        lambda theta: np.exp(prior.log_density_of_log(theta)), -25, 25, limit=200, points=[-18.9, 21]
    )
    assert total == pytest.approx(1, abs=1e-3)
    assert prior.quantile(0.5) == 3.0
    below, _ = scipy.integrate.quad(
        lambda theta: np.exp(prior.log_density_of_log(theta)), -18.9, np.log(prior.quantile(0.7)), limit=200
    )
    assert below == pytest.approx(0.7, abs=1e-3)
    assert prior.log_density(3.0 * np.exp(21)) == -np.inf
    assert np.all(prior.gradient_of_log([-1.0, 0.0, 2.0]) == 0)


def test_few_scales_are_integrated():
    assert isinstance(relevance(2.0, 5), HalfNormal)
    assert isinstance(relevance(2.0, 6), LogUniform)
