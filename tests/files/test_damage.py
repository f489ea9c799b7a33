"""Files that are cut, changed, replaced while they are written, or of another program."""

import ast
import pickle
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import forestmix as fmx
from forestmix.errors import ForestmixError
from forestmix.files import container, save, seal
from support.saved_objects import ROWS, SPARSE, UNKNOWN, data, flat

#: Mutations of each of two files: in every run, and with ``-m slow``, which makes 2,000 in all.
FEW, MANY = 100, 1000


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A file, as bytes."""
    path = tmp_path_factory.mktemp("files") / "r.nc"
    model = ROWS["poisson"]()
    fmx.infer(model, data(model)).save(path)
    return path.read_bytes()


def refused(path, content, match):
    path.write_bytes(content)
    with pytest.raises(ForestmixError, match=match):
        fmx.load(path)


def test_every_byte_counts(whole, tmp_path):
    """One bit flipped anywhere in the first and last bytes, and in 200 places between, is seen."""
    rng = np.random.default_rng(0)
    places = {*range(16), *range(len(whole) - 100, len(whole)), *rng.integers(0, len(whole), 200).tolist()}
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        refused(tmp_path / "r.nc", bytes(changed), "checksum does not fit|not a whole file")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99, 0.9999])
def test_truncated(whole, tmp_path, share):
    refused(tmp_path / "r.nc", whole[: int(share * len(whole))], "cut off|it is empty")


def test_a_newer_format(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(seal, "FORMAT", 2)
    flat().save(tmp_path / "m.nc")
    monkeypatch.undo()
    with pytest.raises(ForestmixError, match=r"has format 2, from a newer version .* reads up to 1"):
        fmx.load(tmp_path / "m.nc")


class Bomb:
    """Unpickling it leaves a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_pickles_are_never_loaded(tmp_path):
    trace = tmp_path / "ran"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        refused(tmp_path / "r.nc", pickle.dumps(Bomb(trace), protocol), "not a whole file of forestmix")
    refused(tmp_path / "r.nc", pickle.dumps(Bomb(trace)), "a pickle, which is never loaded")
    np.save(tmp_path / "x.npy", np.array([Bomb(trace)]), allow_pickle=True)
    refused(tmp_path / "r.nc", (tmp_path / "x.npy").read_bytes(), r"an array of NumPy \(npy\)")
    assert not trace.exists()


