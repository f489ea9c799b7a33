"""Chunks on a cluster of processes that talk over TCP: the answers of one machine, also when a worker is killed.

Quick are one test of each kind; the whole cross product is slow (``-m slow``).
"""

import contextlib
import itertools
import os
import signal

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.errors import ArgumentError
from forestmix.weights import as_weights, dask_chunks
from forestmix.weights.chunks import MemoryChunks, StreamedChunks
from forestmix.weights.cluster import ClusterChunks
from support.engine_cases import FAMILIES, families

pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
import dask  # noqa: E402
import dask.array  # noqa: E402

N, M = 40, 6
#: Where rows and columns are cut: chunks of rows, of columns, and both.
LAYOUTS = {
    "rows": ((0, 9, 10, 24, N), (0, M)),
    "columns": ((0, N), (0, 1, 4, M)),
    "grid": ((0, 22, N), (0, 4, M)),
}
QUICK = {("bernoulli", "dense", "columns"), ("poisson", "sparse", "rows")}

pytestmark = pytest.mark.filterwarnings("default")


def quick_or_slow(*lists, quick):
    """Return all combinations, those that are not quick marked as slow."""
    cases = itertools.product(*lists)
    return [pytest.param(*case, marks=() if case in quick else (pytest.mark.slow,)) for case in cases]


