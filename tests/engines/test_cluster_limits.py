"""What a cluster may not outgrow: the scheduler over many iterations, and workers smaller than W. Slow, all of it."""

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
WORKERS = 8


def limits(layout):
    """Return chunks of W, which is four times the limit of a worker: one for each worker."""
    n, m = 4 * LIMIT // (4 * 1024), 1024
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
    # The prior has little to say beside half a million rows: the mean is what x was made from.
    np.testing.assert_allclose(found.mean, 1.0, atol=0.05)
