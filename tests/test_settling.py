"""The terms of many rows at a time, against mpmath and against the terms of each by itself."""

import itertools

import mpmath as mp
import numpy as np
import pytest
from forestmix.engines.compiled.expectations import RAMP_LIMIT, SERIES_LIMIT, STEP_LIMITS, softplus_expectations
from forestmix.passes import settle_rows

from families.test_expectations import CORNERS, EXTREME, INTERIOR, TILTED, exact, relative_errors
from forestmix.engines.compiled.rows import BERNOULLI, BINOMIAL, GAUSSIAN, MISSING, POISSON, RowTable, row_terms

NOTHING = np.zeros((1, 1))


def terms(kind, x, mean, spread, scale=1.0, constant=0.0):
    """Return the value, ``e`` and ``kappa`` of each row; the value from the totals of observations of one row each."""
    kind, x, mean, spread, scale, constant = np.broadcast_arrays(kind, x, mean, spread, scale, constant)
    error, kappa = settle(kind, x, mean, spread, scale, constant)[2:]
    values = [settle(*(part[k : k + 1] for part in (kind, x, mean, spread, scale, constant)))[0] for k in range(len(x))]
    return np.concatenate(values), error[0], kappa[0]


def settle(kind, x, mean, spread, scale, constant):
    batch = [np.array(part[np.newaxis], float) for part in (x, constant, mean, spread)]
    table = RowTable(np.array(kind[np.newaxis], np.int8), batch[0], np.array(scale, float), batch[1])
    return settle_rows(np.zeros(1), table, batch[2], batch[3])


def expectations(mean, spread):
    """Return ``E a``, ``E a'`` and ``E a''`` of each row, from the terms of Bernoulli rows with data 0."""
    value, error, kappa = terms(BERNOULLI, 0.0, np.asarray(mean), np.asarray(spread))
    return np.stack([-value, -error, kappa])


def test_expectations_to_ten_digits():
    points = CORNERS + TILTED + INTERIOR
    found = expectations(*np.array(points).T)
    for (m, s), *got in zip(points, *found.tolist(), strict=True):
        assert max(relative_errors(got, exact(m, s))) < 1e-11, (m, s)


def test_every_way_through_agrees_with_rows_one_by_one():
    """Where the step of the grid and the formula change, at both ends of the range, and in rows side by side."""
    near = [np.nextafter(s, to) for s in (SERIES_LIMIT, *STEP_LIMITS, RAMP_LIMIT) for to in (0, 1e10)]
    spreads = [0.0, 1e-300, 0.05, 1.0, 3.0, 20.0, 38.0, 100.0, 1e4, 1e9, 1e12, 1e300, *near]
    means = [*EXTREME, *np.linspace(-60, 60, 31), -45.0, -90.0, -200.0]
    mean, spread = np.array(list(itertools.product(means, spreads))).T
    order = np.random.default_rng(0).permutation(len(mean))
    right = np.array([softplus_expectations(m, s) for m, s in zip(mean[order], spread[order], strict=True)]).T
    np.testing.assert_allclose(expectations(mean[order], spread[order]), right, rtol=1e-12, atol=1e-305)


def test_infinities_and_nan():
    mean = np.array([0.0, -np.inf, np.inf, -np.inf, np.nan, np.nan, 1.0])
    spread = np.array([np.inf, 1.0, 1.0, 0.0, 1.0, 0.01, np.nan])
    for kind in (BERNOULLI, POISSON):
        right = np.array([row_terms(kind, 1.0, 1.0, 0.0, m, s) for m, s in zip(mean, spread, strict=True)]).T
        np.testing.assert_allclose(terms(kind, 1.0, mean, spread), right, rtol=1e-12)