@contextlib.contextmanager
def three_workers():
    options = {"n_workers": 3, "threads_per_worker": 1, "processes": True, "protocol": "tcp://"}
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),  # as docs/scaling.md advises
        distributed.LocalCluster(**options, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    with three_workers() as client:
        yield client


def problem(family, seed=1, n=N):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((n, M)) * (rng.random((n, M)) < 0.7) / 2
    model = fmx.DEF(fmx.Layer(families(n)[family], W, 0.2))
    return model, W, model.sample(rng).x


def in_dask(W, storage, layout):
    """Return a Dask array, or sparse chunks that only Dask has: it makes them by a call."""
    rows, columns = LAYOUTS[layout]
    if storage == "dense":
        return dask.array.from_array(W, chunks=tuple(tuple(np.diff(cuts).tolist()) for cuts in (rows, columns)))
    parts = [
        [dask.delayed(sparse.csr_array)(W[a:b, c:d]) for c, d in itertools.pairwise(columns)]
        for a, b in itertools.pairwise(rows)
    ]
    return [row[0] for row in parts] if layout == "rows" else parts


def parted(model, W, storage="sparse", layout="rows"):
    return fmx.DEF(fmx.Layer(model.layers[0].family, in_dask(W, storage, layout), 0.2))


def same(found, right):
    assert np.all(found.converged)
    np.testing.assert_allclose(found.mean, right.mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.sd, right.sd, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.objective, right.objective, rtol=1e-12)


@pytest.mark.parametrize(
    ("family", "storage", "layout"), quick_or_slow(FAMILIES, ("dense", "sparse"), LAYOUTS, quick=QUICK)
)
def test_answers_of_a_cluster_are_those_of_one_machine(client, family, storage, layout):
    model, W, x = problem(family)
    with client.as_current():
        given = parted(model, W, storage, layout)
        assert isinstance(given.layers[0].weights.chunks, ClusterChunks)
        found = fmx.infer(given, x, tol=1e-12)
    same(found, fmx.infer(model, x, tol=1e-12))


#: Steps, each of which ends at the optimum or is stopped early on both sides.
STEPS = {
    "cg": {"accelerate": "cg", "tol": 1e-12},
    "plain": {"accelerate": False, "tol": 0, "max_iter": 5},
    "paper": {"objective": "fm", "tol": 1e-12},
}
QUICK_STEPS = {("gaussian", "plain", "grid")}


@pytest.mark.parametrize(
    ("family", "steps", "layout"), quick_or_slow(("gaussian", "poisson"), STEPS, LAYOUTS, quick=QUICK_STEPS)
)
def test_other_steps_on_a_cluster(client, family, steps, layout):
    model, W, x = problem(family)
    with client.as_current():
        found = fmx.infer(parted(model, W, "sparse", layout), x, **STEPS[steps])
    right = fmx.infer(model, x, **STEPS[steps])
    assert found.status == right.status
    np.testing.assert_allclose(found.mean, right.mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.sd, right.sd, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_batches_with_missing_entries_and_case_weights(client, layout, family):
    model, W, _ = problem(family)
    weight = np.random.default_rng(2).integers(0, 4, N).astype(float)
    x = model.sample(np.random.default_rng(3), size=3).x
    x[1, 4:9], x[2, ::3] = np.nan, np.nan
    family = model.layers[0].family
    with client.as_current():
        layer = fmx.Layer(family, in_dask(W, "dense", layout), 0.2, case_weights=weight)
        found = fmx.infer(fmx.DEF(layer), x, tol=1e-12)
    same(found, fmx.infer(fmx.DEF(fmx.Layer(family, W, 0.2, case_weights=weight)), x, tol=1e-12))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["synchronous", "stale"])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_workers_with_latents_of_their_own(client, family, mode):
    model, W, x = problem(family)
    with client.as_current():
        found = fmx.infer(parted(model, W, "dense", "columns"), x, fmx.ForestMixture(workers=mode), tol=1e-8)
    right = fmx.infer(model, x, tol=1e-12)
    assert found.converged
    np.testing.assert_allclose(found.mean, right.mean, atol=1e-6)
    assert np.all(np.diff(found.trace.objective) >= -1e-9)


@pytest.mark.parametrize("mode", ["synchronous", "stale"])
def test_some_turns_of_workers(client, mode):
    """Those that wait take the steps of groups in memory; those that do not wait climb too."""
    model, W, x = problem("bernoulli")
    algorithm, (_, columns) = fmx.ForestMixture(workers=mode), LAYOUTS["columns"]
    with client.as_current():
        found = fmx.infer(parted(model, W, "dense", "columns"), x, algorithm, max_iter=2)
    here = fmx.Layer(model.layers[0].family, [[W[:, a:b] for a, b in itertools.pairwise(columns)]], 0.2)
    right = fmx.infer(fmx.DEF(here), x, algorithm, max_iter=2)
    assert np.all(np.diff(found.trace.objective) > 0)
    if mode == "synchronous":
        np.testing.assert_allclose(found.mean, right.mean, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.sd, right.sd, rtol=0, atol=1e-10)


def killer(client, killed, iteration=3):
    """Return a callback that kills one of the workers that hold something."""

    def kill(seen):
        if seen.iteration == iteration and not killed:
            holding = {worker for workers in client.who_has().values() for worker in workers}
            processes = client.run(os.getpid, workers=[sorted(holding)[0]])
            killed.extend(processes.values())
            os.kill(killed[0], signal.SIGKILL)

    return kill


def _moved_between_workers(dask_worker):
    return [key for transfer in dask_worker.transfer_incoming_log for key in transfer["keys"]]


def _arrays(value):
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _arrays(part)
    elif type(value).__module__.startswith("forestmix."):
        yield from _arrays(vars(value))


@pytest.mark.parametrize(
    "layout",
    [*(pytest.param(one, marks=pytest.mark.slow) for one in ((25_000, 10), (100_000, 5))), (50_000, 5)],
    ids=LAYOUTS,
)
def test_entries_of_w_stay_with_their_workers(client, layout):
    """What an iteration sends is some vectors of latents: far less than W, and to this process nothing of the rows."""
    n, m = 100_000, 10
    x = np.random.default_rng(0).standard_normal(n)
    with client.as_current():
        layer = fmx.Layer(fmx.Gaussian(0.5), dask.array.random.default_rng(1).random((n, m), chunks=layout))
        sent, get, gather = [], client.get, client.gather

        def counted(graph, *rest, **options):
            sent.extend(part.nbytes for part in _arrays(graph))
            return get(graph, *rest, **options)

        def fetched(futures, *rest, **options):
            found = gather(futures, *rest, **options)
            sent.extend(part.nbytes for part in _arrays(found))
            return found

        client.get, client.gather = counted, fetched
        try:
            before = []
            fmx.infer(fmx.DEF(layer), x, accelerate="cg", tol=1e-10, callback=lambda seen: before.append(len(sent)))
        finally:
            del client.get, client.gather
        moved = {key for log in client.run(_moved_between_workers).values() for key in log}
        assert moved.isdisjoint(held.key for held in layer.weights.chunks.held)
        assert not [key for key in moved if str(key).startswith(("statistics-", "terms-"))]  # nor terms of rows
    assert len(before) > 5
    assert 0 < max(sent[before[1] : before[-1]]) <= 8 * m


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_with_no_client_threads_of_this_machine_serve(storage, layout, monkeypatch):
    model, W, x = problem("bernoulli")
    right = fmx.infer(model, x, tol=1e-12)
    for part, kind in ((0.25, MemoryChunks), (0.0, StreamedChunks)):
        monkeypatch.setattr(dask_chunks, "KEPT_PART", part)
        given = parted(model, W, storage, layout)
        assert isinstance(given.layers[0].weights.chunks, kind)
        found = fmx.infer(given, x, tol=1e-12)
        same(found, right)
        np.testing.assert_allclose(found.posterior().sd, right.posterior().sd, atol=1e-10)


def test_stale_workers_of_which_each_is_read_in_its_turn(monkeypatch):
    model, W, x = problem("gaussian")
    monkeypatch.setattr(dask_chunks, "KEPT_PART", 0.0)
    found = fmx.infer(parted(model, W, "dense", "columns"), x, fmx.ForestMixture(workers="stale"), tol=1e-8)
    np.testing.assert_allclose(found.mean, fmx.infer(model, x, tol=1e-12).mean, atol=1e-6)


def test_futures_are_chunks_too(client):
    _, W, x = problem("gaussian")
    with client.as_current():
        layer = fmx.Layer(fmx.Gaussian(0.5), client.scatter([W[:9], W[9:]]))
        found = fmx.infer(fmx.DEF(layer), x, tol=1e-12)
    same(found, fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W)), x, tol=1e-12))


