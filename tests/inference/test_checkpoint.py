"""Runs that are killed go on from their last checkpoint and take the same steps; Ctrl-C returns what there is."""

import os
import subprocess
import sys

import numpy as np
import pytest

import forestmix as fmx
from forestmix.errors import ArgumentError
from forestmix.inference import accelerate, checkpoint
from forestmix.inference.plain import PlainSteps
from forestmix.inference.status import Status
from forestmix.posterior import columns, factor
from support.killed import JOINT, LONG, PROBLEMS, W, data, model


class KilledError(Exception):
    """Stands for the end of a process: nothing of the run is left but its file."""


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


def run_killed(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "support.killed", *map(str, arguments)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="SIGKILL and forks")
def test_kill_at_ten_random_moments():
    """Every kind of problem, also those whose steps a journal keeps, ends where it ends undisturbed."""
    lines = run_killed(0, 10, "quick").splitlines()
    assert len(lines) == len(PROBLEMS) + len(JOINT) - len(LONG)
    # A process may have ended by itself before it was killed, where the machine is busy.
    assert sum(", 0 of 10 killed" not in line for line in lines) > 0.8 * len(lines)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="SIGKILL and forks")
@pytest.mark.parametrize("seed", range(1, 6))
def test_kill_at_many_random_moments(seed):
    run_killed(seed, 25)


@pytest.mark.parametrize("name", JOINT)
def test_fits_with_a_full_covariance_go_on(name, tmp_path, monkeypatch):
    (chosen, options), x, path = JOINT[name], data(name), tmp_path / "run.npz"
    monkeypatch.setattr(columns, "MOST_COLUMNS", 3 if "EM" in name else 6000)
    right, saved = fmx.infer(chosen, x, **options), []
    save = checkpoint.Checkpoint.save

    def stopping(self, run, *, at_end=False):
        save(self, run, at_end=at_end)
        saved.append(len(run.entries) + len(run.climbs))
        if len(saved) == 4:
            raise KilledError

    monkeypatch.setattr(checkpoint.Checkpoint, "save", stopping)
    with pytest.raises(KilledError):
        fmx.infer(chosen, x, **options, checkpoint=path, checkpoint_seconds=0)
    found = fmx.infer(chosen, x, **options, checkpoint=path)
    np.testing.assert_allclose(found.mean, right.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.sd, right.sd, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.status, right.status)
    for one, other in zip(found.scales.values(), right.scales.values(), strict=True):
        means = [[scale.mean for scale in np.ravel(own)] for own in (one, other)]
        np.testing.assert_allclose(*means, rtol=0, atol=1e-12)
    with pytest.raises(ArgumentError, match="checkpoint must be of the same model, data and algorithm"):
        fmx.infer(chosen, 0 * x, **options, checkpoint=path)


def test_gaussian_rows_with_unknown_scales_are_not_evaluated_again(tmp_path, monkeypatch):
    (chosen, options), x, path = JOINT["unknown noise and scale"], data("unknown noise and scale"), tmp_path / "a.npz"
    counts, row_variances = [0], factor.BlockFactor.row_variances

    def counted(self):
        counts[0] += 1
        return row_variances(self)

    monkeypatch.setattr(factor.BlockFactor, "row_variances", counted)
    first = fmx.infer(chosen, x, **options, checkpoint=path)
    assert counts[0] > 20
    counts[0] = 0
    again = fmx.infer(chosen, x, **options, checkpoint=path)
    assert counts[0] == 0
    np.testing.assert_allclose(again.mean, first.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(again.posterior().sd, first.posterior().sd, rtol=0, atol=1e-12)


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
    propose = PlainSteps.propose

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return propose(self, *arguments)

    monkeypatch.setattr(PlainSteps, "propose", interrupted)
    found = fmx.infer(chosen, x, **options)
    assert found.status is Status.STOPPED
    assert "Ctrl-C" in found.message
    assert found.n_iter == 5
    np.testing.assert_array_equal(found.mean, right.mean)
    np.testing.assert_array_equal(found.trace.objective, right.trace.objective)


def test_ctrl_c_while_a_checkpoint_is_written_keeps_the_iteration(tmp_path, monkeypatch):
    chosen, x, path = model(fmx.Bernoulli()), data("plain steps"), tmp_path / "run.npz"
    options = {"accelerate": False, "tol": 1e-9}
    right, calls, fsync = fmx.infer(chosen, x, max_iter=4, **options), [], os.fsync

    def interrupted(descriptor):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        fsync(descriptor)

    monkeypatch.setattr(checkpoint.os, "fsync", interrupted)
    found = fmx.infer(chosen, x, **options, checkpoint=path, checkpoint_seconds=0)
    assert found.status is Status.STOPPED
    assert found.n_iter == 4
    np.testing.assert_array_equal(found.mean, right.mean)
    np.testing.assert_array_equal(found.trace.objective, right.trace.objective)
    assert os.listdir(tmp_path) == ["run.npz"]
