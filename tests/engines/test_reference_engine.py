"""The reference engine against explicit loops, and against the compiled site statistics."""

from dataclasses import fields

import mpmath as mp
import numpy as np
import pytest

import forestmix as fmx
from engine_cases import DATA, FAMILIES, STORAGE, case
from forestmix import small
from forestmix.engines.primitives import terms_of
from forestmix.engines.protocol import Capability, Statistics, Want, require
from forestmix.engines.reference import ReferenceEngine
from forestmix.errors import ArgumentError
from forestmix.model import Observations, observations
from forestmix.problem.given import GaussianFactors
from forestmix.statistics import Site
from softplus_oracle import exact

ENGINE = ReferenceEngine()
OBJECTIVES = ("fm", "elbo")


def statistics(layer, data, q, objective, want=Want.ALL, engine=ENGINE):
    return engine.statistics(layer, engine.observe(layer, data), q, want, objective)


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


def by_loops(layer, data, q, W, objective):
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
            terms = row_by_definition(layer.family, i, data.x[0, i], eta, s if objective == "fm" else v**0.5)
        log_likelihood, e, kappa = map(float, terms)
        value += log_likelihood
        for j in range(m):
            gradient[j] += row[j] * e
            curvature_sd[j] += abs(row[j]) * s * kappa
            information[j] += row[j] ** 2 * kappa
    return value, gradient, curvature_sd, information


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("family", FAMILIES)
def test_sums_are_those_of_explicit_loops(family, objective):
    layer, seen, q, W = case(family, data="missing")
    got, _ = statistics(layer, seen, q, objective)
    found = (got.value[0], got.gradient[0], got.curvature_sd[0], got.information[0])
    for one, right in zip(found, by_loops(layer, seen, q, W, objective), strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_compiled_engine_agrees(family, storage, data, dtype, monkeypatch):
    monkeypatch.setattr(small, "ENTRIES", 0)
    layer, seen, q, _ = case(family, storage, data, dtype)
    for objective in OBJECTIVES:
        got, terms = statistics(layer, seen, q, objective)
        right = Site(layer, seen, objective, both=True).statistics(q)
        scale = 1e-10 if dtype == np.float64 else 2e-5
        np.testing.assert_allclose(got.value, right.value, atol=scale * right.magnitude.max())
        pairs = [
            (got.gradient, right.gradient), (got.curvature_sd / q.sd, right.curvature),
            (got.information, right.exact), (terms.eta, right.eta), (terms.error, right.error),
            (terms.kappa, right.kappa),
        ]  # fmt: skip
        for one, other in pairs:
            assert one.dtype == dtype
            np.testing.assert_allclose(*np.broadcast_arrays(one, other), rtol=scale, atol=scale * np.abs(other).max())
        assert got.value.dtype == got.magnitude.dtype == np.float64
        if not layer.family.curvature_is_constant:
            np.testing.assert_allclose(got.magnitude, right.magnitude, rtol=10 * scale)


def test_constant_curvature_is_shared_by_a_batch():
    layer, data, q, _ = case("gaussian", data="shared sd")
    got, terms = statistics(layer, data, q, "elbo")
    assert terms.kappa.shape == (1, 9)
    assert got.curvature_sd.shape == got.information.shape == (1, 5)
    assert got.gradient.shape == (3, 5)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("family", FAMILIES)
def test_sums_over_parts_of_the_rows_add_up(family, data):
    layer, seen, q, W = case(family, data=data)
    whole, _ = statistics(layer, seen, q, "elbo")
    total = None
    for rows in (np.arange(4), np.arange(4, 5), np.arange(5, 9)):
        part = fmx.Layer(layer.family.take(rows), W[rows], layer.bias[rows])
        observed = None if seen.observed is None else seen.observed[:, rows]
        found, _ = statistics(part, Observations(seen.x[:, rows], observed, False), q, "elbo")
        total = found if total is None else total + found
    for field in fields(Statistics)[1:]:
        np.testing.assert_allclose(getattr(total, field.name), getattr(whole, field.name), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("family", FAMILIES)
def test_chosen_observations(family, data):
    layer, seen, q, _ = case(family, data=data)
    for kept in [[0]] if data == "single" else [[2, 0], [True, False, True]]:
        keep = np.array(kept)
        chosen = GaussianFactors(q.mean[keep], q.sd if len(q.sd) == 1 else q.sd[keep])
        got, _ = ENGINE.statistics(layer, ENGINE.observe(layer, seen).take(keep), chosen, Want.ALL, "fm")
        right, _ = statistics(layer, seen.take(keep), chosen, "fm")
        for field in fields(Statistics)[1:]:
            np.testing.assert_allclose(getattr(got, field.name), getattr(right, field.name), rtol=1e-12)


def test_the_forest_mixture_bound_lies_below():
    for family in FAMILIES:
        layer, data, q, _ = case(family)
        assert (
            statistics(layer, data, q, "fm", Want.VALUE)[0].value
            <= statistics(layer, data, q, "elbo", Want.VALUE)[0].value
        )


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("family", FAMILIES)
def test_row_terms_given_back_are_not_computed_again(family, objective, monkeypatch):
    layer, seen, q, _ = case(family)
    data = ENGINE.observe(layer, seen)
    right, terms = ENGINE.statistics(layer, data, q, Want.ALL, objective)
    monkeypatch.setattr("forestmix.engines.reference.row_terms", None)
    for flag in Want:
        got, same = ENGINE.statistics(layer, data, q, flag, objective, terms)
        assert same is terms
        for field in fields(Statistics)[1:]:
            one = getattr(got, field.name)
            assert one is None or (one == getattr(right, field.name)).all()


def test_what_is_not_wanted_is_not_there():
    layer, data, q, _ = case("poisson")
    got, _ = statistics(layer, data, q, "fm", Want.VALUE | Want.INFORMATION)
    assert got.gradient is None
    assert got.curvature_sd is None
    assert got.value is not None
    assert got.magnitude is not None
    with pytest.raises(ArgumentError, match=r"gradient must be there exactly if want has Want\.GRADIENT; it is"):
        Statistics(Want.GRADIENT)
    with pytest.raises(ArgumentError, match=r"value must .* it is given, but not wanted"):
        Statistics(Want.GRADIENT, value=np.zeros(1), gradient=np.zeros((1, 2)))
    with pytest.raises(ArgumentError, match="same kind"):
        got + statistics(layer, data, q, "fm", Want.VALUE)[0]


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
    got, terms = statistics(model.layers[0], data, GaussianFactors(np.ones((1, 1)), np.ones((1, 1))), "elbo")
    assert np.isfinite([got.value, got.gradient[0], got.curvature_sd[0], got.information[0]]).all()
    assert terms.kappa[0, 1] == 0
    full, _ = statistics(
        model.layers[0], observations(model, np.array([2.0, 3.0])), GaussianFactors(np.ones((1, 1)), np.ones((1, 1))),
        "elbo",
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
    got, _ = statistics(model.layers[0], observations(model, np.array([x])), q, "elbo", Want.VALUE)
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
    got, terms = statistics(identity, data, q, "elbo", Want.VALUE)
    log_p = layer.family.log_base(data.x) + layer.family.statistic(data.x) * eta - layer.family.log_partition(eta)
    np.testing.assert_allclose(terms.log_likelihood, log_p, rtol=1e-11)
    assert got.value == pytest.approx(log_p.sum(), rel=1e-11)


def test_rows_that_no_engine_knows():
    with pytest.raises(ArgumentError, match=r"kind of rows must be one of 1 \(quadratic\).*; got 7"):
        terms_of(7)

    class Unknown(fmx.Poisson):
        def primitive(self, x):
            return None

    class Strange(fmx.Poisson):
        def primitive(self, x):
            return super().primitive(x)._replace(kind=np.array(0))

    layer, data, _, _ = case("poisson")
    layer.family = Strange()
    with pytest.raises(ArgumentError, match="kind of rows must be one of"):
        ENGINE.observe(layer, data)
    layer.family = Unknown()
    with pytest.raises(ArgumentError, match=r"family must have rows that engines know.*got Unknown\(\)"):
        ENGINE.observe(layer, data)
    mixed = fmx.Mixed([fmx.Gaussian(1.0), Unknown()], [0, 1])
    assert mixed.primitive(np.ones((1, 2))) is None


def test_capabilities_are_checked():
    require(ENGINE, Capability.ARRAYS, "a torch tensor")
    with pytest.raises(ArgumentError, match=r"engine must offer coordinate sweeps.* for algorithm 'cavi'; 'reference'"):
        require(ENGINE, Capability.SWEEP, "algorithm 'cavi'")
