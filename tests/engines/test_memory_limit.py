"""Files larger than the memory that a process may take, in every form that is read in chunks."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx

LIMITED = """
import resource, sys
import numpy as np
import forestmix as fmx

def bernoulli(W):
    return fmx.DEF(fmx.Layer(fmx.Bernoulli(), W))

fmx.infer(bernoulli([np.eye(300)]), np.ones(300))  # libraries are loaded, and take their own memory
form, folder = sys.argv[1:]
x = np.load(folder + "/x.npy")
if form.startswith("hdf5"):
    import h5py
    source = h5py.File(folder + "/W.h5", "r")
elif form == "zarr":
    import zarr
    source = zarr.open_group(folder + "/W.zarr", mode="r")
used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
size = 20_000 * 1_000 * (10 if "csr" in form else 8)  # nine of ten entries with their columns, or all
resource.setrlimit(resource.RLIMIT_DATA, (used + size * 4 // 5,) * 2)
try:
    np.ones(size // 8)
    sys.exit("the limit does not bind")
except MemoryError:
    pass
names = ("indptr", "indices", "data")
if form == "npy":
    W = fmx.ChunkedWeights.open(folder + "/W.npy")
elif form == "csr":
    W = fmx.ChunkedWeights.open_csr(*(f"{folder}/{name}.npy" for name in names), columns=1_000)
elif form == "hdf5 csr":
    W = fmx.ChunkedWeights.open_csr(*(source[name] for name in names), columns=1_000)
else:
    W = fmx.ChunkedWeights.open(source["W"])
result = fmx.infer(bernoulli(W), x, engine="reference", accelerate=False, max_iter=3, tol=0)
np.save(folder + "/mean.npy", result.mean)
"""

FORMS = ("npy", "csr", "hdf5", "hdf5 csr", "zarr")


@pytest.fixture(scope="module")
def large():
    """Return a W of 160 MB, so wide that vectors of its rows are nothing beside it, data, and three steps in memory."""
    rng, (n, m) = np.random.default_rng(0), (2_000, 1_000)
    block = rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.9)
    W, x = np.tile(block, (10, 1)), (rng.random(10 * n) < 0.5).astype(float)
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), W))
    return W, x, fmx.infer(model, x, engine="reference", accelerate=False, max_iter=3, tol=0).mean


def write(W, form, folder):
    """Write W in one form."""
    if "csr" in form:
        matrix = sparse.csr_array(W)
        arrays = {name: getattr(matrix, name) for name in ("indptr", "indices", "data")}
    else:
        arrays = {"W": W}
    if form.startswith("hdf5"):
        import h5py

        with h5py.File(folder / "W.h5", "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, chunks=(250, W.shape[1]) if name == "W" else (2**14,))
    elif form == "zarr":
        import zarr

        group = zarr.open_group(str(folder / "W.zarr"), mode="w")
        group.create_array("W", data=W, chunks=(250, W.shape[1]), compressors=None)
    else:
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are Linux's")
@pytest.mark.parametrize("form", FORMS)
def test_a_file_larger_than_the_memory_limit(form, large, tmp_path):
    """The process may take four fifths of W's bytes beyond what it has when its libraries are loaded."""
    if form == "zarr":
        pytest.importorskip("zarr", reason="needs the extra [zarr]")
    W, x, right = large
    write(W, form, tmp_path)
    np.save(tmp_path / "x.npy", x)
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", LIMITED, form, str(tmp_path)]
    subprocess.run(command, check=True, env=environment, timeout=120)
    np.testing.assert_allclose(np.load(tmp_path / "mean.npy"), right, atol=1e-12)
    shutil.rmtree(tmp_path)  # pytest keeps folders of some runs
