"""Runs that are killed with SIGKILL at random moments and resumed: ``python -m support.killed SEED KILLS`` prints how.

A third word leaves out the kinds that take seconds.

Each run is a fork of this process, so that a kill costs milliseconds. A checkpoint is written after every step, slowly,
so that kills fall into steps, between them, and into writing. What the last, undisturbed call returns is held to a run
without checkpoints.
"""

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import forestmix as fmx
from forestmix.inference import accelerate, checkpoint
from forestmix.posterior import columns
from forestmix.scales import HalfNormal

RNG = np.random.default_rng(3)
N, M = 40, 12
W = RNG.standard_normal((N, M)) / 2
CHUNKS = [W[:11], W[11:]]
#: Seconds of every step beside its work.
PAUSE = 0.0002


def model(rows, weights=W, prior=None, above=()):
    return fmx.DEF(fmx.Layer(rows, weights), *above, prior=prior)


def unknown(rows, weights=W):
    return model(rows, weights, fmx.Prior(fmx.Gaussian(HalfNormal(1.0))))


PROBLEMS = {
    "conjugate gradients": (model(fmx.Gaussian(0.5)), {"accelerate": "cg"}),
    "conjugate gradients on the paper's bound": (model(fmx.Gaussian(0.5)), {"accelerate": "cg", "objective": "fm"}),
    "a factor": (model(fmx.Gaussian(0.5)), {"accelerate": "direct"}),
    "chunks": (model(fmx.Gaussian(0.5), CHUNKS), {"accelerate": "cg"}),
    "a batch": (model(fmx.Gaussian(0.5)), {"accelerate": "cg"}),
    "joint Newton steps": (model(fmx.Poisson()), {}),
    "Newton steps": (model(fmx.Poisson(), CHUNKS), {}),
    "Newton steps on the paper's bound": (model(fmx.Bernoulli()), {"objective": "fm"}),
    "Newton steps of a batch": (model(fmx.Bernoulli(), CHUNKS), {}),
    "trials": (model(fmx.Binomial(4), CHUNKS), {}),
    "plain steps": (model(fmx.Bernoulli()), {"accelerate": False, "objective": "fm", "max_iter": 30}),
    "random coordinates": (
        model(fmx.Gaussian(0.5)),
        {"algorithm": fmx.CAVI(order="random", steps_per_iteration=5), "max_iter": 60},
    ),
    "damped": (model(fmx.Gaussian(0.5)), {"algorithm": fmx.Damped(0.05), "max_iter": 60}),
    "deep": (model(fmx.Gaussian(0.5), above=[fmx.Layer(fmx.Gaussian(1.0), W[:M, :4])]), {"accelerate": "cg"}),
    "deep counts": (model(fmx.Poisson(), above=[fmx.Layer(fmx.Gaussian(1.0), W[:M, :4])]), {}),
    "binary latents": (model(fmx.Gaussian(0.5), prior=fmx.Prior(fmx.Bernoulli())), {"max_iter": 30}),
    "sparse latents": (model(fmx.Gaussian(0.5), prior=fmx.Prior(fmx.Laplace(0.3))), {"max_iter": 30}),
    "spikes and slabs": (model(fmx.Gaussian(0.5), prior=fmx.Prior(fmx.SpikeSlab(0.3))), {"max_iter": 30}),
    "non-negative latents": (model(fmx.Gaussian(0.5), prior=fmx.Prior(fmx.Exponential(1.0))), {"max_iter": 30}),
    "counts as latents": (model(fmx.Gaussian(0.5), prior=fmx.Prior(fmx.Poisson())), {"max_iter": 30}),
    "binary above binary": (
        model(fmx.Bernoulli(), above=[fmx.Layer(fmx.Bernoulli(), W[:M, :4])], prior=fmx.Prior(fmx.Bernoulli())),
        {"max_iter": 12},
    ),
    "mixed rows": (model(fmx.Mixed([fmx.Gaussian(0.5), fmx.Poisson()], np.arange(N) % 2)), {}),
    "case weights": (fmx.DEF(fmx.Layer(fmx.Poisson(), W, case_weights=np.arange(N) % 3)), {}),
    "float32": (model(fmx.Bernoulli(), W.astype(np.float32)), {"tol": 1e-4}),
    "a grid of chunks": (model(fmx.Bernoulli(), [[W[:11, :5], W[:11, 5:]], [W[11:, :5], W[11:, 5:]]]), {}),
    "a file in chunks": (model(fmx.Poisson(), fmx.ChunkedWeights.open(W, 2000)), {}),
    "groups one after another": (
        model(fmx.Bernoulli()),
        {"algorithm": fmx.ForestMixture(groups=[range(4), range(4, M)]), "max_iter": 20},
    ),
    "workers": (
        model(fmx.Bernoulli(), [[W[:, :5], W[:, 5:]]]),
        {"algorithm": fmx.ForestMixture(workers="synchronous"), "max_iter": 8},
    ),
    "greedy coordinates": (model(fmx.Poisson()), {"algorithm": fmx.CAVI(order="greedy"), "max_iter": 20}),
    "blocks": (model(fmx.Gaussian(0.5)), {"algorithm": "block", "max_iter": 30}),
    "counts above counts": (model(fmx.Poisson(), 0.1 * abs(W), fmx.Prior(fmx.Bernoulli())), {"max_iter": 12}),
}
#: Fits whose steps are kept in a journal (``posterior/journal.py``); they take no callback.
JOINT = {
    "full covariance": (model(fmx.Poisson()), {"covariance": "full"}),
    "full covariance of a batch, in chunks": (model(fmx.Bernoulli(), CHUNKS), {"covariance": "full"}),
    "unknown noise and scale": (
        model(fmx.Gaussian(HalfNormal(2.0)), prior=fmx.Prior(fmx.Gaussian(HalfNormal(1.0)))), {},
    ),
    "unknown scale of counts": (unknown(fmx.Poisson()), {}),
    "unknown scale by EM": (unknown(fmx.Bernoulli()), {}),
    "unknown scale of trials, in chunks": (unknown(fmx.Binomial(4), CHUNKS), {}),
    "unknown scale of each of a batch": (unknown(fmx.Poisson()), {"scales": "each"}),
}  # fmt: skip


