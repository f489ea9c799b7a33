"""Integrals over scales against distributions that are known: sums of logarithms of gamma variables, skewed as L is."""

import numpy as np
import pytest
import scipy.special

from forestmix.errors import ForestmixError
from forestmix.posterior.scale_calibration import calibrated
from forestmix.posterior.scale_nodes import importance, lattice
from forestmix.posterior.scale_posterior import from_grid, from_weighted
from forestmix.scales import Flat

#: Shapes of gamma variables: their logarithms have a left tail that falls like exp(shape theta).
SHAPES = np.array([1.0, 8.0, 3.0, 20.0, 1.5, 5.0])
#: Theta is this times independent logarithms, so that it is correlated.
MIXING = np.eye(6)
MIXING[np.tril_indices(6, -1)] = [0.3, -0.2, 0.4, 0.1, 0.0, 0.3, 0.2, -0.3, 0.1, 0.2, 0.0, 0.4, -0.1, 0.2, 0.3]


class LogGamma:
    """Density, mode, curvature and moments of the first ``count`` coordinates."""

    def __init__(self, count):
        self.shapes, self.mixing = SHAPES[:count], MIXING[:count, :count]
        self.mode = self.mixing @ np.log(self.shapes)
        inverse = np.linalg.inv(self.mixing)
        self.precision = inverse.T @ np.diag(self.shapes) @ inverse
        self.mean = self.mixing @ scipy.special.digamma(self.shapes)
        self.sd = np.sqrt(self.mixing**2 @ scipy.special.polygamma(1, self.shapes))

    def slopes(self, nodes):
        """Of the log density at each node."""
        inverse = np.linalg.inv(self.mixing)
        return (self.shapes - np.exp(nodes @ inverse.T)) @ inverse

    def __call__(self, theta):
        z = np.linalg.solve(self.mixing, theta)
        return float(np.sum(self.shapes * z - np.exp(z) - scipy.special.gammaln(self.shapes)))


@pytest.mark.parametrize(("count", "error", "most"), [(1, 1e-6, 40), (2, 2e-3, 200), (3, 0.02, 400)])
def test_lattice(count, error, most):
    target = LogGamma(count)
    found = lattice(target, target.mode, np.diag(target.precision) ** -0.5)
    weights = np.exp(found.log_weights)
    assert len(weights) <= most
    assert found.log_integral == pytest.approx(0, abs=error)
    mean = weights @ found.nodes
    np.testing.assert_allclose(mean, target.mean, atol=10 * error * target.sd.min())
    np.testing.assert_allclose(np.sqrt(weights @ (found.nodes - mean) ** 2), target.sd, rtol=10 * error)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_nodes_are_where_the_density_was_asked_for(count, factor):
    """Also where the step had to be halved, as often as it may be."""
    target = LogGamma(count)
    asked = {}

    def density(theta):
        asked[theta.tobytes()] = target(theta)
        return asked[theta.tobytes()]

    found = lattice(density, target.mode, factor * np.diag(target.precision) ** -0.5)
    values = np.array([asked[theta.tobytes()] for theta in found.nodes])
    mean = np.exp(found.log_weights) @ found.nodes
    assert np.isfinite(values).all()
    if count < 3:
        np.testing.assert_allclose(mean, target.mean, atol=0.03 * target.sd.min())


def test_marginals_of_a_lattice():
    target = LogGamma(2)
    found = lattice(target, target.mode, np.diag(target.precision) ** -0.5)
    own = from_grid(Flat(), target.mode[0], *found.marginals[0])
    p = np.array([0.02, 0.05, 0.5, 0.95, 0.98])
    np.testing.assert_allclose(own.quantile(p), scipy.special.gammaincinv(SHAPES[0], p), rtol=0.02)
    assert own.mean == pytest.approx(SHAPES[0], rel=5e-3)


