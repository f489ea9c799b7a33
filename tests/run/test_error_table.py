"""A table of bad input: each names the argument, what was given, and what would be right."""

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx

W = np.array([[1.0, 0.5], [0.0, 2.0], [1.0, -1.0]])
X = np.zeros(3)


def model():
    return fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W, 0.0))


def latent(rows, latents):
    return fmx.DEF(fmx.Layer(rows, W, 0.0), prior=fmx.Prior(latents))


def deep():
    return fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W), fmx.Layer(fmx.Gaussian(1.0), np.ones((2, 1))))


def nan_at(array, index):
    copy = np.array(array, float)
    copy[index] = np.nan
    return copy


TABLE = {
    # Families and priors.
    "sd zero": (lambda: fmx.Gaussian(sd=0.0), "sd must be greater than 0; got 0.0"),
    "sd negative": (lambda: fmx.Gaussian(sd=[1.0, -2.0]), "sd must be greater than 0; got -2.0"),
    "sd NaN": (lambda: fmx.Gaussian(sd=np.nan), "sd must be finite"),
    "sd words": (lambda: fmx.Gaussian(sd="wide"), "sd must hold real numbers"),
    "sd matrix": (lambda: fmx.Gaussian(sd=np.ones((2, 2))), r"sd must be .* got an array of shape \(2, 2\)"),
    "sd empty": (lambda: fmx.Gaussian(sd=[]), "sd must be .* got an empty array"),
    "sd length": (lambda: fmx.Layer(fmx.Gaussian([1.0, 1.0]), W), "each of the 3 rows of W; got 2"),
    "family missing": (lambda: fmx.Layer(W, W), "family must be a family such as"),
    "prior bias length": (
        lambda: fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W), prior=fmx.Prior(bias=[0.0] * 3)),
        "bias must be .* each of the 2 latents .* got 3",
    ),
    "prior sd length": (
        lambda: fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W), prior=fmx.Prior(fmx.Gaussian([1.0] * 5))),
        "each of the 2 latents .* got 5",
    ),
    "prior type": (
        lambda: fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W), prior=fmx.Gaussian()),
        "prior must be a forestmix.Prior",
    ),
    # Weights and biases; tests/weights has a longer table.
    "W one axis": (lambda: fmx.Layer(fmx.Gaussian(1.0), np.ones(3)), "W must"),
    "W not finite": (lambda: fmx.Layer(fmx.Gaussian(1.0), nan_at(W, (1, 0))), "W must"),
    "W sparse not finite": (lambda: fmx.Layer(fmx.Gaussian(1.0), sparse.csr_array(nan_at(W, (1, 0)))), "W must"),
    "W empty": (lambda: fmx.Layer(fmx.Gaussian(1.0), np.ones((0, 3))), "W must"),
    "W words": (lambda: fmx.Layer(fmx.Gaussian(1.0), [["a"]]), "W must"),
    "windows overflow": (lambda: fmx.windows((2**33, 2**33), 3), "windows is too large: integer overflow of sizes"),
    "convolution overflow": (
        lambda: fmx.Convolution(np.ones((1, 1, 3, 3)), (2**40, 2**40)),
        "Convolution is too large: integer overflow",
    ),
    "b length": (lambda: fmx.Layer(fmx.Gaussian(1.0), W, [0.0, 0.0]), "b must be .* each of the 3 rows of W; got 2"),
    "b not finite": (lambda: fmx.Layer(fmx.Gaussian(1.0), W, np.inf), "b must be finite"),
    "b at": (lambda: fmx.Layer(fmx.Gaussian(1.0), W, [0.0, np.nan, 0.0]), "the first nan at index 1"),
    # Models.
    "no layers": (lambda: fmx.DEF(), "layers must hold at least one Layer"),
    "layer type": (lambda: fmx.DEF(W), r"layers\[0\] must be a forestmix.Layer; got ndarray"),
    "layers that do not fit": (
        lambda: fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W), fmx.Layer(fmx.Gaussian(1.0), W)),
        r"layers\[1\] must have 2 rows, one for each column of W in layers\[0\]; got 3",
    ),
    "layers of two precisions": (
        lambda: fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W), fmx.Layer(fmx.Gaussian(1.0), W.T.astype(np.float32))),
        "one precision",
    ),
    "rows of a prior's family": (lambda: fmx.Layer(fmx.Laplace(), W), "can only be the prior on top"),
    "top bias length": (
        lambda: fmx.DEF(
            fmx.Layer(fmx.Gaussian(1.0), W), fmx.Layer(fmx.Gaussian(1.0), W.T), prior=fmx.Prior(bias=[0.0, 0.0])
        ),
        "bias must be .* each of the 3 topmost latents",
    ),
    "level": (lambda: model().prior_predictive(level=1.5), "level must be a number between 0 and 1; got 1.5"),
    # Latents of other families.
    "inclusion": (lambda: fmx.SpikeSlab(inclusion=1.0), "inclusion must lie strictly between 0 and 1; got 1.0"),
    "rate": (lambda: fmx.Exponential(rate=0.0), "rate must be greater than 0; got 0.0"),
    "scale": (lambda: fmx.Laplace(scale=[1.0, -1.0]), "scale must be greater than 0; got -1.0"),
    "exponential bias": (lambda: fmx.Prior(fmx.Exponential(), 1.0), "bias must be 0 for an Exponential prior"),
    "too many trials to draw": (
        lambda: fmx.Binomial(2.0**63).sample(np.zeros(1), np.random.default_rng(0)),
        r"trials must be below 2\^63 to draw counts, which are 64-bit integers; got 9.22337e\+18",
    ),
    "exponential biases": (lambda: fmx.Prior(fmx.Exponential(), [0.0, -1.0]), "has no location; got -1.0"),
    "binomial latents": (
        lambda: fmx.infer(latent(fmx.Gaussian(1.0), fmx.Binomial(3)), X),
        "latents must be Gaussian, Bernoulli, Poisson, Exponential, Laplace, SpikeSlab",
    ),
    "no bound": (
        lambda: fmx.infer(latent(fmx.Poisson(), fmx.Laplace()), X),
        "no bound for Poisson.* rows .* under Laplace.* latents. Gaussian rows take latents of every family",
    ),
    "no bound for mixed rows": (
        lambda: fmx.elbo(
            latent(fmx.Mixed([fmx.Gaussian(1.0), fmx.Poisson()], [0, 1, 0]), fmx.Bernoulli()), X, [0.5, 0.5]
        ),
        "There is no bound for Mixed",
    ),
    "damped binary": (
        lambda: fmx.infer(latent(fmx.Gaussian(1.0), fmx.Bernoulli()), X, "damped"),
        "algorithm must be 'fm' or 'cavi' for latents that are not Gaussian; got 'damped'",
    ),
    "greedy binary": (
        lambda: fmx.infer(latent(fmx.Gaussian(1.0), fmx.Bernoulli()), X, fmx.CAVI("greedy")),
        "order must be 'cyclic' or 'random'",
    ),
    "elbo of counts in parallel": (
        lambda: fmx.infer(latent(fmx.Bernoulli(), fmx.Bernoulli()), X, objective="elbo"),
        "objective must be 'auto' or 'fm' for parallel steps of counts",
    ),
    "groups of binary": (
        lambda: fmx.infer(latent(fmx.Gaussian(1.0), fmx.Bernoulli()), X, fmx.ForestMixture(groups=[[0], [1]])),
        "groups must be None for latents that are not Gaussian",
    ),
    "groups of a deep model": (
        lambda: fmx.infer(deep(), X, fmx.ForestMixture(groups=[[0, 1], [2]])),
        "groups must be None for deep models",
    ),
    "schedule": (lambda: fmx.ForestMixture(schedule="red-blue"), "Did you mean 'red-black'"),
    "init of a deep model": (
        lambda: fmx.infer(deep(), X, init=(np.zeros(2), np.ones(2), 3)),
        "init must be a Result or hold one entry for each of the 2 latent layers; got 3 entries",
    ),
    "init of binary latents": (
        lambda: fmx.infer(latent(fmx.Gaussian(1.0), fmx.Bernoulli()), X, init=[0.5, 1.5]),
        "probabilities of init must lie between 0 and 1",
    ),
    "init of binary latents below 0": (
        lambda: fmx.infer(latent(fmx.Gaussian(1.0), fmx.Bernoulli()), X, init=[0.5, -1.0]),
        "probabilities of init must lie between 0 and 1; got -1.0",
    ),
    "init of a prior's family": (
        lambda: fmx.infer(latent(fmx.Gaussian(1.0), fmx.Laplace()), X, init=(np.zeros(2), np.ones(2))),
        "init must be from a Result for Laplace",
    ),
    "init of another family": (
        lambda: fmx.infer(
            latent(fmx.Gaussian(1.0), fmx.Laplace()), X, init=fmx.infer(latent(fmx.Gaussian(1.0), fmx.Bernoulli()), X)
        ),
        "must hold LaplaceFactors",
    ),
    "auxiliary of a deep model": (
        lambda: fmx.optimal_auxiliary(deep(), None),
        "optimal_auxiliary is for models with one layer of Gaussian latents",
    ),
    "evidence": (lambda: fmx.log_evidence(latent(fmx.Gaussian(1.0), fmx.Laplace()), X), "for an exact evidence; got"),
    "corrected sd": (
        lambda: fmx.infer(latent(fmx.Gaussian(1.0), fmx.Laplace()), X).posterior(),
        "needs Gaussian latents; these are Laplace.* kind='factorised'",
    ),
    "summary layer": (
        lambda: fmx.infer(deep(), X).posterior().summary(layer=2),
        "layer must be a whole number from 0 to 1",
    ),
    "interval": (lambda: fmx.infer(model(), X).layers[0].interval(0), "level must be a number between 0 and 1; got 0"),
    "sample size": (lambda: model().sample(0, size=0), "size must be a positive integer"),
    "rng": (lambda: model().sample("seed"), "rng must be a numpy.random.Generator"),
    # Observations.
    "x length": (
        lambda: fmx.infer(model(), np.zeros(4)),
        r"x must have shape \(3,\) or \(N, 3\) for this model; got \(4,\)",
    ),
    "x transposed": (lambda: fmx.infer(model(), np.zeros((3, 5))), r"x must have shape .* got \(3, 5\)"),
    "x three axes": (lambda: fmx.infer(model(), np.zeros((1, 1, 3))), "x must have shape"),
    "x empty": (lambda: fmx.infer(model(), np.zeros((0, 3))), "x must hold at least one observation"),
    "x infinite": (lambda: fmx.infer(model(), [0.0, np.inf, 0.0]), "x must be finite"),
    "x ragged": (lambda: fmx.infer(model(), [[1.0], [1.0, 2.0]]), "x must be an array of numbers"),
    "x complex": (lambda: fmx.infer(model(), X + 1j), "x must hold real numbers; got dtype complex128"),
    "model type": (lambda: fmx.infer(W, X), "model must be a forestmix.DEF; got ndarray"),
    # Options of infer.
    "algorithm": (lambda: fmx.infer(model(), X, "cavy"), "Did you mean 'cavi'"),
    "algorithm case": (lambda: fmx.infer(model(), X, "CAVI"), "Did you mean 'cavi'"),
    "algorithm far": (lambda: fmx.infer(model(), X, "adam"), "algorithm must be one of 'block', 'cavi'"),
    "objective": (lambda: fmx.infer(model(), X, objective="elbow"), "Did you mean 'elbo'"),
    "objective of cavi": (lambda: fmx.infer(model(), X, "cavi", objective="fm"), "must be 'auto' or 'elbo'"),
    "option with object": (
        lambda: fmx.infer(model(), X, fmx.ForestMixture(), objective="fm"),
        "set them on the object",
    ),
    "tol": (lambda: fmx.infer(model(), X, tol=-1e-6), "tol must be 0 or a number between 0 and 1; got -1e-06"),
    "max_iter": (
        lambda: fmx.infer(model(), X, max_iter=-1),
        "max_iter must be a whole number of at least 0 or None; got -1",
    ),
    "max_iter float": (lambda: fmx.infer(model(), X, max_iter=10.0), "max_iter must be a whole number"),
    "callback": (lambda: fmx.infer(model(), X, callback=3), "callback must be callable; got int"),
    # Starts.
    "init type": (lambda: fmx.infer(model(), X, init=3), r"init must be a Result or a pair \(mean, sd\); got int"),
    "init mean": (
        lambda: fmx.infer(model(), X, init=(np.zeros(3), np.ones(2))),
        r"mean of init must have shape \(2,\)",
    ),
    "init sd": (
        lambda: fmx.infer(model(), X, init=(np.zeros(2), [1.0, 0.0])),
        "sd of init must be greater than 0; got 0.0",
    ),
    "init NaN": (lambda: fmx.infer(model(), X, init=([0.0, np.nan], np.ones(2))), "mean of init must be finite"),
    "q type": (lambda: fmx.elbo(model(), X, None), "q must be a Result or a pair"),
    # Algorithms.
    "order": (lambda: fmx.CAVI(order="randon"), "Did you mean 'random'"),
    "block order": (lambda: fmx.BlockCoordinate(order="greedy"), "order must be one of 'cyclic', 'random'"),
    "steps": (lambda: fmx.CAVI(steps_per_iteration=0), "steps_per_iteration must be a positive integer or None; got 0"),
    "step": (lambda: fmx.Damped(step=0), r"step must be a number in \(0, 1\]; got 0"),
    "blocks overlap": (lambda: fmx.infer(model(), X, fmx.BlockCoordinate([[0, 1], [1]])), "latent 1 is in 2 of them"),
    "blocks gap": (lambda: fmx.infer(model(), X, fmx.BlockCoordinate([[0]])), "latent 1 is in 0 of them"),
    "blocks range": (lambda: fmx.infer(model(), X, fmx.Hogwild([[0, 1, 2]])), "indices from 0 to 1; got 2"),
    "blocks negative": (lambda: fmx.infer(model(), X, fmx.Hogwild([[0, -1]])), "indices from 0 to 1; got -1"),
    "blocks floats": (
        lambda: fmx.infer(model(), X, fmx.Hogwild([[0.0, 1.0]])),
        r"blocks\[0\] must be a sequence of integer",
    ),
    "blocks none": (lambda: fmx.infer(model(), X, fmx.BlockCoordinate([])), "blocks must hold at least one group"),
    "blocks count": (lambda: fmx.Hogwild(0), "blocks must be a positive integer; got 0"),
    "groups gap": (
        lambda: fmx.infer(model(), X, fmx.ForestMixture(groups=[[1]])),
        "groups must partition the 2 latents",
    ),
    "groups accelerated": (
        lambda: fmx.ForestMixture(groups=[[0, 1]], accelerate=True),
        "accelerate must be False or None",
    ),
    "fm objective": (lambda: fmx.ForestMixture(objective="fn"), "Did you mean 'fm'"),
    "fm accelerate": (
        lambda: fmx.ForestMixture(accelerate="yes"),
        "accelerate must be True, False, None, 'cg' or 'direct'",
    ),
    # Arguments that were not named, or were accepted.
    "groups number": (lambda: fmx.ForestMixture(groups=5), r"groups must be a list of groups .* got 5"),
    "blocks number": (lambda: fmx.BlockCoordinate(blocks=3), r"blocks must be a list of groups .* got 3"),
    "blocks words": (lambda: fmx.Hogwild("two"), "blocks must be a list of groups"),
    "blocks nested": (
        lambda: fmx.infer(model(), X, fmx.Hogwild([[[0], [1, 2]]])),
        r"blocks\[0\] must be an array of numbers",
    ),
    "synchronous": (lambda: fmx.Hogwild(2, synchronous="no"), "synchronous must be True or False; got 'no'"),
    "mixed of one": (lambda: fmx.Mixed(fmx.Gaussian(), [0, 0]), "families must be a list such as .* got Gaussian"),
    "mixed ragged": (lambda: fmx.Mixed([fmx.Gaussian(1.0)], [[0], [0, 0]]), "which must be an array of numbers"),
    "prior family": (lambda: fmx.Prior(0), "family must be a family such as"),
    "prior family array": (lambda: fmx.Prior(X), "family must be a family such as"),
    "seed": (lambda: fmx.CAVI(seed=-1), "seed must be .* an integer seed of at least 0, or None; got -1"),
    "seed of blocks": (lambda: fmx.BlockCoordinate(seed=1.5), "seed must be .* got 1.5"),
    "rng negative": (lambda: model().sample(rng=-1), "rng must be .* got -1"),
    "rng flag": (lambda: model().sample(rng=True), "rng must be .* got True"),
    "sample flag": (lambda: model().sample(0, size=True), "size must be a positive integer or None; got True"),
    "predictive size": (lambda: model().prior_predictive(0, size=None), "size must be a positive integer; got None"),
    "algorithm list": (lambda: fmx.infer(model(), X, []), "algorithm must be one of"),
    "objective array": (lambda: fmx.infer(model(), X, objective=X), "objective must be one of"),
    "accelerate number": (lambda: fmx.ForestMixture(accelerate=0.0), "accelerate must be True, False, None"),
    "order array": (lambda: fmx.CAVI(order=X), "order must be one of"),
    "schedule array": (lambda: fmx.ForestMixture(schedule=X), "schedule must be one of"),
    "placement array": (lambda: fmx.windows((4, 4), 3, X), "placement must be one of"),
    "windows ragged": (lambda: fmx.windows((4, 4), [[1], [1, 2]]), "size must be"),
    "max_iter array": (lambda: fmx.infer(model(), X, max_iter=X), "max_iter must be a whole number"),
    "tol array": (lambda: fmx.infer(model(), X, tol=X), "tol must be 0 or a number"),
    "progress": (lambda: fmx.infer(model(), X, progress="yes"), "progress must be True or False; got 'yes'"),
    "memory_budget": (lambda: fmx.infer(model(), X, memory_budget=True), "memory_budget must be .* got True"),
    "memory_budget NaN": (lambda: fmx.infer(model(), X, memory_budget=np.nan), "memory_budget must be .* got nan"),
    "full engine": (lambda: fmx.infer(model(), X, covariance="full", engine="fast"), "engine must be one of"),
    "full memory_budget": (
        lambda: fmx.infer(model(), X, covariance="full", memory_budget=-1),
        "memory_budget must be .* got -1",
    ),
    "full objective": (
        lambda: fmx.infer(model(), X, covariance="full", objective="fm"),
        "objective must be 'auto' or 'elbo' with covariance='full' .* got 'fm'",
    ),
    "checkpoint_seconds": (
        lambda: fmx.infer(model(), X, checkpoint_seconds=-1),
        "checkpoint_seconds must be a number of at least 0; got -1",
    ),
    "elbo model": (lambda: fmx.elbo(W, X, None), "model must be a forestmix.DEF; got ndarray"),
    "gap model": (lambda: fmx.gap(None, X, None), "model must be a forestmix.DEF; got NoneType"),
    "evidence model": (lambda: fmx.log_evidence("m", X), "model must be a forestmix.DEF; got str"),
    "auxiliary model": (lambda: fmx.optimal_auxiliary(3, None), "model must be a forestmix.DEF; got int"),
    "auxiliary type": (
        lambda: fmx.fm_bound(model(), X, (np.zeros(2), np.ones(2)), (W, W)),
        "auxiliary must be a forestmix.Auxiliary.* got tuple",
    ),
    # Results.
    "density length": (
        lambda: fmx.infer(model(), X).layers[0].density(np.zeros(3)),
        r"y must be a number or fit the means, of shape \(2,\); got \(3,\)",
    ),
    "density of a batch": (
        lambda: fmx.infer(model(), np.zeros((4, 3))).layers[0].density(np.zeros((3, 2))),
        r"y must .* of shape \(4, 2\); got \(3, 2\)",
    ),
    "interval flag": (lambda: fmx.infer(model(), X).layers[0].interval(True), "level must be .* got True"),
    "predict level": (
        lambda: fmx.infer(model(), X).posterior().predict(level=1),
        "level must be a number between 0 and 1; got 1",
    ),
    "posterior kind": (lambda: fmx.infer(model(), X).posterior("corect"), "kind must be .* Did you mean 'corrected'"),
    "posterior full": (
        lambda: fmx.infer(model(), X).posterior("full"),
        "kind must be 'corrected', 'factorised' or 'laplace'",
    ),
    "posterior tol": (lambda: fmx.infer(model(), X).posterior(tol=2), "tol must be a number between 0 and 1; got 2"),
    "posterior size": (lambda: fmx.infer(model(), X).posterior().sample(0), "size must be a positive integer or None"),
    "posterior names": (lambda: fmx.infer(model(), X).posterior().summary(names=["a"]), "names must have one entry"),
    "compare": (lambda: fmx.compare([1]), "models must be a dictionary"),
    "compare entry": (lambda: fmx.compare({"a": 1}), r"models\['a'\] must be a Posterior"),
    "predict rows": (
        lambda: fmx.infer(model(), X).posterior().predict([[0], [1, 2]]),
        "rows must be None, .* unequal length",
    ),
    "result rng": (lambda: fmx.infer(model(), X).posterior().sample(3, rng=-1), "rng must be .* got -1"),
    "result size": (lambda: fmx.infer(model(), X).posterior().sample(True), "size must be .* got True"),
    "layer float": (
        lambda: fmx.infer(model(), X).posterior().summary(layer=0.0),
        "layer must be a whole number .* got 0.0",
    ),
    "layer flag": (
        lambda: fmx.infer(deep(), X).posterior().summary(layer=True),
        "layer must be a whole number .* got True",
    ),
    "forward words": (lambda: model().layers[0].weights.forward(["a", "b"]), "y must hold real numbers"),
    "trace axes": (lambda: fmx.infer(model(), X).plot_trace(axes=[1, 2]), "axes must be 2 matplotlib axes"),
    # Bounds.
    "auxiliary batch": (
        lambda: fmx.fm_bound(model(), np.zeros((2, 3)), (np.zeros(2), np.ones(2)), fmx.Auxiliary(W, W)),
        "auxiliary goes with one observation; got x with 2",
    ),
    "plot axes": (lambda: fmx.infer(model(), X).plot_trace(axes=[1, 2, 3]), "axes must be 2 matplotlib axes; got 3"),
}


@pytest.mark.parametrize("case", TABLE)
def test_bad_input_gets_a_clear_error(case):
    action, words = TABLE[case]
    with pytest.raises(fmx.ForestmixError, match=words) as caught:
        action()
    assert isinstance(caught.value, ValueError), "what is wrong with an argument is also a ValueError"
    assert str(caught.value).endswith((".", "?")), "a message is a sentence"