#: Kinds that take seconds; the slow profile has them.
LONG = ("binary above binary", "unknown scale of trials, in chunks", "unknown scale of each of a batch")


def data(name, problems=None):
    chosen = {**PROBLEMS, **JOINT, **(problems or {})}[name][0]
    known = chosen.with_scales([0.7] * len(chosen.unknown_scales))
    return known.sample(np.random.default_rng(1), size=3 if "batch" in name else None).x


def slowly(seen):
    """Return a ``save`` that takes its time, and counts."""
    save = checkpoint.Checkpoint.save

    def slow(self, run, *, at_end=False):
        seen.append(1)
        time.sleep(PAUSE)
        save(self, run, at_end=at_end)

    return slow


def same(found, right):
    """Return the largest distance of two results."""
    pairs = zip(found.layers, right.layers, strict=True)
    parts = [abs(getattr(a, name) - getattr(b, name)).max() for a, b in pairs for name in ("mean", "sd")]
    for name, own in found.scales.items():  # one, or one for each observation
        pairs = zip(np.ravel(own), np.ravel(right.scales[name]), strict=True)
        parts += [abs(one.mean - other.mean) for one, other in pairs]
    return max(*parts, float(np.max(abs(np.asarray(found.objective) - right.objective))))


def killed(name, kills, rng, folder):
    """Return how far the answer of a run that was killed is from one that was not, and how many were still at it."""
    (chosen, options), x = {**PROBLEMS, **JOINT}[name], data(name)
    options = {"tol": 1e-9, **options} if name in PROBLEMS else options
    path, count = folder / f"{abs(hash(name))}.npz", []
    right = fmx.infer(chosen, x, **options)
    plain = checkpoint.Checkpoint.save
    checkpoint.Checkpoint.save = slowly(count)
    began = time.perf_counter()
    fmx.infer(chosen, x, **options, checkpoint=path, checkpoint_seconds=0)
    whole, hit = time.perf_counter() - began, 0
    path.unlink()
    for _ in range(kills):
        process = os.fork()
        if not process:
            fmx.infer(chosen, x, **options, checkpoint=path, checkpoint_seconds=0)
            os._exit(0)
        time.sleep(rng.uniform(0, 2 * whole / kills))
        os.kill(process, signal.SIGKILL)
        hit += os.WIFSIGNALED(os.waitpid(process, 0)[1])
    checkpoint.Checkpoint.save = plain
    found = fmx.infer(chosen, x, **options, checkpoint=path)
    assert np.array_equal(found.status, right.status), (found.status, right.status)
    assert np.array_equal(found.n_iter, right.n_iter)
    return same(found, right), hit


def main(seed, kills, names):
    checkpoint.os.fsync = lambda descriptor: None  # it guards against a loss of power, not of the process
    accelerate.SMALL = 0  # conjugate gradients carry values on, as they do for weights that are not small
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            columns.MOST_COLUMNS = 3 if "EM" in name else 6000
            distance, hit = killed(name, kills, random.Random(f"{seed} {name}"), Path(folder))
            print(f"{name}: {distance:.1e}, {hit} of {kills} killed", flush=True)
            assert distance <= 1e-12, name


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), [name for name in (*PROBLEMS, *JOINT) if name not in LONG or len(sys.argv) == 3])
