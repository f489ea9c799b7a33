"""Leaving rows out: closed forms and brute-force refits; the integrals against mpmath and SciPy."""

import mpmath
import numpy as np
import pytest
from scipy import optimize, special, stats
from sklearn.datasets import load_breast_cancer

import forestmix as fmx
from forestmix.families import Bernoulli, Binomial, Gaussian, Mixed, Poisson
from forestmix.posterior.compare import stacking
from forestmix.posterior.row_integrals import log_density, log_predictive
from support import deep_oracles, known_models, oracles

#: (x, mean, sd) of eta: rows narrow and wide beside it, far in the tails, certain, and hardly seen.
CASES = {
    "poisson": [
        (0, 0.3, 0.5), (0, 2.0, 30.0), (7, 1.0, 0.01), (3, -20.0, 2.0), (0, 5.0, 0.5),
        (10**6, 12.0, 3.0), (40, 3.0, 1e3),
    ],
    "binomial": [(0, 0.3, 0.5), (9, 0.3, 0.5), (4, -3.0, 20.0), (2, 8.0, 0.3), (0, 30.0, 0.2), (5, 0.0, 1e3)],
    "bernoulli": [(0, 0.3, 0.5), (1, -30.0, 2.0), (0, 30.0, 0.3), (1, 2.0, 100.0), (0, -40.0, 1.0)],
}  # fmt: skip
FAMILIES = {"poisson": Poisson(), "binomial": Binomial(9), "bernoulli": Bernoulli()}


def exact_log_predictive(name, x, mean, sd):
    """log of the integral with 30 digits, in pieces around the mode."""
    x, m, s = mpmath.mpf(x), mpmath.mpf(mean), mpmath.mpf(sd)
    trials = {"binomial": 9, "bernoulli": 1}.get(name)

    def log_p(eta):
        if name == "poisson":
            return x * eta - mpmath.exp(eta) - mpmath.loggamma(x + 1)
        return x * eta - trials * mpmath.log1p(mpmath.exp(eta)) + mpmath.log(mpmath.binomial(trials, x))

    def joint(eta):
        return log_p(eta) - ((eta - m) / s) ** 2 / 2

    with mpmath.workdps(30):
        low, high = m - 60 * s - 60, m + 60 * s + 60
        for _ in range(300):  # the mode, by golden section in thirds
            a, b = low + (high - low) / 3, high - (high - low) / 3
            low, high = (a, high) if joint(a) < joint(b) else (low, b)
        mode = (low + high) / 2
        ends = []
        for side in (-1, 1):
            near, far = mpmath.mpf(0), 100 * s + 100
            for _ in range(80):
                middle = (near + far) / 2
                near, far = (middle, far) if joint(mode) - joint(mode + side * middle) < 60 else (near, middle)
            ends.append(far)
        points = [mode - ends[0] * k / 8 for k in range(8, 0, -1)] + [mode + ends[1] * k / 8 for k in range(9)]
        total = mpmath.quad(lambda eta: mpmath.exp(joint(eta) - joint(mode)), points)
        return float(joint(mode) + mpmath.log(total / (s * mpmath.sqrt(2 * mpmath.pi))))


@pytest.mark.parametrize("name", CASES)
def test_integrals_at_all_scales(name):
    for x, mean, sd in CASES[name]:
        found = log_predictive(FAMILIES[name], np.array([[float(x)]]), np.array([[mean]]), np.array([[sd**2]]))[0, 0]
        assert found == pytest.approx(exact_log_predictive(name, x, mean, sd), rel=1e-8, abs=1e-8), (x, mean, sd)


def test_integrals_without_spread_and_of_gaussian_rows():
    eta, x = np.array([[-1.0, 0.5, 2.0]]), np.array([[0.0, 1.0, 4.0]])
    none = np.zeros((1, 3))
    assert log_predictive(Poisson(), x, eta, none) == pytest.approx(stats.poisson(np.exp(eta)).logpmf(x), rel=1e-9)
    assert log_predictive(Gaussian(0.5), x, eta, none + 2) == pytest.approx(stats.norm(eta, 1.5).logpdf(x), rel=1e-12)
    assert log_density(Binomial(9), x, eta) == pytest.approx(stats.binom(9, special.expit(eta)).logpmf(x), rel=1e-9)
    assert log_density(Gaussian(0.5), x, eta) == pytest.approx(stats.norm(eta, 0.5).logpdf(x), rel=1e-12)


