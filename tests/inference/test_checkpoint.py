"""Runs that are killed go on from their last checkpoint and take the same steps; Ctrl-C returns what there is."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import forestmix as fmx
from forestmix.errors import ArgumentError
from forestmix.inference import accelerate, checkpoint
from forestmix.inference.status import Status

RNG = np.random.default_rng(3)
N, M = 40, 12
W = RNG.standard_normal((N, M)) / 2
CHUNKS = [W[:11], W[11:]]


class KilledError(Exception):
    """Stands for the end of a process: nothing of the run is left but its file."""


def model(rows, weights=W, prior=None, above=()):
    return fmx.DEF(fmx.Layer(rows, weights), *above, prior=prior)


PROBLEMS = {
    "conjugate gradients": (model(fmx.Gaussian(0.5)), {"accelerate": "cg"}),
    "conjugate gradients on the paper's bound": (model(fmx.Gaussian(0.5)), {"accelerate": "cg", "objective": "fm"}),
    "a factor": (model(fmx.Gaussian(0.5)), {"accelerate": "direct"}),
    "chunks": (model(fmx.Gaussian(0.5), CHUNKS), {"accelerate": "cg"}),
    "a batch": (model(fmx.Gaussian(0.5)), {"accelerate": "cg"}),
    "joint Newton steps": (model(fmx.Poisson()), {}),
    "Newton steps": (model(fmx.Poisson(), CHUNKS), {}),
    "Newton steps of a batch": (model(fmx.Bernoulli(), CHUNKS), {}),
    "plain steps": (model(fmx.Bernoulli()), {"accelerate": False, "objective": "fm", "max_iter": 30}),
    "random coordinates": (
        model(fmx.Gaussian(0.5)),
        {"algorithm": fmx.CAVI(order="random", steps_per_iteration=5), "max_iter": 60},
    ),
    "damped": (model(fmx.Gaussian(0.5)), {"algorithm": fmx.Damped(0.05), "max_iter": 60}),
    "deep": (model(fmx.Gaussian(0.5), above=[fmx.Layer(fmx.Gaussian(1.0), W[:M, :4])]), {"accelerate": "cg"}),
    "binary latents": (model(fmx.Gaussian(0.5), prior=fmx.Prior(fmx.Bernoulli())), {"max_iter": 30}),
    "sparse latents": (model(fmx.Gaussian(0.5), prior=fmx.Prior(fmx.Laplace(0.3))), {"max_iter": 30}),
    "counts above counts": (model(fmx.Poisson(), 0.1 * abs(W), fmx.Prior(fmx.Bernoulli())), {"max_iter": 12}),
}


def data(name):
    return PROBLEMS[name][0].sample(np.random.default_rng(1), size=3 if "batch" in name else None).x


@pytest.fixture(autouse=True)
def carried_points(monkeypatch):
    """Let conjugate gradients carry objective and gradient on, as they do for weights that are not small."""
    monkeypatch.setattr(accelerate, "SMALL", 0)


def killed_at(iteration):
    def stop(seen):
        if seen.iteration == iteration:
            raise KilledError

    return stop


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_resumed_run_takes_the_same_steps(name, tmp_path):
    (chosen, options), x, path = PROBLEMS[name], data(name), tmp_path / "run.npz"
    options = {"tol": 1e-9, **options}
    right = fmx.infer(chosen, x, **options)
    last = int(np.max(right.n_iter))
    for iteration in sorted({1, 2, last // 3, last // 2, last} & set(range(1, last + 1))):
        with pytest.raises(KilledError):
            fmx.infer(chosen, x, **options, checkpoint=path, checkpoint_seconds=0, callback=killed_at(iteration))
        assert path.exists() == (iteration > 1)
    found = fmx.infer(chosen, x, **options, checkpoint=path)
    for one, other in zip(found.layers, right.layers, strict=True):
        np.testing.assert_allclose(one.mean, other.mean, rtol=0, atol=1e-12)
        np.testing.assert_allclose(one.sd, other.sd, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.n_iter, right.n_iter)
    np.testing.assert_array_equal(found.status, right.status)
    np.testing.assert_allclose(found.trace.objective, right.trace.objective, rtol=1e-13)
    assert np.all(np.diff(found.trace.seconds) >= 0)
    again = fmx.infer(chosen, x, **options, checkpoint=path)
    np.testing.assert_array_equal(again.layers[0].mean, found.layers[0].mean)


RUN = """
import sys, time
import numpy as np
import forestmix as fmx

