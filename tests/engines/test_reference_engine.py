"""The reference engine against explicit loops, with row terms by mpmath from g, t and a."""

import mpmath as mp
import numpy as np
import pytest
import scipy

import forestmix as fmx
from forestmix.engines.protocol import Capability, Spread, Statistics, Want, require
from forestmix.engines.reference import ReferenceEngine
from forestmix.engines.rows import curvature_slopes, expected_terms
from forestmix.errors import ArgumentError
from forestmix.families.row_terms import formulas_of
from forestmix.model import Observations, observations
from support.engine_cases import DATA, FAMILIES, STORAGE, GaussianFactors, case
from support.softplus_oracle import exact

ENGINE = ReferenceEngine()
SPREADS = (Spread.ABSOLUTE, Spread.SQUARED)


def statistics(layer, data, q, spread, want=Want.ALL, engine=ENGINE):
    return engine.statistics(layer, engine.observe(layer, data), q, want, spread)


def number_of(parameter, i):
    """Return a parameter of row i, or the one that serves all rows."""
    return float(np.ravel(parameter)[i if np.size(parameter) > 1 else 0])


def row_by_definition(family, i, x, m, r):
    """Return ``E log p``, ``t - E a'`` and ``E a''`` of row i from g, t and a, with 40 digits."""
    if isinstance(family, fmx.Mixed):
        which = family.which[i]
        return row_by_definition(family.families[which], np.sum(family.which[:i] == which), x, m, r)
    x, m, r = (mp.mpf(float(number)) for number in (x, m, r))
    if isinstance(family, fmx.Gaussian):
        sd = mp.mpf(number_of(family.sd, i))
        return -((x - m) ** 2 + r**2) / (2 * sd**2) - mp.log(sd) - mp.log(2 * mp.pi) / 2, (x - m) / sd**2, sd**-2
    if isinstance(family, fmx.Poisson):
        rate = mp.exp(m + r**2 / 2)
        return x * m - rate - mp.loggamma(x + 1), x - rate, rate
    trials = int(number_of(family.trials, i)) if isinstance(family, fmx.Binomial) else 1
    if r == 0:
        value, slope, curvature = mp.log1p(mp.exp(m)), 1 / (1 + mp.exp(-m)), 1 / (2 + mp.exp(m) + mp.exp(-m))
    else:
        value, slope, curvature = exact(float(m), float(r))
    return mp.log(mp.binomial(trials, x)) + x * m - trials * value, x - trials * slope, trials * curvature


def by_loops(layer, data, q, W, spread):
    """Return all sums for the first observation, entry by entry."""
    n, m = W.shape
    mean, sd = q.mean[0].tolist(), q.sd[0].tolist()
    value, gradient, curvature_sd, information = 0.0, [0.0] * m, [0.0] * m, [0.0] * m
    for i in range(n):
        if data.observed is not None and not data.observed[0, i]:
            continue
        row = W[i].tolist()
        eta = number_of(layer.bias, i) + sum(row[j] * mean[j] for j in range(m))
        s, v = sum(abs(row[j]) * sd[j] for j in range(m)), sum((row[j] * sd[j]) ** 2 for j in range(m))
        with mp.workdps(40):
            terms = row_by_definition(layer.family, i, data.x[0, i], eta, s if spread is Spread.ABSOLUTE else v**0.5)
        log_likelihood, e, kappa = map(float, terms)
        value += log_likelihood
        for j in range(m):
            gradient[j] += row[j] * e
            curvature_sd[j] += abs(row[j]) * s * kappa
            information[j] += row[j] ** 2 * kappa
    return value, gradient, curvature_sd, information


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_sums_are_those_of_explicit_loops(family, spread):
    layer, seen, q, W = case(family, data="missing")
    got, _ = statistics(layer, seen, q, spread)
    found = (got.value[0], got.gradient[0], got.curvature_sd[0], got.information[0])
    for one, right in zip(found, by_loops(layer, seen, q, W, spread), strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-10, atol=1e-12)


def test_constant_curvature_is_shared_by_a_batch():
    layer, data, q, _ = case("gaussian", data="shared sd")
    got, terms = statistics(layer, data, q, Spread.SQUARED)
    assert terms.kappa.shape == (1, 9)
    assert got.curvature_sd.shape == got.information.shape == (1, 5)
    assert got.gradient.shape == (3, 5)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("family", FAMILIES)