def refitted(model, x, rows, init=None, tol=1e-8):
    """The predictive density of each row by a run without it, with the same integral."""
    layer, found = model.layers[0], []
    W, bias = layer.weights.toarray(), np.broadcast_to(layer.bias, len(x))
    for i in rows:
        without = x.copy()
        without[i] = np.nan
        posterior = fmx.infer(model, without, tol=tol, init=init).posterior()
        mean, variance = W[i] @ posterior.mean + bias[i], posterior.variance(W[i])
        family = layer.family.take(np.array([i]))
        if isinstance(family, Mixed):
            family = family.families[family.which[0]]
        one = log_predictive(family, x[None, i : i + 1], np.array([[mean]]), np.array([[variance]]))
        found.append(one[0, 0])
    return np.array(found)


def test_gaussian_rows_equal_the_closed_form():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((12, 5))
    model, x, *_ = known_models.model_of(W, rng)
    layer, prior = model.layers[0], model.prior
    loo = fmx.infer(model, x).posterior().loo()
    for i in range(12):
        rest = np.arange(12) != i
        mean, covariance = oracles.posterior(
            W[rest], layer.bias[rest], layer.family.sd[rest], prior.bias, prior.family.sd, x[rest]
        )
        sd = np.sqrt(W[i] @ covariance @ W[i] + layer.family.sd[i] ** 2)
        assert loo.pointwise[i] == pytest.approx(stats.norm.logpdf(x[i], W[i] @ mean + layer.bias[i], sd), rel=1e-9)
    assert loo.elpd == pytest.approx(loo.pointwise.sum())
    assert loo.se == pytest.approx(np.sqrt(12 * loo.pointwise.var(ddof=1)))
    assert not len(loo.untrusted)
    assert "all to be trusted" in repr(loo)


@pytest.mark.parametrize("name", [*FAMILIES, "mixed"])
@pytest.mark.parametrize("seed", [0, 1])
def test_within_a_percent_of_refits(name, seed):
    rng = np.random.default_rng(seed)
    n = 45
    family = FAMILIES.get(name) or Mixed([Gaussian(0.8), Poisson(), Binomial(9)], np.arange(n) % 3)
    model = fmx.DEF(fmx.Layer(family, 0.6 * rng.standard_normal((n, 5)), 0.3))
    x = model.sample(rng).x
    loo = fmx.infer(model, x).posterior().loo()
    right = refitted(model, x, range(n))
    assert loo.elpd == pytest.approx(right.sum(), rel=0.01)
    trusted = np.setdiff1d(np.arange(n), loo.untrusted)
    assert np.abs(loo.pointwise - right)[trusted].max() < 0.1


def test_breast_cancer_within_a_percent_of_refits():
    data = load_breast_cancer()
    X = np.c_[np.ones(569), (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)]
    model = fmx.DEF(fmx.Layer(Bernoulli(), X))
    x = data.target.astype(float)
    result = fmx.infer(model, x)
    loo = result.posterior().loo()
    # The rows that are hardest to predict make up half of the sum; and some of the others.
    rows = np.unique([*np.argsort(loo.pointwise)[:10], *loo.untrusted, 0, 100])
    right = refitted(model, x, rows, result, 1e-4)
    assert loo.pointwise[rows].sum() == pytest.approx(right.sum(), rel=0.01)
    assert loo.pointwise[rows].sum() < 0.5 * loo.elpd
    assert set(loo.untrusted) == set(np.flatnonzero(loo.leverage > 0.5))
    assert f"{len(loo.untrusted)} not to be trusted" in repr(loo)


def test_missing_entries_batches_and_deep_models():
    rng = np.random.default_rng(2)
    model, (W, b, sd, top) = deep_oracles.deep_gaussian(rng, 2)
    x = model.sample(rng, 2).x
    x[1, 4] = np.nan
    loo = fmx.infer(model, x).posterior().loo()
    assert len(loo.pointwise) == 2 * 9 - 1
    assert [1, 4] not in loo.rows.tolist()
    for (k, i), found in zip(loo.rows, loo.pointwise, strict=True):
        seen = ~np.isnan(x[k]) & (np.arange(9) != i)
        part = [W[0][seen], W[1]], [b[0][seen], b[1]], [sd[0][seen], sd[1]]
        mean, covariance, _ = deep_oracles.deep_posterior(*part, top, x[k, seen])
        row = np.concatenate([W[0][i], np.zeros(len(mean) - W[0].shape[1])])
        spread = np.sqrt(row @ covariance @ row + np.broadcast_to(sd[0], 9)[i] ** 2)
        assert found == pytest.approx(
            stats.norm.logpdf(x[k, i], row @ mean + np.broadcast_to(b[0], 9)[i], spread), rel=1e-8
        )


