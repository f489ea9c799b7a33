"""The compiled terms of rows, which are taken many at a time: expectations against mpmath, and digits that are kept."""

import itertools

import mpmath as mp
import numpy as np
import pytest

from families.test_expectations import CORNERS, EXTREME, INTERIOR, TILTED, relative_errors
from forestmix.engines.compiled import softplus
from forestmix.engines.compiled.rows import MISSING, terms_for, terms_of_rows
from forestmix.families.expectations import NARROW, lower_softplus
from forestmix.families.primitive import Kind
from support.softplus_oracle import exact


def terms(kind, target, mean, spread, factor=1.0, best=0.0):
    """Return the value, ``e`` and ``kappa`` of each row; values from the totals of one row at a time."""
    kind, target, mean, spread = (np.array(part) for part in np.broadcast_arrays(kind, target, mean, spread))
    n = len(mean)
    numbers = {"factor": [factor], "shift": [0], "sign": [1], "target": target, "best": [best], "bias": [0]}
    table = tuple(np.array(part, np.float64) for part in (kind, *numbers.values()))
    error, kappa, values = np.empty(n), np.empty(n), np.empty(n)
    kinds = set(kind.tolist()) - {MISSING}
    own = terms_for(kinds.pop() if len(kinds) == 1 else None)
    arguments = table, spread.astype(float), (mean.astype(float), error, kappa), own
    for k in range(n):
        total = np.zeros(2)
        terms_of_rows(k, k + 1, *arguments, total)
        values[k] = total[0]
    one_by_one, total = (error.copy(), kappa.copy()), np.zeros(2)
    terms_of_rows(0, n, *arguments, total)
    np.testing.assert_array_equal(total[0], pytest.approx(values.sum(), rel=1e-11, nan_ok=True))
    np.testing.assert_allclose((error, kappa), one_by_one, rtol=1e-10)
    return values, error, kappa


def expectations(mean, spread):
    """Return ``E a``, ``E a'`` and ``E a''`` of each row, from rows with target 0."""
    value, error, kappa = terms(Kind.SOFTPLUS, 0.0, np.asarray(mean), np.asarray(spread))
    return np.stack([-value, -error, kappa])


def test_expectations_to_ten_digits():
    points = CORNERS + TILTED + INTERIOR
    found = expectations(*np.array(points).T)
    for (m, s), *got in zip(points, *found.tolist(), strict=True):
        assert max(relative_errors(got, exact(m, s))) < 1e-10, (m, s)


def test_every_number_of_nodes_agrees_with_the_most():
    """Where the number of nodes and the rule change, and rows of all spreads side by side."""
    near = [np.nextafter(s, to) for s in (*softplus._LIMITS.tolist(), NARROW) for to in (0, 10)]
    spreads = [0.0, 1e-300, 0.05, 1.0, 3.0, 20.0, 38.0, 100.0, 1e4, *near]
    mean, spread = np.array(list(itertools.product(np.linspace(-60, 0, 31), spreads))).T
    order = np.random.default_rng(0).permutation(len(mean))
    mean, spread = mean[order], spread[order]
    right = lower_softplus(np, mean, spread)
    np.testing.assert_allclose(expectations(mean, spread), [right.value, right.slope, right.curvature], rtol=2e-11)


def test_extreme_arguments():
    mean, spread = np.array(list(itertools.product(EXTREME, [0.0, 1e-300, 1.0, 38.0, 1e4, 1e9, 1e12, 1e300]))).T
    value, slope, curvature = expectations(mean, spread)
    assert (np.maximum(mean, 0) <= value).all()
    assert (value <= np.maximum(mean, 0) + np.log(2) + 0.4 * spread).all()
    assert ((slope >= 0) & (slope <= 1) & (curvature >= 0) & (curvature <= 0.25 + 1e-16)).all()


def test_infinities_and_nan():
    mean = np.array([0.0, -np.inf, np.inf, -np.inf, np.nan, np.nan, 1.0])
    spread = np.array([np.inf, 1.0, 1.0, 0.0, 1.0, 0.01, np.nan])
    found = expectations(mean, spread).T
    right = [(np.inf, 0.5, 0), (0, 0, 0), (np.inf, 1, 0), (0, 0, 0), *[(np.nan,) * 3] * 3]
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("y", [0.0, 1.0])
@pytest.mark.parametrize(("m", "s"), [(40.0, 0.0), (-40.0, 0.0), (45.0, 1.0), (-45.0, 1.0), (50.0, 5.0), (3.0, 0.5)])
def test_bernoulli_rows_keep_their_digits(y, m, s):
    with mp.workdps(40):
        small = exact(-abs(m), s) if s else (mp.log1p(mp.exp(-abs(m))), 1 / (1 + mp.exp(mp.mpf(abs(m)))), None)
        # For data on the other side E a and E a' are far from 0, and nothing cancels.
        right = (-small[0], small[1]) if (y == 1) == (m > 0) else (-(abs(m) + small[0]), 1 - small[1])
        value, error, _ = terms(Kind.SOFTPLUS, np.array([y]), np.array([m]), np.array([s]))
        assert max(relative_errors((value[0], error[0] * (1 if y else -1)), right)) < 1e-10


def test_counts_keep_their_digits():
    shifts = [(0.0, 0.0), (1e-4, 1e-3), (-2.0, 0.5), (4.0, 3.0), (-40.0, 8.0)]
    counts = [0, 1, 7, 15, 16, 17, 300, 10**6, 10**9]
    cases = [(y, float(np.log(max(y, 1)) + shift), s) for y, (shift, s) in itertools.product(counts, shifts)]
    found = terms(Kind.EXPONENTIAL, *np.array(cases, float).T)
    for (y, m, s), value, error, kappa in zip(cases, *found, strict=True):
        with mp.workdps(40):
            rate = mp.exp(mp.mpf(m) + mp.mpf(s) ** 2 / 2)
            right = y * mp.mpf(m) - rate - (y * mp.log(y) - y if y else 0)
        assert value == pytest.approx(float(right), rel=1e-12, abs=1e-14 * y), (y, m, s)
        assert error == pytest.approx(float(y - rate), rel=1e-11, abs=1e-14 * y)
        assert kappa == pytest.approx(float(rate), rel=1e-13)


def test_overflow_is_infinite_and_never_nan():
    mean, spread = np.array([710.0, 0.0, -1e4, 1e300, 0.0, -1e300]), np.array([0.0, 40.0, 1e3, 0.0, 1e200, 1e200])
    for y in (0.0, 5.0):
        for one, right in zip(terms(Kind.EXPONENTIAL, y, mean, spread), (-np.inf, -np.inf, np.inf), strict=True):
            assert (one == right).all()


@pytest.mark.parametrize("n", [1, 7, 15, 16, 17, 63, 64, 65, 200])
def test_any_number_of_rows_of_all_kinds(n):
    """Each gets the terms that it has by itself, whatever stands beside it; missing ones have none."""
    rng = np.random.default_rng(n)
    kind = rng.integers(0, 4, n)
    value, error, kappa = terms(kind, rng.random(n), rng.normal(0, 3, n), rng.uniform(0, 2, n), factor=2.0, best=-1.0)
    missing = kind == MISSING
    assert not np.stack([value, error, kappa])[:, missing].any()
    assert (value[~missing] < -1).all()
    assert (kappa[kind == Kind.QUADRATIC] == 2).all()