def test_sums_over_parts_of_the_rows_add_up(family, data):
    layer, seen, q, W = case(family, data=data)
    whole, _ = statistics(layer, seen, q, Spread.SQUARED)
    total = None
    for rows in (np.arange(4), np.arange(4, 5), np.arange(5, 9)):
        part = fmx.Layer(layer.family.take(rows), W[rows], layer.bias[rows])
        observed = None if seen.observed is None else seen.observed[:, rows]
        found, _ = statistics(part, Observations(seen.x[:, rows], observed, False), q, Spread.SQUARED)
        total = found if total is None else total + found
    for field in Statistics._fields:
        np.testing.assert_allclose(getattr(total, field), getattr(whole, field), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("family", FAMILIES)
def test_chosen_observations(family, data):
    layer, seen, q, _ = case(family, data=data)
    for kept in [[0]] if data == "single" else [[2, 0], [True, False, True]]:
        keep = np.array(kept)
        chosen = GaussianFactors(q.mean[keep], q.sd if len(q.sd) == 1 else q.sd[keep])
        got, _ = ENGINE.statistics(layer, ENGINE.observe(layer, seen).take(keep), chosen, Want.ALL, Spread.ABSOLUTE)
        right, _ = statistics(layer, seen.take(keep), chosen, Spread.ABSOLUTE)
        for field in Statistics._fields:
            np.testing.assert_allclose(getattr(got, field), getattr(right, field), rtol=1e-12)


def test_the_forest_mixture_bound_lies_below():
    for family in FAMILIES:
        layer, data, q, _ = case(family)
        assert (
            statistics(layer, data, q, Spread.ABSOLUTE, Want.VALUE)[0].value
            <= statistics(layer, data, q, Spread.SQUARED, Want.VALUE)[0].value
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_spreads_that_are_given(family):
    layer, seen, q, W = case(family, data="missing")
    for spread, given in (
        (Spread.ABSOLUTE, q.sd @ np.abs(W).T),
        (Spread.SQUARED, np.sqrt(q.sd**2 @ (W**2).T)),
        (Spread.NONE, np.zeros((1, 9))),
    ):
        right, terms = statistics(layer, seen, q, spread)
        got, same = statistics(layer, seen, q, given)
        for field in Statistics._fields:
            np.testing.assert_allclose(getattr(got, field), getattr(right, field), rtol=1e-12)
        for one, other in zip(same, terms, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("family", FAMILIES)
def test_curvatures_at_given_rows(family):
    layer, _, q, W = case(family, data="batch")
    kappa = np.random.default_rng(0).random((3, 9))
    curvature_sd, information = ENGINE.curvatures(layer, kappa, q.sd, Want.CURVATURE | Want.INFORMATION)
    np.testing.assert_allclose(curvature_sd, (kappa * (q.sd @ np.abs(W).T)) @ np.abs(W), rtol=1e-12)
    np.testing.assert_allclose(information, kappa @ W**2, rtol=1e-12)
    assert ENGINE.curvatures(layer, kappa, q.sd, Want.VALUE) == (None, None)


def derivatives(family, eta):
    """Return ``a'''`` and ``a''''`` of every row."""
    if isinstance(family, fmx.Mixed):
        parts = [derivatives(part, eta) for part in family.families]
        return tuple(np.choose(family.which, [part[k] for part in parts]) for k in range(2))
    if isinstance(family, fmx.Gaussian):
        return np.zeros_like(eta), np.zeros_like(eta)
    if isinstance(family, fmx.Poisson):
        return np.exp(eta), np.exp(eta)
    p = scipy.special.expit(eta)
    trials = family.trials if isinstance(family, fmx.Binomial) else 1
    return trials * p * (1 - p) * (1 - 2 * p), trials * p * (1 - p) * (1 - 6 * p * (1 - p))


@pytest.mark.parametrize("family", FAMILIES)
def test_slopes_of_the_curvature_and_values(family):
    """Gauss-Hermite with a hundred nodes, which is exact enough for these spreads."""
    layer, seen, _, _ = case(family, data="missing")
    rng, rows = np.random.default_rng(1), ENGINE.observe(layer, seen)
    eta, spread = rng.standard_normal((3, 9)), rng.random((3, 9))
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    right = [0.0, 0.0]
    for z, weight in zip(nodes, weights / weights.sum(), strict=True):
        right = [
            total + weight * one for total, one in zip(right, derivatives(layer.family, eta + z * spread), strict=True)
        ]
    for got, one in zip(curvature_slopes(rows, eta, spread), right, strict=True):
        np.testing.assert_allclose(got, np.where(seen.observed, one, 0), rtol=1e-8, atol=2e-6)
    values = expected_terms(rows, eta, spread)[0]
    assert values.shape == (3, 9)
    for (k, i), value in np.ndenumerate(values[:, ::4]):
        with mp.workdps(40):
            log_p = row_by_definition(layer.family, 4 * i, seen.x[k, 4 * i], eta[k, 4 * i], spread[k, 4 * i])[0]
        assert value == pytest.approx(float(log_p) if seen.observed[k, 4 * i] else 0.0, rel=1e-10)


def test_what_is_not_wanted_is_not_there():
    layer, data, q, _ = case("poisson")
    got, _ = statistics(layer, data, q, Spread.ABSOLUTE, Want.VALUE | Want.INFORMATION)
    assert got.gradient is None
    assert got.curvature_sd is None
    assert got.value is not None
    assert got.magnitude is not None
    assert (got + got).gradient is None


@pytest.mark.parametrize("storage", STORAGE)
def test_normal_product(storage):
    layer, _, _, W = case("gaussian", storage)
    rng = np.random.default_rng(0)
    for count in (1, 3):
        kappa, p = rng.random((count, 9)), rng.standard_normal((count, 5))
        image, form = ENGINE.normal_product(layer, kappa, p)
        right = np.stack([W.T @ (k * (W @ one)) for k, one in zip(kappa, p, strict=True)])
        np.testing.assert_allclose(image, right, rtol=1e-12)
        np.testing.assert_allclose(form, (p * right).sum(axis=1), rtol=1e-12)


def test_a_missing_entry_counts_nothing_however_its_row_overflows():
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), np.array([[1.0], [2000.0]])))
    data = observations(model, np.array([2.0, np.nan]))
    got, terms = statistics(model.layers[0], data, GaussianFactors(np.ones((1, 1)), np.ones((1, 1))), Spread.SQUARED)
    assert np.isfinite([got.value, got.gradient[0], got.curvature_sd[0], got.information[0]]).all()
    assert terms.kappa[0, 1] == 0
    full, _ = statistics(
        model.layers[0], observations(model, np.array([2.0, 3.0])), GaussianFactors(np.ones((1, 1)), np.ones((1, 1))),
        Spread.SQUARED,
    )  # fmt: skip
    assert full.value == -np.inf


