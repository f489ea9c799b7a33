"""``NUMBA_DISABLE_JIT=1``: everything runs, slowly, in Python, and gives the answers that compiled kernels give."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx

LATENTS = [fmx.SpikeSlab(0.3), fmx.Laplace(1.0), fmx.Exponential(1.0), fmx.Bernoulli(), fmx.Poisson()]
ALGORITHMS = ["cavi", fmx.CAVI(order="greedy"), fmx.BlockCoordinate(), fmx.Damped(step=0.1)]


def rows():
    """Return weights, and a family and an observation of each kind."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((12, 5))
    weights[abs(weights) < 0.2] = 0
    eta = weights @ (0.3 * rng.standard_normal(5))
    return weights, [
        (fmx.Gaussian(sd=0.7), eta + rng.standard_normal(12)),
        (fmx.Bernoulli(), (eta > 0).astype(float)),
        (fmx.Binomial(9), rng.binomial(9, 1 / (1 + np.exp(-eta))).astype(float)),
        (fmx.Poisson(), rng.poisson(np.exp(eta / 3)).astype(float)),
    ]


def runs():
    """Yield results of all kinds: families, layouts of W, algorithms, depth, latents, missing entries, overflow."""
    weights, families = rows()
    upper = fmx.Layer(fmx.Gaussian(sd=0.5), weights[:5, :2])
    for family, x in families:
        flat = fmx.DEF(fmx.Layer(family, weights))
        for layout in (np.asfortranarray, sparse.csr_array, sparse.csc_array):
            yield fmx.infer(fmx.DEF(fmx.Layer(family, layout(weights))), x)
        for algorithm in ALGORITHMS:
            yield fmx.infer(flat, x, algorithm, max_iter=10)
        yield fmx.infer(flat, x, objective="fm", accelerate=False, max_iter=10)
        yield fmx.infer(flat, np.stack([x, np.where(np.arange(12) == 3, np.nan, x[::-1])]))
        yield fmx.infer(fmx.DEF(fmx.Layer(family, weights), upper), x)
    for latents in LATENTS:
        yield fmx.infer(fmx.DEF(fmx.Layer(families[0][0], weights), prior=fmx.Prior(latents)), families[0][1])
    kernels = fmx.Convolution(weights.ravel()[:18].reshape(2, 1, 3, 3), (1, 4, 4))
    for weights in (kernels, fmx.windows((4, 4), 2)):
        yield fmx.infer(fmx.DEF(fmx.Layer(fmx.Bernoulli(), weights)), np.arange(16) % 2)
    yield fmx.infer(fmx.DEF(fmx.Layer(fmx.Poisson(), [[30.0]])), [4e4])  # whose first steps overflow


def answers():
    """Return the moments and the bound of every run."""
    return [
        np.concatenate([np.ravel(part) for layer in run.layers for part in (layer.mean, layer.sd, run.elbo)])
        for run in runs()
    ]


def test_the_answers_are_those_of_compiled_kernels():
    ran = subprocess.run(
        [sys.executable, "-W", "error", __file__], env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for number, (plain, compiled) in enumerate(zip(json.loads(ran.stdout), answers(), strict=True)):
        assert plain == pytest.approx(compiled, rel=1e-8, abs=1e-8), number


if __name__ == "__main__":
    print(json.dumps([answer.tolist() for answer in answers()]))
