"""Rows as series in Hermite polynomials against mpmath, and what is along coordinates against fine sums."""

from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
import scipy.special

import forestmix as fmx
from forestmix.engines.rows import expected_terms, row_data
from forestmix.model import observations
from forestmix.posterior import along
from forestmix.posterior.factor import RowCoordinates
from forestmix.posterior.row_series import FIRST, LAST, row_series

MEANS, SPREADS = (-50.0, -7.0, -1.3, 0.0, 0.4, 3.0, 50.0), (0.0, 1e-3, 0.3, 0.999, 1.0, 2.5, 30.0, 1000.0)
KINDS = {
    "bernoulli": (fmx.Bernoulli(), lambda eta: np.logaddexp(0, eta), lambda eta: mp.log1p(mp.exp(eta))),
    "poisson": (fmx.Poisson(), np.exp, mp.exp),
    "gaussian": (fmx.Gaussian(1.0), lambda eta: 0.5 * eta**2, lambda eta: eta**2 / 2),
}


def rows_of(family, n):
    model = fmx.DEF(fmx.Layer(family, np.ones((n, 1))))
    data = observations(model, np.ones(n))
    return row_data(model.layers[0], data)


def by_mpmath(k, m, s):
    """``E[a p_k] = s^2 E[a'' p_{k-2}] / sqrt(k (k - 1))``, by mpmath over where both a'' and the density are."""
    with mp.workdps(30):
        m, s = mp.mpf(m), mp.mpf(s)

        def integrand(z):
            slope = 1 / (2 * mp.cosh((m + s * z) / 2)) ** 2
            return slope * mp.hermite(k - 2, z / mp.sqrt(2)) * mp.exp(-z * z / 2)

        low, high = max(mp.mpf(-14), (-60 - m) / s), min(mp.mpf(14), (60 - m) / s)
        total = mp.quad(integrand, mp.linspace(low, high, 25)) / mp.sqrt(2 * mp.pi)
        return float(total * s * s / (mp.mpf(2) ** (mp.mpf(k - 2) / 2) * mp.sqrt(mp.factorial(k))))


def by_panels(k, m, s):
    """The same in double precision, by Gauss-Legendre on 200 panels: as exact as the test needs, in no time."""
    low, high = (max(-14.0, (-60 - m) / s), min(14.0, (60 - m) / s)) if s else (0.0, 0.0)
    if low >= high:
        return 0.0
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(low, high, 201)
    half = 0.5 * (edges[1] - edges[0])
    z = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes).ravel()
    slope = 1 / (2 * np.cosh((m + s * z) / 2)) ** 2
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    polynomial = scipy.special.eval_hermitenorm(k - 2, z)
    total = np.sum(np.tile(half * weights, 200) * slope * polynomial * density)
    return s * s * total / np.sqrt(scipy.special.factorial(k))


@pytest.mark.parametrize(("k", "m", "s"), [(FIRST, -7.0, 0.3), (LAST, 0.4, 0.999), (17, -1.3, 30.0), (LAST, 3.0, 1e3)])
def test_the_oracle_is_that_of_mpmath(k, m, s):
    exact = by_mpmath(k, m, s)
    assert by_panels(k, m, s) == pytest.approx(exact, rel=1e-12, abs=1e-14 * s * s)


@pytest.mark.parametrize("s", SPREADS)
def test_coefficients_of_softplus(s):
    """To 5e-12 in nats as they are used: times rho^k, with rho below 0.7 where the rules of quadrature meet, at s = 1.

    There their errors are largest, and grow with the order: 4e-9 in the last before it is multiplied.
    """
    means = np.array(MEANS)
    found = row_series(rows_of(fmx.Bernoulli(), len(means)), means, np.full(len(means), s))
    for k in range(FIRST, LAST + 1):
        exact = [by_panels(k, m, s) for m in MEANS]
        atol = 5e-12 * 0.7**-k * min(s, 1) ** 2 * max(s, 1)
        np.testing.assert_allclose(found[k - FIRST], exact, rtol=1e-11, atol=atol)


@pytest.mark.parametrize("s", [0.0, 0.01, 0.7, 2.0])
def test_coefficients_of_exp(s):
    found = row_series(rows_of(fmx.Poisson(), 3), np.array([-2.0, 0.0, 1.5]), np.full(3, s))
    for k in range(FIRST, LAST + 1):
        exact = np.exp(np.array([-2.0, 0.0, 1.5]) + s**2 / 2) * s**k / np.sqrt(scipy.special.factorial(k))
        np.testing.assert_allclose(found[k - FIRST], exact, rtol=1e-12)