def test_no_file_of_the_package_unpickles_or_evaluates():
    folder = Path(container.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            assert not {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"} & set(names)
            assert not (isinstance(node, ast.Name) and node.id in ("eval", "exec", "compile", "__import__"))


def test_files_of_other_programs(tmp_path):
    import xarray

    xarray.Dataset({"a": ("x", np.arange(3.0))}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    refused(tmp_path / "r.nc", (tmp_path / "other.nc").read_bytes(), "made or changed by another program")
    np.savez(tmp_path / "a.npz", a=np.arange(3))
    refused(tmp_path / "r.nc", (tmp_path / "a.npz").read_bytes(), "a zip archive")
    refused(tmp_path / "r.nc", b"a,b\n1,2\n", "neither the beginning nor the end")
    with pytest.raises(ForestmixError, match="cannot be read: No such file"):
        fmx.load(tmp_path / "nothing.nc")
    with pytest.raises(ForestmixError, match="cannot be read"):
        fmx.load(tmp_path)


def test_sealed_files_that_make_no_sense(whole, tmp_path):
    """What the checksum cannot see: a description that does not fit, on purpose or by a bug."""
    trees = [
        None, [], {}, 3, {"kind": "result"}, {"kind": "nonsense", "fields": {}}, {"kind": "model", "fields": {}},
        {"kind": "model", "fields": {"layers": [{"seen": 7}], "prior": None}},
        {"kind": "result", "columns": {}, "count": 1},
        {"kind": "model", "fields": {"layers": [{"array": "there is none", "dtype": "float64"}], "prior": None}},
        {"kind": "model", "fields": {"layers": [{"small": 1, "dtype": "object", "shape": []}], "prior": None}},
        {"kind": "model", "fields": {"layers": [{"small": [1], "dtype": "float64", "shape": [9**9]}], "prior": None}},
    ]  # fmt: skip
    for tree in trees:
        container.write_file(tmp_path / "odd.nc", tree, {}, {})
        with pytest.raises(ForestmixError, match=r"odd\.nc"):
            fmx.load(tmp_path / "odd.nc")


def test_indices_of_sparse_weights_are_checked(tmp_path):
    flat(weights=SPARSE).save(tmp_path / "m.nc")
    with container.open_file(tmp_path / "m.nc") as (tree, arrays, attributes):
        kept = {
            f"def.layers.0.weights.{name}": arrays(f"def.layers.0.weights.{name}")
            for name in ("data", "indices", "indptr")
        }
    kept["def.layers.0.weights.indices"] = kept["def.layers.0.weights.indices"] + 10**6
    container.write_file(tmp_path / "m.nc", tree, kept, attributes)
    with pytest.raises(ForestmixError, match=r"cannot|must"):
        fmx.load(tmp_path / "m.nc")


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["result", "posterior"])
def test_mutated_files_never_crash_hang_or_take_memory(kind, count, whole, tmp_path):
    path = tmp_path / "r.nc"
    path.write_bytes(whole)
    if kind == "posterior":
        model = UNKNOWN["counts"]()
        fmx.infer(model, data(model)).posterior().save(path)
    script = Path(__file__).parents[1] / "support" / "fuzz.py"
    command = [sys.executable, str(script), str(path), str(count), "1"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stderr
    endings = ast.literal_eval(found.stdout)
    assert "loaded a changed file" not in endings
    assert sum(endings.values()) == count


SAVES = """
import sys, numpy as np, forestmix as fmx
path, value = sys.argv[1], float(sys.argv[2])
model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.full((400, 400), value)))
model.save(path)
print("ready", flush=True)
while True:
    model.save(path)
"""


@contextmanager
def saving(path, value):
    """Have another process save a model over and over, once it has saved it for the first time."""
    command = [sys.executable, "-c", SAVES, str(path), str(value)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_kill_during_a_save_leaves_a_whole_file(tmp_path):
    path = tmp_path / "m.nc"
    with saving(path, 2.0):
        pass
    left = {one.name for one in tmp_path.iterdir()}
    for delay in (0.0, 0.013, 0.05):
        with saving(path, 2.0):
            time.sleep(delay)
        assert (fmx.load(path).layers[0].weights.toarray() == 2.0).all()
        left |= {one.name for one in tmp_path.iterdir()}
    # Some of them were killed while they wrote: a part of a file is left, and never under the name of the file.
    assert len(left) > 1


def test_two_writers_leave_one_whole_file(tmp_path):
    path = tmp_path / "m.nc"
    with saving(path, 1.0), saving(path, 2.0):
        for _ in range(20):
            values = np.unique(fmx.load(path).layers[0].weights.toarray())
            assert values.tolist() in ([1.0], [2.0])
    assert np.unique(fmx.load(path).layers[0].weights.toarray()).tolist() in ([1.0], [2.0])


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "m.nc"
    flat().save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(container, "seal", full)
    with pytest.raises(ForestmixError, match=r"m\.nc cannot be written: No space left"):
        flat(fmx.Poisson()).save(path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["m.nc"]
    with pytest.raises(ForestmixError, match="cannot be written: No such file"):
        flat().save(tmp_path / "nowhere" / "m.nc")
    with pytest.raises(ForestmixError, match="obj must be a Result"):
        save(fmx.Gaussian(1.0), path)
    with pytest.raises(ForestmixError, match="weights must be one of 'inside', 'reference'"):
        flat().save(path, weights="outside")
