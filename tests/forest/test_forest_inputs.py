"""Forest mixtures on masked arrays and data frames, at extreme scales, and on one observation or many."""

import numpy as np
import pandas
import pytest
import scipy
from scipy import special, stats
from sklearn.datasets import load_iris

import forestmix as fmx
from forestmix.forest.parameters import observations_of
from forestmix.forest.stochastic import _statistics
from support.forest_models import log_density, log_given_parents, planted, small

FAMILIES = ["gaussian", "bernoulli", "poisson"]


def data(family="gaussian", N=40):
    return planted(6, 2, N, 1.0, 0, family)[0].astype(float)


def learned(X, **settings):
    return fmx.ForestMixtureModel(2, n_init=2, max_iter=10, random_state=0, **settings).fit(X)


@pytest.mark.parametrize("family", FAMILIES)
def test_masked_entries_are_missing(family):
    X = data(family)
    hidden = np.random.default_rng(1).random(X.shape) < 0.1
    masked, missing = np.ma.masked_array(X.astype(int if family != "gaussian" else float), hidden), X.copy()
    missing[hidden] = np.nan
    first, second = learned(masked, family=family), learned(missing, family=family)
    assert np.array_equal(first.weights_, second.weights_)
    for method in ("transform", "score", "score_samples", "elbo", "fit_transform"):
        assert np.array_equal(getattr(first, method)(masked), getattr(second, method)(missing)), method
    assert np.array_equal(first.infer(masked).mean, second.infer(missing).mean)
    assert first.elbo(masked[0]) == second.elbo(missing[0])


def test_masked_observations_are_selected_on_without_their_masked_entries():
    X = np.ma.masked_array(data(), np.random.default_rng(1).random((40, 6)) < 0.1)
    model = fmx.ForestMixtureModel(n_init=1, n_moves=0, max_iter=3, random_state=0)
    chosen = [fmx.select_n_trees(given, [1, 2], model=model, folds=2).scores for given in (X, X.filled(np.nan))]
    assert np.array_equal(*chosen)


def test_data_frames_may_mix_flags_counts_and_gaps():
    X = np.round(data())
    frame = pandas.DataFrame({f"x{i}": X[:, i] for i in range(6)}).astype({"x1": "Int64", "x2": int})
    frame["x3"] = X[:, 3] > 0
    frame.loc[3, "x1"] = None
    plain = X.copy()
    plain[:, 3], plain[3, 1] = X[:, 3] > 0, np.nan
    model, other = learned(frame), learned(plain)
    assert np.array_equal(model.weights_, other.weights_)
    assert np.array_equal(model.transform(frame), other.transform(plain))
    frame.columns = [*frame.columns[:5], 5]  # not all of them names, which scikit-learn alone would refuse
    assert np.array_equal(learned(frame).weights_, other.weights_)
    frame.columns = model.names()
    assert model.names() == list(frame.columns)
    frame["x5"] = "a"
    with pytest.raises(fmx.ArgumentError, match="X must hold real numbers; column 'x5' holds 'a'"):
        model.transform(frame)


@pytest.mark.parametrize("family", FAMILIES)
def test_missing_entries_have_no_vote_on_the_prior_of_the_parents(family):
    """Also in minibatches: what was not seen would only draw the shares towards the prior that they are to replace."""
    model = small(family, np.random.default_rng(3), parents="observation")
    X = model.sample(20, 3).x.astype(float)
    X[:10, 0] = np.nan
    forest, r = model._forest, model.responsibilities_
    all_rows, seen = (observations_of(part, forest.family) for part in (X, X[10:]))
    shares, alone = (_statistics(forest, part, r, shared=False)[-1] for part in (all_rows, seen))
    assert shares[0] == pytest.approx(alone[0], abs=1e-12)
    assert shares.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("parents", ["shared", "observation"])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_observation_ends_as_it_would_alone(family, parents):
    for seed in (1, 2):
        model = small(family, np.random.default_rng(seed), n=8, m=3, parents=parents)
        X = model.sample(25, rng=seed).x.astype(float)
        if seed == 2:
            X[np.random.default_rng(seed).random(X.shape) < 0.2] = np.nan
        together, scores = model.transform(X), model.score_samples(X)
        for part in ([0], [7], [3, 11, 20], list(range(0, 25, 2))):
            assert model.transform(X[part]) == pytest.approx(together[part], abs=1e-9)
            assert model.score_samples(X[part]) == pytest.approx(scores[part], abs=1e-9)


def elbo_of_one(model, x, mean, sd):
    """The ELBO of one observation with its own parents at their best, by Gauss-Hermite quadrature and SciPy alone."""
    node, weight = np.polynomial.hermite_e.hermegauss(80)
    n, m = model.weights_.shape
    expected = [
        [weight @ log_density(model, x[i], i, j, mean[j] + sd[j] * node) / weight.sum() for j in range(m)]
        for i in range(n)
    ]
    fit = special.logsumexp(np.log(model.parent_prior_) + expected, axis=1).sum()
    grid = stats.norm.entropy(scale=sd) - 0.5 * (mean**2 + sd**2) - 0.5 * np.log(2 * np.pi)
    return fit + grid.sum()