def along_one(name, m, s, share):
    """h of one row along a coordinate at the nodes, by sums over grids of what is left of its spread."""
    a, t = KINDS[name][1], 1.0
    z, fine = along._hermite()[0], np.linspace(-12, 12, 8001)
    weights = np.exp(-(fine**2) / 2)
    weights /= weights.sum()
    left = s * np.sqrt(1 - share**2)
    values = np.array([t * (m + share * s * one) - weights @ a(m + share * s * one + left * fine) for one in z])
    whole = a(m + s * fine)
    mean = t * m - weights @ whole
    slope = t - weights @ (whole * fine) / s
    curvature = weights @ (whole * (fine**2 - 1)) / s**2
    h = values - mean - slope * share * s * z + 0.5 * curvature * (share * s) ** 2 * (z**2 - 1)
    return h, slope, curvature


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("s", [0.05, 0.6, 0.95, 1.4, 4.0])
def test_parts_along_a_coordinate(name, s):
    """Of each share in the spread: some by the series, some by expectations; one that is missing has none."""
    if name == "poisson" and s > 2:
        pytest.skip("the oracle's own digits end")
    shares, m = np.array([0.0, 0.05, -0.3, 0.5, 0.72, -0.9, 1.0]), 0.3
    found = [along_one(name, m, s, share) for share in shares]
    exact = np.stack([one[0] for one in found], axis=1)
    exact[:, 2] = 0.0
    x = np.ones(len(shares))
    x[2] = np.nan
    model = fmx.DEF(fmx.Layer(KINDS[name][0], np.ones((len(shares), 1))))
    rows = row_data(model.layers[0], observations(model, x))
    error, kappa = (np.where(np.isnan(x), 0.0, [one[k] for one in found]) for k in (1, 2))
    fit = SimpleNamespace(eta=np.full(len(x), m), variance=np.full(len(x), s * s), error=error, kappa=kappa)
    pairs = along._Pairs(np.arange(len(x)), np.arange(len(x)), shares * s)
    h = along._Rows(rows, fit, np.arange(len(x))).along(pairs, len(x))
    weight = np.exp(0.5 * along._hermite()[1])[:, None]
    np.testing.assert_allclose(weight * h, weight * exact, atol=3e-10 * max(1, np.abs(weight * exact).max()))


def test_blocks_of_rows_are_as_all_at_once(monkeypatch):
    """Rows of three kinds, in blocks that cut groups in two."""
    rng, n = np.random.default_rng(0), 40
    family = fmx.Mixed([fmx.Bernoulli(), fmx.Poisson(), fmx.Gaussian(0.5)], rng.integers(0, 3, n))
    rows = rows_of(family, n)
    coordinates = RowCoordinates(rng.integers(-1, 3, n), rng.uniform(0, 1, n), 3, rng.uniform(-1, 1, (2, n)))
    variance = np.sum(coordinates.rest**2, axis=0) + coordinates.block**2
    eta = rng.standard_normal(n)
    _, error, kappa = (
        np.broadcast_to(one, (1, n))[0] for one in expected_terms(rows, eta[None], variance[None] ** 0.5)
    )
    fit = SimpleNamespace(eta=eta, variance=variance, error=error, kappa=kappa)
    whole = along.along_coordinates(rows, fit, coordinates)
    monkeypatch.setattr(along, "ROWS", 7)
    monkeypatch.setattr(along, "PAIRS", 3)
    parts = along.along_coordinates(rows, fit, coordinates)
    monkeypatch.setattr(along, "LEFT_OUT", -1.0)
    without_series = along.along_coordinates(rows, fit, coordinates)
    for one, other, third in zip(whole, parts, without_series, strict=True):
        # Sums over rows of which little is left: their last digits depend on the processor's order of adding.
        np.testing.assert_allclose(np.stack(one), np.stack(other), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(np.stack(one), np.stack(third), rtol=1e-8)


def test_chosen_rows_may_repeat():
    family = fmx.Mixed([fmx.Poisson(), fmx.Bernoulli()], [0, 1, 0, 1, 1])
    model = fmx.DEF(fmx.Layer(family, np.ones((5, 1))))
    rows = row_data(model.layers[0], observations(model, [[2.0, 1.0, np.nan, 0.0, 1.0], [0.0, np.nan, 3.0, 1.0, 0.0]]))
    eta, spread = np.random.default_rng(0).uniform(0, 2, (2, 2, 5))
    for places in ([4, 0, 0, 2, 3], [1, 3], [2]):
        found = expected_terms(rows.take_rows(np.array(places)), eta[:, places], spread[:, places])
        for one, whole in zip(found, expected_terms(rows, eta, spread), strict=True):
            np.testing.assert_allclose(np.broadcast_to(one, (2, len(places))), whole[:, places], rtol=1e-14)