W, x = np.load(sys.argv[1]), np.load(sys.argv[2])
model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), W))
print("ready", flush=True)
slowly = (lambda seen: time.sleep(0.003)) if sys.argv[4] == "slowly" else None
found = fmx.infer(model, x, accelerate=False, tol=1e-9, checkpoint=sys.argv[3], checkpoint_seconds=0, callback=slowly)
assert found.converged
np.savez(sys.argv[4] + ".npz", mean=found.mean, sd=found.sd)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_kill_at_random_moments(tmp_path):
    chosen = model(fmx.Bernoulli())
    x = chosen.sample(np.random.default_rng(1)).x
    right = fmx.infer(chosen, x, accelerate=False, tol=1e-9)
    paths = [str(tmp_path / name) for name in ("W.npy", "x.npy", "run.npz")]
    np.save(paths[0], W)
    np.save(paths[1], x)
    rng, environment = random.Random(0), {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, *paths, "slowly"], env=environment, stdout=subprocess.PIPE, cwd=tmp_path
        )
        assert process.stdout.readline().strip() == b"ready"
        time.sleep(rng.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    subprocess.run([sys.executable, "-c", RUN, *paths, "end"], env=environment, check=True, cwd=tmp_path)
    with np.load(tmp_path / "end.npz") as found:
        np.testing.assert_allclose(found["mean"], right.mean, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found["sd"], right.sd, rtol=0, atol=1e-12)


def test_a_write_that_fails_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    chosen, x, path = model(fmx.Gaussian(0.5)), data("conjugate gradients"), tmp_path / "run.npz"
    options = {"accelerate": "cg", "checkpoint": path, "checkpoint_seconds": 0}
    fmx.infer(chosen, x, max_iter=2, **options)
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(checkpoint.os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        fmx.infer(chosen, x, **options)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.npz"]


def test_checkpoints_of_others_are_refused(tmp_path):
    chosen, x, path = model(fmx.Gaussian(0.5)), data("conjugate gradients"), tmp_path / "run.npz"
    fmx.infer(chosen, x, checkpoint=path)
    moved = W.copy()
    moved[3, 4] += 1e-6
    others = [
        (model(fmx.Gaussian(0.5), moved), x, {}),
        (model(fmx.Gaussian(0.5), W[:, ::-1].copy()), x, {}),
        (model(fmx.Gaussian(0.6)), x, {}),
        (model(fmx.Gaussian(0.5), prior=fmx.Prior(fmx.Gaussian(2.0))), x, {}),
        (chosen, x + 1e-9, {}),
        (chosen, x, {"objective": "fm"}),
        (chosen, x, {"algorithm": "cavi"}),
    ]
    for other, seen, options in others:
        with pytest.raises(ArgumentError, match="checkpoint must be of the same model, data and algorithm"):
            fmx.infer(other, seen, checkpoint=path, **options)
    path.write_bytes(b"something else")
    with pytest.raises(ArgumentError, match="checkpoint must be a file that infer wrote"):
        fmx.infer(chosen, x, checkpoint=path)


def test_wrong_arguments(tmp_path):
    chosen, x = model(fmx.Gaussian(0.5)), data("conjugate gradients")
    for options, message in (
        ({"checkpoint": tmp_path / "no folder" / "run.npz"}, "checkpoint must be a path in a folder that exists"),
        ({"checkpoint": 3}, "checkpoint must be a path in a folder that exists; got 3"),
        ({"checkpoint": tmp_path / "run.npz", "checkpoint_seconds": -1}, "checkpoint_seconds must be a number"),
        ({"checkpoint": tmp_path / "run.npz", "covariance": "full"}, "checkpoint must be left out"),
    ):
        with pytest.raises(ArgumentError, match=message):
            fmx.infer(chosen, x, **options)


def test_a_file_cannot_name_other_classes():
    for name in ("os:system", "forestmix.errors:ArgumentError", "forestmix.run:infer"):
        with pytest.raises(ArgumentError, match="checkpoint must be of this version"):
            checkpoint.decode({"class": name, "fields": {}}, [])


def test_ctrl_c_returns_what_there_is(monkeypatch):
    chosen, x = model(fmx.Bernoulli()), data("plain steps")
    options = {"accelerate": False, "tol": 1e-9}
    right, calls = fmx.infer(chosen, x, max_iter=5, **options), []
    propose = fmx.ForestMixture.propose

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return propose(self, *arguments)

    monkeypatch.setattr(fmx.ForestMixture, "propose", interrupted)
    found = fmx.infer(chosen, x, **options)
    assert found.status is Status.STOPPED
    assert "Ctrl-C" in found.message
    assert found.n_iter == 5
    np.testing.assert_array_equal(found.mean, right.mean)
    np.testing.assert_array_equal(found.trace.objective, right.trace.objective)