@pytest.mark.parametrize("family", FAMILIES)
def test_parents_per_observation_end_at_an_optimum(family):
    """No small change of a mean or an sd raises the bound, and its slope there is zero."""
    model = small(family, np.random.default_rng(4), parents="observation")
    X = model.sample(3, rng=4).x.astype(float)
    found, step = model.infer(X), 1e-4
    assert found.converged
    for x, mean, sd in zip(X, found.mean, found.sd, strict=True):
        for j in range(2):
            for change in ((step, 0.0), (0.0, step)):
                moved = [np.where(np.arange(2) == j, d, 0.0) for d in change]
                ends = [elbo_of_one(model, x, mean + s * moved[0], sd + s * moved[1]) for s in (-1, 1)]
                assert (ends[1] - ends[0]) / (2 * step) == pytest.approx(0, abs=2e-6)
                assert max(ends) <= elbo_of_one(model, x, mean, sd) + 1e-10
    assert found.elbo == pytest.approx(sum(map(elbo_of_one, [model] * 3, X, found.mean, found.sd)), abs=1e-8)


@pytest.mark.parametrize("parents", ["shared", "observation"])
def test_the_scale_of_the_data_does_not_matter_up_to_the_limit(parents):
    X = data()
    reference = learned(X, parents=parents)
    for scale in (1e-138, 1e-60, 1e75, 1e139 / np.abs(X).max(), 10.0 ** np.array([138, 0, -138, 1, 137, -130])):
        model = learned(X * scale, parents=parents)
        found = [model.weights_, model.noise_, model.strengths_, model.elbo_, model.score_samples(X * scale)]
        found += [model.get_covariance().toarray(), model.get_covariance().logdet(), model.sample(2, rng=0).x]
        assert all(np.isfinite(part).all() for part in found)
        assert model.transform(X * scale) == pytest.approx(reference.transform(X), abs=1e-9)


def test_steep_counts_are_inferred_and_scored():
    """Under the prior of the latent the rates of these leaves are up to exp(300)."""
    model = fmx.ForestMixtureModel.from_parameters([[24.0], [0.5]], [1.0, 0.0], family="poisson")
    X = np.array([[3.0, 1.0], [0.0, 0.0], [0.0, 9.0]])
    exact = [log_given_parents(model, x, [0, 0]) for x in X]
    assert model.score_samples(X) == pytest.approx(exact, abs=0.02)
    assert sum(exact) - 1.5 < model.elbo(X) < sum(exact)


def test_counts_that_overflow_under_the_prior_have_a_finite_elbo():
    model = fmx.ForestMixtureModel.from_parameters([[100.0], [0.5]], family="poisson")
    assert np.isfinite(model.elbo([[3.0, 1.0]]))


@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("largest", [1e4, 1e9])
def test_one_very_large_count(largest, batch_size):
    """A Newton step to it would overflow, and has to be cut."""
    rng = np.random.default_rng(0)
    X = rng.poisson(np.exp(rng.standard_normal((30, 5)))).astype(float)
    X[0, 0] = largest
    settings = {"family": "poisson", "n_init": 3, "max_iter": 15, "random_state": 0}
    model = fmx.ForestMixtureModel(2, batch_size=batch_size, **settings).fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    if batch_size is None:
        assert model.elbo(X) > model.elbo_ - 5
        assert model.score(X) * len(X) > model.elbo(X) - 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("parents", ["shared", "observation"])
def test_a_tree_that_no_variable_wants_keeps_its_prior(family, parents):
    model = fmx.ForestMixtureModel.from_parameters(
        [[1.0, 2.0], [1.0, 2.0]], parent_prior=[[1.0, 0.0], [1.0, 0.0]], family=family, parents=parents
    )
    found = model.infer([[1.0, 0.0], [0.0, np.nan]])
    assert (found.mean[:, 1] == 0).all()
    assert (found.sd[:, 1] == 1).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_parents_per_observation_are_found_again(family):
    """Also where leaves are so precise that latents as wide as their prior would tell nothing of the parents."""
    X = load_iris().data if family == "gaussian" else data(family)
    model = fmx.ForestMixtureModel(3, family=family, parents="observation", n_init=2, max_iter=60, random_state=0).fit(
        X
    )
    assert model.elbo(X) > model.elbo_ - 0.001 * len(X)
    assert model.score_samples(X).sum() == pytest.approx(model.elbo(X))