def test_a_row_alone_in_its_latent_is_exact_for_gaussian_rows_and_in_doubt_for_others():
    W = np.eye(4)
    gaussian = fmx.DEF(fmx.Layer(Gaussian(0.01), W), prior=fmx.Prior(Gaussian(2.0), 1.0))
    loo = fmx.infer(gaussian, np.arange(4.0)).posterior().loo()
    assert loo.pointwise == pytest.approx(stats.norm(1, np.hypot(2, 0.01)).logpdf(np.arange(4.0)), rel=1e-9)
    assert not len(loo.untrusted)
    counts = fmx.DEF(fmx.Layer(Poisson(), W, 4.0))
    loo = fmx.infer(counts, np.array([50.0, 3.0, 400.0, 60.0])).posterior().loo()
    assert loo.untrusted.tolist() == [0, 1, 2, 3]


def test_a_factorised_posterior_has_none():
    result = fmx.infer(fmx.DEF(fmx.Layer(Gaussian(), np.eye(3))), np.ones(3))
    with pytest.raises(fmx.ForestmixError, match=r"Use result.posterior\(\).loo\(\)"):
        result.posterior("factorised").loo()


# Comparing models.


def regressions(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((80, 4))
    x = rng.poisson(np.exp(0.5 + X[:, 0])).astype(float)
    columns = {"right": X[:, :1], "none": X[:, 3:], "all": X}
    return {
        name: fmx.infer(fmx.DEF(fmx.Layer(Poisson(), np.c_[np.ones(80), part])), x).posterior()
        for name, part in columns.items()
    }, x


def test_stacking_weights_are_the_best_mixture():
    """Held to SciPy's own maximum; a case of weight 2 is the case twice, one of weight 0 is not there."""
    rng = np.random.default_rng(0)
    logs, cases = rng.normal(size=(3, 40)), rng.integers(0, 3, 40)
    logs[2] -= 3
    found = stacking(cases * logs, cases)
    repeated = np.repeat(logs, cases, axis=1)

    def loss(free):
        shares = special.softmax(np.append(free, 0.0))
        return -np.sum(np.log(shares @ np.exp(repeated)))

    best = optimize.minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    shares = special.softmax(np.append(best.x, 0.0))
    np.testing.assert_allclose(found, shares, atol=5e-3)
    assert -loss(np.log(found[:2] / found[2])) > -best.fun - 40 * 2e-6
    np.testing.assert_allclose(found, stacking(repeated), rtol=1e-9)
    assert stacking(logs[:1]).tolist() == [1.0]


def test_comparison():
    fits, _ = regressions()
    table = fmx.compare(fits)
    loos = {name: fit.loo() for name, fit in fits.items()}
    assert table.names == sorted(loos, key=lambda name: -loos[name].elpd)
    assert table.names[-1] == "none"
    best = loos[table.names[0]]
    for k, name in enumerate(table.names):
        difference = loos[name].pointwise - best.pointwise
        assert table["elpd"][k] == pytest.approx(loos[name].elpd)
        assert table["difference"][k] == pytest.approx(difference.sum())
        assert table["se of difference"][k] == pytest.approx(np.sqrt(80 * difference.var(ddof=1)), abs=1e-12)
        assert table["se"][k] == pytest.approx(loos[name].se)
    assert table["weight"].sum() == pytest.approx(1)
    assert (fmx.compare(loos)["elpd"] == table["elpd"]).all(), "posteriors and their loo alike"
    assert "leaving one of 80 rows out" in str(table)
    assert "<table>" in table._repr_html_()
    assert list(table.to_pandas().index) == table.names


def test_comparison_refuses_other_data():
    fits, x = regressions()
    other = fmx.infer(fits["right"].model, np.where(np.arange(80) == 3, x + 1, x)).posterior()
    missing = fmx.infer(fits["right"].model, np.where(np.arange(80) == 3, np.nan, x)).posterior()
    for wrong in (other, missing):
        with pytest.raises(fmx.ArgumentError, match="same observations to be compared; 'a' has 80 rows, and 'b' has"):
            fmx.compare({"a": fits["right"], "b": wrong})


def test_trials_are_part_of_the_data_that_models_are_compared_on():
    x, W = np.arange(6) % 2, np.ones((6, 1))

    def fitted(family):
        return fmx.infer(fmx.DEF(fmx.Layer(family, W)), x).posterior()

    several = fitted(fmx.Binomial(np.arange(1, 7)))
    fmx.compare({"a": several, "b": fitted(fmx.Binomial(np.arange(1, 7)))})
    fmx.compare({"a": fitted(fmx.Bernoulli()), "b": fitted(fmx.Binomial(1))})
    with pytest.raises(fmx.ArgumentError, match="trials"):
        fmx.compare({"a": several, "b": fitted(fmx.Bernoulli())})