@pytest.mark.parametrize(("family", "x", "m"), [
    (fmx.Poisson(), 1e12, np.log(1e12)),
    (fmx.Binomial(10**9), 3e8, float(np.log(3 / 7))),
    (fmx.Gaussian(1e-9), 1e3, 1e3 + 1e-9),
])  # fmt: skip
def test_large_counts_and_small_noise_keep_their_digits(family, x, m):
    model = fmx.DEF(fmx.Layer(family, np.array([[1.0]])))
    q = GaussianFactors(np.array([[m]]), np.array([[1e-200]]))
    got, _ = statistics(model.layers[0], observations(model, np.array([x])), q, Spread.SQUARED, Want.VALUE)
    with mp.workdps(60):
        right = row_by_definition(model.layers[0].family, 0, x, m, 0.0)[0]
    assert got.value.item() == pytest.approx(float(right), rel=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_primitives_are_the_family(family):
    """``factor A(zeta)`` is a, and ``best - factor D`` the log-likelihood."""
    layer, data, _, _ = case(family)
    rows = layer.family.primitive(data.x)
    eta = np.linspace(-3, 4, 9)[None]
    zeta = rows.sign * (eta - rows.shift)
    kinds = np.broadcast_to(rows.kind, 9)
    a = np.choose(kinds - 1, [zeta**2 / 2, np.exp(zeta), np.logaddexp(zeta, 0)])
    np.testing.assert_allclose(rows.factor * a, layer.family.log_partition(eta), rtol=1e-14)
    np.testing.assert_allclose(rows.sign * rows.factor * rows.target, layer.family.statistic(data.x), rtol=1e-14)
    q = GaussianFactors(np.zeros((1, 9)), np.full((1, 9), 1e-200))
    identity = fmx.Layer(layer.family, np.eye(9), eta[0])
    got, terms = statistics(identity, data, q, Spread.SQUARED, Want.VALUE)
    log_p = layer.family.log_base(data.x) + layer.family.statistic(data.x) * eta - layer.family.log_partition(eta)
    found = expected_terms(ENGINE.observe(identity, data), terms.eta, np.zeros((1, 9)))[0]
    np.testing.assert_allclose(found, log_p, rtol=1e-11)
    assert got.value == pytest.approx(log_p.sum(), rel=1e-11)


def test_rows_that_no_engine_knows():
    with pytest.raises(ArgumentError, match=r"kind of rows must be one of 1 \(quadratic\).*; got 7"):
        formulas_of(7)

    class Strange(fmx.Poisson):
        def primitive(self, x):
            return super().primitive(x)._replace(kind=np.array(0))

    layer, data, _, _ = case("poisson")
    layer.family = Strange()
    with pytest.raises(ArgumentError, match="kind of rows must be one of"):
        ENGINE.observe(layer, data)


def test_capabilities_are_checked():
    require(ENGINE, Capability.ARRAYS, "a torch tensor")
    with pytest.raises(ArgumentError, match=r"engine must offer coordinate sweeps.* for algorithm 'cavi'; 'reference'"):
        require(ENGINE, Capability.SWEEP, "algorithm 'cavi'")