@pytest.mark.parametrize("y", [0.0, 1.0])
@pytest.mark.parametrize(("m", "s"), [(40.0, 0.0), (-40.0, 0.0), (45.0, 1.0), (-45.0, 1.0), (50.0, 5.0), (3.0, 0.5)])
def test_bernoulli_rows_keep_their_digits(y, m, s):
    with mp.workdps(40):
        small = exact(-abs(m), s) if s else (mp.log1p(mp.exp(-abs(m))), 1 / (1 + mp.exp(mp.mpf(abs(m)))), None)
        # For data on the other side E a and E a' are far from 0, and nothing cancels.
        right = (-small[0], small[1]) if (y == 1) == (m > 0) else (-(abs(m) + small[0]), 1 - small[1])
        value, error, _ = terms(BERNOULLI, np.array([y]), np.array([m]), np.array([s]))
        assert max(relative_errors((value[0], error[0] * (1 if y else -1)), right)) < 1e-10


def test_poisson_rows_keep_their_digits():
    shifts = [(0.0, 0.0), (1e-4, 1e-3), (-2.0, 0.5), (4.0, 3.0), (-40.0, 8.0)]
    counts = [0, 1, 7, 15, 16, 17, 300, 10**6, 10**9]
    cases = [(y, float(np.log(max(y, 1)) + shift), s) for y, (shift, s) in itertools.product(counts, shifts)]
    found = terms(POISSON, *np.array(cases, float).T)
    for (y, m, s), value, error, kappa in zip(cases, *found, strict=True):
        with mp.workdps(40):
            rate = mp.exp(mp.mpf(m) + mp.mpf(s) ** 2 / 2)
            # The constant of a row is what Stirling's formula leaves of log y!; here it is left out.
            right = y * mp.mpf(m) - rate - (y * mp.log(y) - y if y else 0)
        assert value == pytest.approx(float(right), rel=1e-12, abs=1e-14 * y), (y, m, s)
        assert error == pytest.approx(float(y - rate), rel=1e-11, abs=1e-14 * y)
        assert kappa == pytest.approx(float(rate), rel=1e-13)


def test_poisson_overflow_is_infinite_and_never_nan():
    mean, spread = np.array([710.0, 0.0, -1e4, 1e300, 0.0, -1e300]), np.array([0.0, 40.0, 1e3, 0.0, 1e200, 1e200])
    for y in (0.0, 5.0):
        value, error, kappa = terms(POISSON, y, mean, spread)
        assert (value == -np.inf).all()
        assert (error == -np.inf).all()
        assert (kappa == np.inf).all()


@pytest.mark.parametrize("families", [(GAUSSIAN,), (BERNOULLI,), (BINOMIAL,), (POISSON,), (GAUSSIAN, BERNOULLI)])
@pytest.mark.parametrize("missing", [False, True])
def test_any_number_of_rows(families, missing):
    """Whatever the number of rows, each gets the terms that it has by itself, and the totals are their sums."""
    rng = np.random.default_rng(len(families))
    for n in (1, 2, 7, 8, 9, 63, 64, 65, 130, 200):
        kind = rng.choice(families, n)
        if missing:
            kind[rng.random(n) < 0.3] = MISSING
        x, scale, constant = rng.integers(0, 2, n).astype(float), rng.integers(1, 4, n).astype(float), rng.random(n)
        mean, spread = rng.normal(0, 3, n), rng.uniform(0, 1, n)
        right = np.array([row_terms(*row) for row in zip(kind, x, scale, constant, mean, spread, strict=True)]).T
        value, size, error, kappa = settle(kind, x, mean, spread, scale, constant)
        np.testing.assert_allclose([error[0], kappa[0]], right[1:], rtol=1e-12, atol=1e-15)
        assert value[0] == pytest.approx(right[0].sum(), rel=1e-12)
        sizes = np.abs(right[0]) + np.abs(right[1] * mean)  # x itself is exact, and the bias is 0
        assert size[0] == pytest.approx(sizes.sum(), rel=1e-12)
        if len(families) == 1 and not missing:
            one = settle(kind[:1], x, mean, spread, scale, constant)
            np.testing.assert_array_equal(one[2], error)
