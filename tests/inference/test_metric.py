"""The metric of Newton's steps, against the formula of Broyden, Fletcher, Goldfarb and Shanno as matrices."""

import numpy as np
import pytest

from forestmix.inference.metric import PAIRS, MetricNewton

OBSERVATIONS, SIZE = 2, 30


def inverse_matrix(pairs, precision):
    """Return ``H <- (I - r s y^T) H (I - r y s^T) + r s s^T``, ``r = 1 / s^T y``, over an observation's pairs."""
    H = np.diag(1 / precision)
    for s, y in pairs:
        if s @ y > 0:
            left = np.eye(SIZE) - np.outer(s, y) / (s @ y)
            H = left @ H @ left.T + np.outer(s, s) / (s @ y)
    return H


@pytest.mark.parametrize("count", [0, 1, 2, 7, PAIRS, PAIRS + 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_metric_is_that_of_the_last_pairs(dtype, count):
    rng = np.random.default_rng(count)
    root = rng.standard_normal((SIZE, SIZE))
    A = root @ root.T / SIZE + np.eye(SIZE)
    memory, given = MetricNewton(OBSERVATIONS), []
    for k in range(count):
        s = rng.standard_normal((OBSERVATIONS, SIZE))
        if k == 1:
            s[0] = 0  # a pair that only the other observation has
        given.append((s, s @ A))
        memory._keep(s.astype(dtype), (s @ A).astype(dtype))
    gradient = rng.standard_normal((OBSERVATIONS, SIZE)).astype(dtype)
    precision = rng.uniform(1, 2, (OBSERVATIONS, SIZE)).astype(dtype)
    before = gradient.copy()
    step = memory._metric(gradient, precision)
    np.testing.assert_array_equal(gradient, before)
    for k in range(OBSERVATIONS):
        H = inverse_matrix([(s[k], y[k]) for s, y in given[-PAIRS:]], precision[k])
        tolerance = 1e-9 if dtype == np.float64 else 1e-3
        np.testing.assert_allclose(step[k], H @ before[k], rtol=tolerance, atol=tolerance)


def test_chosen_observations_keep_their_pairs():
    rng = np.random.default_rng(0)
    memory = MetricNewton(3)
    for _ in range(4):
        s = rng.standard_normal((3, SIZE))
        memory._keep(s, 2 * s + 0.1 * rng.standard_normal((3, SIZE)))
    gradient, precision = rng.standard_normal((3, SIZE)), np.ones((3, SIZE))
    keep = np.array([2, 0])
    chosen = memory.take(keep)._metric(gradient[keep], precision[keep])
    np.testing.assert_allclose(chosen, memory._metric(gradient, precision)[keep], rtol=1e-12)
