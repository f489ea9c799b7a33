"""forest_likeness: its definition by brute force, and the invariances it promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forestmix as fmx
from support.known_models import forest


def by_definition(W):
    """1 / (1 + mean over nonzero columns of the summed cosine overlap with the others)."""
    columns = [np.abs(column) / np.linalg.norm(column) for column in W.T if column.any()]
    overlaps = [sum(u @ v for k, v in enumerate(columns) if k != j) for j, u in enumerate(columns)]
    return 1 / (1 + np.mean(overlaps))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_definition_and_invariances(seed):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 9, 2)
    W = rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.6)
    W[0, 0] = 1.0
    value = fmx.forest_likeness(W)
    assert value == pytest.approx(by_definition(W), rel=1e-12)
    assert 1 / m <= value * (1 + 1e-12)
    assert fmx.forest_likeness(W * 10 ** rng.uniform(-6, 6, m)) == pytest.approx(value, rel=1e-10)
    assert fmx.forest_likeness(W[rng.permutation(n)][:, rng.permutation(m)]) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_exactly_one_for_a_forest_and_below_one_otherwise(seed):
    rng = np.random.default_rng(seed)
    W = forest(rng) * 10 ** rng.uniform(-6, 6, 4)
    W[0] = 0
    assert fmx.forest_likeness(W) == 1.0
    W[1, 2] = np.abs(W[:, 2]).max()
    assert fmx.forest_likeness(W) < 1.0


def test_smaller_windows_are_more_forest_like():
    values = [fmx.forest_likeness(fmx.windows((28, 28), size)) for size in (1, 3, 7, 15)]
    assert values[0] == 1.0
    assert values == sorted(values, reverse=True)


def test_no_weights_at_all_is_an_empty_forest():
    assert fmx.forest_likeness(np.zeros((3, 2))) == 1.0


def test_identical_columns_reach_the_lower_end():
    assert fmx.forest_likeness(np.ones((5, 4))) == pytest.approx(1 / 4)
