"""What a cluster may not outgrow: the scheduler over many iterations, and workers smaller than W. Slow, all of it."""

import shutil

import numpy as np
import pytest

import forestmix as fmx

pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
psutil = pytest.importorskip("psutil")
import dask  # noqa: E402
import dask.array  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


OPTIONS = {"threads_per_worker": 1, "processes": True, "protocol": "tcp://", "dashboard_address": ":0"}


def resident():
    import gc

    gc.collect()
    return psutil.Process().memory_info().rss


@pytest.mark.parametrize("chunks", [(10, 6), (20, 3)], ids=["rows", "grid"])
def test_the_scheduler_is_flat_over_five_hundred_iterations(chunks):
    """The scheduler runs in this process, so the memory is that of both; its bounded logs are kept short."""
    rng = np.random.default_rng(0)
    W, x, seen = rng.standard_normal((40, 6)), rng.standard_normal(40), {}

    def look(at):
        if at.iteration in (100, 500):
            seen[at.iteration] = client.run_on_scheduler(resident), len(client.run_on_scheduler(_tasks))

    with (
        dask.config.set({"distributed.admin.low-level-log-length": 100}),
        distributed.LocalCluster(**OPTIONS, n_workers=2) as cluster,
        distributed.Client(cluster) as client,
    ):
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), dask.array.from_array(W, chunks=chunks)))
        fmx.infer(model, x, accelerate=False, tol=0, max_iter=500, callback=look)
    (early, tasks), (late, tasks_late) = seen[100], seen[500]
    assert late - early <= 16e6
    assert tasks_late <= tasks


def _tasks(dask_scheduler):
    return list(dask_scheduler.tasks)


LIMIT = 640 * 2**20
#: Workers that hold W in memory, and those that have it on disk.
WORKERS, QUARTERS = 8, 4


def limits(layout):
    """Return chunks of W, which is four times the limit of a worker: one for each worker.

    Columns are cut where W is wide. One worker has the terms of all rows, which would count beside a W of few columns.
    """
    m = 4096 if layout == "columns" else 1024
    n = 4 * LIMIT // (4 * m)
    return (n, m), {"rows": (n // WORKERS, m), "columns": (n, m // WORKERS), "grid": (n // 4, m // 2)}[layout]


@pytest.mark.parametrize("layout", ["rows", "columns", "grid"])
def test_w_of_four_times_the_memory_of_a_worker(layout):
    """No worker may go beyond its limit: Dask ends it at 95 % of it, and nothing is spilled to disk."""
    shape, chunks = limits(layout)
    assert 4 * np.prod(shape) == 4 * LIMIT
    memory = {f"distributed.worker.memory.{name}": False for name in ("target", "spill", "pause")}
    with (
        dask.config.set({**memory, "distributed.scheduler.work-stealing": False}),
        distributed.LocalCluster(**OPTIONS, n_workers=WORKERS, memory_limit=LIMIT) as cluster,
        distributed.Client(cluster) as client,
    ):
        W = dask.array.random.default_rng(0).random(shape, chunks=chunks, dtype=np.float32)
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W))
        x = np.asarray(model.layers[0].weights.forward(np.ones(shape[1], np.float32)))
        found = fmx.infer(model, x, accelerate="cg", tol=1e-3, max_iter=20, engine="reference")
        used = client.run(resident)
        assert len(used) == WORKERS
        assert max(used.values()) <= LIMIT
    # The prior has little to say beside so many rows: the mean is what x was made from.
    np.testing.assert_allclose(found.mean, 1.0, atol=0.05)


def quarter(path, k, shape):
    """Return rows of W that a worker has on its own disk: it reads 2 MB of them at a time, in every pass."""
    zarr = pytest.importorskip("zarr")
    n, m = shape[0] // QUARTERS, shape[1]
    group, step = zarr.open_group(path, mode="a"), n // 40
    if str(k) not in group:
        array = group.create_array(str(k), shape=(n, m), chunks=(512, m), dtype=np.float32, compressors=None)
        generator = np.random.default_rng(k)
        for first in range(0, n, step):
            array[first : first + step] = generator.random((step, m), dtype=np.float32)
    return fmx.ChunkedWeights.open(group[str(k)])


def test_workers_that_each_hold_a_quarter_of_w_on_their_disk(tmp_path):
    """A quarter of four times the limit is the limit itself: it cannot be in memory beside the worker's own needs."""
    pytest.importorskip("zarr", reason="needs the extra [zarr]")
    shape, _ = limits("rows")
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        distributed.LocalCluster(**OPTIONS, n_workers=QUARTERS, memory_limit=LIMIT) as cluster,
        distributed.Client(cluster) as client,
    ):
        parts = [dask.delayed(quarter)(str(tmp_path / f"{k}.zarr"), k, shape) for k in range(QUARTERS)]
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), parts))
        x = np.asarray(model.layers[0].weights.forward(np.ones(shape[1], np.float32)))
        found = fmx.infer(model, x, accelerate="cg", tol=1e-3, max_iter=8, engine="reference")
        used = client.run(resident)
        held = [len(keys) for keys in client.has_what().values()]
    assert model.layers[0].weights.shape == shape
    assert len(used) == len(held) == QUARTERS
    assert min(held) > 0
    assert max(used.values()) <= LIMIT
    np.testing.assert_allclose(found.mean, 1.0, atol=0.05)
    shutil.rmtree(tmp_path)  # pytest keeps folders of some runs