def opened(path):
    return fmx.ChunkedWeights.open(path, chunk_bytes=256)


def test_a_worker_reads_its_chunks_from_its_own_files(client, tmp_path):
    """What a delayed object returns may be W in a file: the worker streams it, and Dask does not count it as memory."""
    model, W, x = problem("bernoulli")
    paths = [tmp_path / f"{k}.npy" for k in range(2)]
    for path, part in zip(paths, (W[:9], W[9:]), strict=True):
        np.save(path, part)
    with client.as_current():
        layer = fmx.Layer(model.layers[0].family, list(map(dask.delayed(opened), paths)), 0.2)
        found = fmx.infer(fmx.DEF(layer), x, tol=1e-12)
        sizes = client.run_on_scheduler(_bytes_of, [held.key for held in layer.weights.chunks.held])
        np.testing.assert_allclose(found.posterior().sd, fmx.infer(model, x, tol=1e-12).posterior().sd, atol=1e-9)
    same(found, fmx.infer(model, x, tol=1e-12))
    assert max(sizes) <= 2**9 < 31 * M * 8


def _bytes_of(keys, dask_scheduler):
    return [dask_scheduler.tasks[key].nbytes for key in keys]


def test_lists_of_both_kinds_are_refused():
    with pytest.raises(ArgumentError, match="chunks of W must be all of Dask or none"):
        as_weights([np.ones((2, 2)), dask.delayed(np.ones)((2, 2))])


def test_wrong_entries_on_a_worker_are_named(client):
    W = np.ones((4, 2))
    W[3, 1] = np.inf
    with client.as_current(), pytest.raises(ArgumentError, match="W must be finite"):
        as_weights(dask.array.from_array(W, chunks=(2, 2)))


@pytest.mark.parametrize("layout", [pytest.param("rows", marks=pytest.mark.slow), "grid"])
def test_nothing_piles_up_in_the_scheduler(client, layout):
    """Tasks and their data are released once an iteration is over."""
    model, W, x = problem("gaussian")
    counts = []

    def count(dask_scheduler):
        return len(dask_scheduler.tasks)

    with client.as_current():
        options = {"accelerate": False, "tol": 0, "max_iter": 10}
        given = parted(model, W, "dense", layout)
        fmx.infer(given, x, **options, callback=lambda seen: counts.append(client.run_on_scheduler(count)))
    assert max(counts[5:]) <= max(counts[:5])


@pytest.mark.parametrize(
    "layout", ["grid", *(pytest.param(one, marks=pytest.mark.slow) for one in ("rows", "columns"))]
)
def test_posteriors_of_a_cluster(client, layout):
    """The data may be Dask's too; what is asked of the result afterwards is asked of the workers."""
    model, W, x = problem("bernoulli")
    right = fmx.infer(model, x, tol=1e-12).posterior()
    with client.as_current():
        posterior = fmx.infer(parted(model, W, "sparse", layout), dask.array.from_array(x, chunks=10), tol=1e-12)
        posterior = posterior.posterior()
        np.testing.assert_allclose(posterior.sd, right.sd, atol=1e-9)
        np.testing.assert_allclose(posterior.mean, right.mean, atol=1e-9)
        np.testing.assert_allclose(posterior.sample(5, rng=0), right.sample(5, rng=0), atol=1e-8)
        for rows in (None, [3, 0, 31]) if layout == "rows" else (None,):
            np.testing.assert_allclose(posterior.predict(rows).mean, right.predict(rows).mean, atol=1e-9)
            np.testing.assert_allclose(posterior.predict(rows).eta_sd, right.predict(rows).eta_sd, atol=1e-9)
        np.testing.assert_allclose(posterior.loo().elpd, right.loo().elpd, atol=1e-8)


WORKERS = fmx.ForestMixture(workers="synchronous")


def survives(client, family, layout, options):
    """Hold a run in which a worker is killed to one without."""
    model, W, x = problem(family)
    killed = []
    with client.as_current():
        given = parted(model, W, "sparse", layout)
        found = fmx.infer(given, x, callback=killer(client, killed), **{"tol": 1e-12, **options})
    assert killed
    same(found, fmx.infer(model, x, tol=1e-12))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "options"),
    [*((layout, {}) for layout in LAYOUTS), ("columns", {"algorithm": WORKERS, "tol": 1e-11})],
    ids=[*LAYOUTS, "workers"],
)
def test_a_killed_worker_of_a_cluster_of_its_own(layout, options):
    with three_workers() as client:
        survives(client, "poisson", layout, options)


def test_a_worker_that_is_killed_costs_a_retry(client):
    """The last one: it leaves the cluster with two workers for a while."""
    survives(client, "gaussian", "grid", {"accelerate": "cg"})