def test_importance_sampling():
    target = LogGamma(4)
    found = importance(target, target.mode, np.linalg.inv(target.precision))
    weights = np.exp(found.log_weights)
    assert found.effective >= 160
    assert found.log_integral == pytest.approx(0, abs=0.1)
    mean = weights @ found.nodes
    np.testing.assert_allclose((mean - target.mean) / target.sd, 0, atol=0.1)
    np.testing.assert_allclose(np.sqrt(weights @ (found.nodes - mean) ** 2), target.sd, rtol=0.15)
    own = from_weighted(Flat(), target.mode[3], found.nodes[:, 3], weights)
    assert own.log_mean == pytest.approx(mean[3])
    # The smoothed density has the mean and the sd of the nodes.
    drawn = np.log(own.sample(50_000, rng=0))
    assert np.mean(drawn) == pytest.approx(own.log_mean, abs=0.03 * own.log_sd)
    assert np.std(drawn) == pytest.approx(own.log_sd, rel=0.03)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("count", [4, 5, 6])
def test_calibrated_weights(count, seed):
    """Means and sds of correlated, skewed logarithms; a part of the density comes without its slope."""
    target = LogGamma(count)
    found = importance(target, target.mode, np.linalg.inv(target.precision), seed)
    slope, matrix = np.linspace(-0.3, 0.2, count), 0.1 * np.eye(count) + 0.02
    left_out = found.nodes @ slope - 0.5 * np.einsum("sj,jk,sk->s", found.nodes, matrix, found.nodes)
    slopes = target.slopes(found.nodes) - slope + found.nodes @ matrix
    weights = np.exp(calibrated(found.nodes, found.log_weights, slopes, left_out))
    assert np.sum(weights) == pytest.approx(1)
    mean = weights @ found.nodes
    np.testing.assert_allclose((mean - target.mean) / target.sd, 0, atol=0.02)
    np.testing.assert_allclose(np.sqrt(weights @ (found.nodes - mean) ** 2), target.sd, rtol=0.05)


def test_a_normal_density_has_exact_moments():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 5))
    precision = root @ root.T + np.eye(5)
    nodes = 1.2 * rng.standard_normal((400, 5)) @ np.linalg.inv(np.linalg.cholesky(precision))
    log_weights = -0.5 * (1 - 1.2**-2) * np.einsum("sj,jk,sk->s", nodes, precision, nodes)
    log_weights -= scipy.special.logsumexp(log_weights)
    weights = np.exp(calibrated(nodes, log_weights, -nodes @ precision, np.zeros(400)))
    np.testing.assert_allclose(weights @ nodes, 0, atol=1e-8)
    np.testing.assert_allclose((weights[:, None] * nodes).T @ nodes, np.linalg.inv(precision), atol=1e-7)


def test_weights_stay_where_none_near_fit():
    """Slopes that all point the same way belong to no density at these nodes."""
    rng = np.random.default_rng(1)
    nodes, log_weights = rng.standard_normal((50, 4)), np.full(50, -np.log(50.0))
    found = calibrated(nodes, log_weights, np.ones((50, 4)), np.zeros(50))
    np.testing.assert_array_equal(found, log_weights)


def test_more_nodes_where_the_first_ones_miss():
    """A proposal that is too narrow and off: later rounds find the mass."""
    target = LogGamma(4)
    found = importance(target, target.mode + 0.4, 0.3 * np.linalg.inv(target.precision))
    assert len(found.nodes) > 256
    assert found.effective >= 160
    assert found.log_integral == pytest.approx(0, abs=0.15)


@pytest.mark.parametrize(("sign", "word"), [(1, "infinity"), (-1, "0")])
def test_no_end(sign, word):
    """A density that falls on one side and is level on the other."""
    with pytest.raises(ForestmixError, match=f"number 0 does not end towards {word}"):
        lattice(lambda theta: float(-np.exp(-sign * theta[0])), np.zeros(1), np.ones(1))