BEYOND = {
    "fit": (lambda: learned(data() * 1e154), r"X must lie between -1e\+140 and 1e\+140.* at index \(0, 0\). Divide"),
    "transform": (lambda: learned(data()).transform(data() * 1e200), "X must lie between"),
    "other units": (
        lambda: learned(data() * 1e-100).score(data() * 1e100),
        "X in standard deviations must lie between",
    ),
    "counts": (lambda: learned(np.full((4, 2), 1e120), family="poisson"), r"X must lie between -1e\+100"),
    "tiny": (lambda: learned(data() * 1e-160), "X must vary by at least 1e-140 .* in column 0. Divide"),
    "weights": (lambda: fmx.ForestMixtureModel.from_parameters([[1e200]]), "weights must lie between"),
    "noise": (lambda: fmx.ForestMixtureModel.from_parameters([[1.0]], noise=1e-200), "noise must be at least 1e-140"),
    # Arguments that were not named, or were accepted.
    "random_state": (lambda: fmx.ForestMixtureModel(random_state=-1).fit(data()), "random_state must be .* got -1"),
    "random_state flag": (
        lambda: fmx.ForestMixtureModel(random_state=True).fit(data()),
        "random_state must .* got True",
    ),
    "verbose": (lambda: fmx.ForestMixtureModel(verbose="x").fit(data()), "verbose must be a whole number"),
    "family": (lambda: fmx.ForestMixtureModel(family=[]).fit(data()), "family must be one of"),
    "temperature": (lambda: fmx.ForestMixtureModel(temperature=10**400).fit(data()), "temperature must be a number"),
    "ragged": (lambda: fmx.ForestMixtureModel().fit([[1.0], [1.0, 2.0]]), "X must hold real numbers"),
    "huge": (lambda: fmx.ForestMixtureModel().fit([[10**400]]), "X must hold real numbers"),
    "sparse": (
        lambda: learned(scipy.sparse.csr_array(data())),
        "X must hold real numbers, observations by variables; Sparse data .* dense",
    ),
    "vector": (lambda: learned(data()[0]), "X must hold real numbers, observations by variables; Expected 2D"),
    "columns": (lambda: learned(data()).transform(data()[:, :2]), "X has 2 features, but .* is expecting 6"),
    "wide": (lambda: learned(np.full((2, 2), np.longdouble("1e4000"))), "X does not fit float64"),
    "objects": (lambda: fmx.ForestMixtureModel().fit([[object()]]), "X must hold real numbers"),
    "infer max_iter": (lambda: learned(data()).infer(data(), max_iter=0), "max_iter must be a positive integer; got 0"),
    "infer tol": (lambda: learned(data()).infer(data(), tol=np.nan), "tol must be a number of at least 0; got nan"),
    "q": (lambda: learned(data()).elbo(data(), 3), "q must have a mean and an sd or be a pair of them; got 3"),
    "sd of q": (lambda: learned(data()).elbo(data(), ([0, 0], [1, -1])), "sd of q must be greater than 0; got -1"),
    "mean of q": (
        lambda: learned(data()).elbo(data(), ([0, np.nan], [1, 1])),
        "mean of q must be finite; got 1 entries",
    ),
    "shape of q": (lambda: learned(data()).elbo(data(), ([0], [1])), r"mean of q must have shape \(2,\) or \(40, 2\)"),
    "n_samples": (lambda: learned(data()).sample(True), "n_samples must be a positive integer; got True"),
    "rng": (lambda: learned(data()).sample(2, rng=-1), "rng must be .* got -1"),
    "names": (lambda: learned(data()).names(3), "names must be a list of names"),
    "axes": (lambda: learned(data()).plot(axes=3), "axes must be matplotlib axes; got int"),
    "image_shape": (lambda: learned(data()).plot_parents(6), "image_shape must be the height and width"),
    "parent axes": (
        lambda: learned(data()).plot_parents((2, 3), [1, 2]),
        "axes must be 2 matplotlib axes; got int, int",
    ),
    "nodes": (lambda: learned(data()).to_networkx(list("abcdea")), "names must differ, .* got 'a' twice"),
    "candidates": (lambda: fmx.select_n_trees(data(), 3), "candidates must be a list of numbers of trees.* got 3"),
    "candidate": (lambda: fmx.select_n_trees(data(), [1.5]), "every entry of candidates must be a positive integer"),
    "model": (lambda: fmx.select_n_trees(data(), [1], model=3), "model must be a ForestMixtureModel or None; got int"),
    "X": (lambda: fmx.select_n_trees(None, [1]), "X must"),
    "auxiliary": (
        lambda: fmx.ForestMixtureModel.from_bound(fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), [[1.0]])), ([0], [1]), 3),
        "auxiliary must be a forestmix.Auxiliary",
    ),
}


@pytest.mark.parametrize("case", BEYOND)
def test_what_cannot_be_used_is_refused_by_name(case):
    action, words = BEYOND[case]
    with pytest.raises(fmx.ArgumentError, match=words):
        action()
